"""The equation of an implicit step, all members of a batch at once, with its derivatives in PyTorch and JAX."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from hpfracc._xp import Namespace, array_namespace

#: Maximum number of iterations; members that have not converged become NaN.
MAX = 25

Function = Callable[[Any], Any]


def solve_step(
    fun: Function, jacobian: Function | None, known: Any, weight: Any, guess: Any, tracked: bool, wrapped: bool
) -> Any:
    """``y = known + weight f(y)``, y of shape (..., d), from ``guess``; NaN for members that do not converge.

    Derivatives are those of the equation, not of the iteration: of any order in JAX (``jax.lax.custom_root``).

    Parameters
    ----------
    tracked, wrapped : bool
        For PyTorch: whether a derivative is needed, and whether by ``torch.func``. Autograd has the first derivative;
        differentiating it again raises an error. Under ``torch.func`` two further Newton steps are taken, including the
        Jacobian. Each doubles the number of correct terms of the expansion about the solution, so derivatives up to the
        third are exact.
    """
    xp = array_namespace(guess)
    slopes = slopes_of(fun, jacobian, wrapped)

    def residual(y: Any) -> Any:
        return y - known - weight * fun(y)

    iterate = partial(_iterate, xp, residual, slopes, weight, wrapped)
    if xp.library == "jax":
        return sys.modules["jax"].lax.custom_root(residual, guess, lambda _, start: iterate(start), _solve_linear)
    if xp.library == "numpy":
        return iterate(guess)
    with xp.module.no_grad():
        y = iterate(guess.detach()).detach()
    if not tracked:
        return y
    if wrapped:
        for _ in range(2):
            y = y - _solve_each(xp, _matrix(xp, weight, slopes(y)), residual(y))
        return y
    from hpfracc.solvers.tensors.on_torch.buffers import of_the_equation

    matrix = _matrix(xp, weight.detach(), slopes(y))
    return of_the_equation(known + weight * fun(y), y, matrix, partial(_solve_each, xp))


def solve_transposed(fun: Function, jacobian: Function | None, y: Any, weight: Any, value_bar: Any, bar: Any) -> Any:
    """The gradient with respect to ``known`` of ``y = known + weight f(y)``, from those of ``f(y)`` and y."""
    xp = array_namespace(y)
    slopes = slopes_of(fun, jacobian, False)(y)
    transposed = xp.module.swapaxes(slopes, -1, -2)
    right = bar + (transposed * value_bar[..., None, :]).sum(-1)
    return _solve_each(xp, xp.module.swapaxes(_matrix(xp, weight, slopes), -1, -2), right)


def _iterate(xp: Namespace, residual: Function, slopes: Function, weight: Any, endless: bool, start: Any) -> Any:
    """Newton's method from a guess; ``endless`` if there is no value for all members together."""
    tolerance = float(xp.module.finfo(start.dtype).eps) ** 0.7  # the next correction would be below rounding

    def go_on(carried: Any) -> Any:
        _, settled, lost, count = carried
        return (count < MAX) if endless else (count < MAX) & ~(settled | lost).all()

    def turn(carried: Any) -> Any:
        y, settled, _, count = carried
        change = _solve_each(xp, _matrix(xp, weight, slopes(y)), residual(y))
        y = xp.where(settled[..., None], y, y - change)
        size = xp.amax(abs(change), -1)
        done = settled | (size <= tolerance * xp.amax(abs(y), -1)) | (size == 0.0)
        return y, done, ~xp.isfinite(size), count + 1

    none = abs(start[..., 0]) < 0.0
    y, settled, _, _ = xp.repeat_while(go_on, turn, (start, none, none, 0))
    return xp.where(settled[..., None], y, xp.module.nan)


def _matrix(xp: Namespace, weight: Any, slopes: Any) -> Any:
    size = slopes.shape[-1]
    identity = xp.module.eye(size, dtype=slopes.dtype, **({"device": slopes.device} if xp.library == "torch" else {}))
    return identity - xp.module.broadcast_to(weight, slopes.shape[:-1])[..., None] * slopes


def _solve_each(xp: Namespace, matrix: Any, right: Any) -> Any:
    """The solution for each member; NaN if the matrix is not finite or is singular."""
    if matrix.shape[-1] == 1:
        return right / matrix[..., 0]
    if xp.library != "torch":
        return xp.module.linalg.solve(matrix, right[..., None])[..., 0]
    torch: Any = xp.module
    bad = ~torch.isfinite(matrix).all(-1).all(-1)  # LAPACK does not accept non-finite matrices
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    found = torch.linalg.solve_ex(torch.where(bad[..., None, None], identity, matrix), right[..., None])[0][..., 0]
    return torch.where(bad[..., None], torch.nan, found)


def _solve_linear(linear: Function, right: Any) -> Any:
    jax, xp = sys.modules["jax"], array_namespace(right)
    basis = xp.module.eye(right.shape[-1], dtype=right.dtype)
    matrix = jax.vmap(lambda column: linear(xp.module.broadcast_to(column, right.shape)), out_axes=-1)(basis)
    return _solve_each(xp, matrix, right)


def slopes_of(fun: Function, jacobian: Function | None, wrapped: bool) -> Function:
    """``df/dy`` of each member, of shape (..., d, d): members are independent; in reverse mode.

    ``wrapped`` is whether a tensor is inside a transform of ``torch.func``.
    """
    return partial(_slopes, fun, wrapped) if jacobian is None else jacobian


def _slopes(fun: Function, wrapped: bool, y: Any) -> Any:
    library: Any = sys.modules[array_namespace(y).library]
    if library.__name__ == "jax":
        value, back = library.vjp(fun, y)
        basis = library.numpy.eye(y.shape[-1], dtype=value.dtype)
        return library.vmap(lambda row: back(library.numpy.broadcast_to(row, value.shape))[0], out_axes=-2)(basis)
    if wrapped:
        value, back = library.func.vjp(fun, y)
        return library.stack([back(each)[0].conj() for each in _units(value)], -2)
    # Checkpointing would recompute the whole block for these rows, which are not differentiated.
    with library.enable_grad(), library.autograd.graph.saved_tensors_hooks(lambda each: each, lambda each: each):
        point = y.detach().requires_grad_()
        value = fun(point)
        if not value.requires_grad:  # does not depend on y
            return value.new_zeros((*value.shape, value.shape[-1]))
        grad = partial(library.autograd.grad, retain_graph=True, allow_unused=True)
        rows = [grad(value, point, each)[0] for each in _units(value)]
    return library.stack([library.zeros_like(y) if row is None else row.conj() for row in rows], -2)


def _units(value: Any) -> list[Any]:
    """The unit vectors of all components."""
    places = sys.modules["torch"].arange(value.shape[-1], device=value.device)
    return [(places == index).to(value.dtype).expand(value.shape) for index in range(value.shape[-1])]
