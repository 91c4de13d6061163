"""Linear systems of implicit steps: preconditioned conjugate gradients and GMRES.

The iterations use the array library of the right-hand side. Leading axes are separate systems for conjugate gradients;
for GMRES they form one block-diagonal system. Gradients of tensors come from one system with the transposed operator,
not from differentiating the iterations.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, library_of, tracks_gradient
from hpfracc.errors import InvalidInputError, SolveError

#: Residual at which iterations stop, relative to the right-hand side: below the error of any time step.
RTOL = 1e-12
MAX_ITERATIONS = 400
#: Number of GMRES vectors after which it restarts.
_RESTART = 60

Map = Callable[[Any], Any]


def conjugate_gradients(
    apply: Map, precondition: Map, rhs: Any, guess: Any = None, *, axes: int, rtol: float = RTOL
) -> tuple[Any, int]:
    """Solve ``apply(u) = rhs`` for a symmetric positive definite ``apply``.

    Parameters
    ----------
    apply, precondition : callable
        The operator, and an approximate inverse that is symmetric positive definite too.
    rhs : array
        Right-hand sides, whose last ``axes`` axes are the unknowns of one system.
    guess : array, optional
        Starting vector.
    axes : int
        The number of axes of one system.
    rtol : float
        Tolerance for the norm of the residual over that of ``rhs``, for every system.

    Returns
    -------
    array, int
        The solutions and the number of iterations.

    Raises
    ------
    SolveError
        If the residual does not fall to ``rtol`` within 400 iterations.
    """
    solver = functools.partial(_conjugate_gradients, axes=axes, rtol=rtol)
    return _with_derivatives(solver, apply, precondition, rhs, guess)


def gmres(apply: Map, precondition: Map, rhs: Any, guess: Any = None, *, rtol: float = RTOL) -> tuple[Any, int]:
    """Solve ``apply(u) = rhs`` with right preconditioning, restarted after 60 vectors.

    Parameters and results are as for :func:`conjugate_gradients`; all systems are solved as one.
    """
    return _with_derivatives(functools.partial(_gmres, rtol=rtol), apply, precondition, rhs, guess)


def _with_derivatives(
    solver: Callable[..., tuple[Any, int]], apply: Map, precondition: Map, rhs: Any, guess: Any
) -> tuple[Any, int]:
    """The solution, with gradients by implicit differentiation if tensors need them."""
    if library_of(rhs) == "jax" and (is_tracer(rhs) or is_tracer(apply(rhs))):
        raise InvalidInputError(
            "derivatives and compilation by JAX do not go through the iterations of a linear solver, which these terms "
            "need; use tensors of PyTorch"
        )
    if library_of(rhs) != "torch":
        return solver(apply, precondition, rhs, guess)
    torch = sys.modules["torch"]
    with torch.no_grad():
        found, iterations = solver(apply, precondition, rhs, guess)
    if not torch.is_grad_enabled():
        return found, iterations
    residual = rhs - apply(found)
    if not tracks_gradient(residual):
        return found, iterations

    def adjoint(g: Any) -> Any:
        return solver(_transposed(torch, apply), _transposed(torch, precondition), g, None)[0]

    # The residual is zero up to rounding; it carries the gradients of the equation.
    return found + _adjoint_function(torch).apply(residual, adjoint), iterations


def _transposed(torch: Any, linear: Map) -> Map:
    def product(v: Any) -> Any:
        with torch.enable_grad():
            z = torch.zeros_like(v).requires_grad_()
            image = linear(z)
        return torch.autograd.grad(image, z, v)[0]

    return product


@functools.cache
def _adjoint_function(torch: Any) -> Any:
    class Adjoint(torch.autograd.Function):  # type: ignore[misc]
        """Returns zero; its gradient is that of the inverse operator, applied by ``adjoint``."""

        @staticmethod
        def forward(ctx: Any, residual: Any, adjoint: Map) -> Any:
            ctx.adjoint = adjoint
            return torch.zeros_like(residual)

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, g: Any) -> tuple[Any, None]:
            return ctx.adjoint(g), None

    return Adjoint


def _conjugate_gradients(
    apply: Map, precondition: Map, rhs: Any, guess: Any, *, axes: int, rtol: float
) -> tuple[Any, int]:
    over = tuple(range(-axes, 0))

    def product(a: Any, b: Any) -> Any:
        return (a * b).sum(over, keepdims=True)

    u = 0.0 * rhs if guess is None else guess
    residual = rhs if guess is None else rhs - apply(guess)
    size = product(rhs, rhs)
    limit = rtol**2 * size
    direction: Any = None
    before: Any = None
    for iteration in range(MAX_ITERATIONS):
        left = product(residual, residual)
        if not bool((left > limit).any()):
            return u, iteration
        z = precondition(residual)
        now = product(residual, z)
        # Avoid dividing by zero for a system that has converged.
        direction = z if direction is None else z + now / _nonzero(before) * direction
        image = apply(direction)
        length = now / _nonzero(product(direction, image))
        u = u + length * direction
        residual = residual - length * image
        before = now
    raise _failure(math.sqrt(float((left / _nonzero(size)).max())), rtol)


def _gmres(apply: Map, precondition: Map, rhs: Any, guess: Any, *, rtol: float) -> tuple[Any, int]:
    u = 0.0 * rhs if guess is None else guess
    size = _norm(rhs)
    if not size:
        return 0.0 * rhs, 0
    done = 0
    residual = rhs if guess is None else rhs - apply(u)
    while True:
        beta = _norm(residual)
        if not beta > rtol * size:
            return u, done
        if done >= MAX_ITERATIONS:
            raise _failure(beta / size, rtol)
        basis, images = [residual / beta], []
        hessenberg = np.zeros((_RESTART + 1, _RESTART), complex if "complex" in str(residual.dtype) else float)
        start = beta * np.eye(_RESTART + 1, 1)[:, 0]
        for k in range(_RESTART):
            images.append(precondition(basis[k]))
            v = apply(images[k])
            for j, other in enumerate(basis):
                weight = hessenberg[j, k] = (other.conj() * v).sum().item()
                v = v - weight * other
            length = hessenberg[k + 1, k] = _norm(v)
            done += 1
            q, r = np.linalg.qr(hessenberg[: k + 2, : k + 1], mode="complete")
            turned = q.conj().T @ start[: k + 2]
            left = abs(turned[-1])  # the residual that the best combination leaves
            if left <= rtol * size or not length or done >= MAX_ITERATIONS:
                break
            basis.append(v / length)
        weights = np.linalg.solve(r[: k + 1], turned[: k + 1])
        for weight, image in zip(weights.tolist(), images, strict=True):
            u = u + weight * image
        if left <= rtol * size:
            # The residual cannot fall below rounding: the recurrence has converged.
            return u, done
        residual = rhs - apply(u)


def _norm(a: Any) -> float:
    return math.sqrt(float((abs(a) ** 2).sum()))


def _nonzero(x: Any) -> Any:
    return x + (x == 0.0)


def _failure(reached: float, rtol: float) -> SolveError:
    return SolveError(
        f"the linear solver reached a residual of {reached:.2g} after {MAX_ITERATIONS} iterations, not {rtol:.2g}; "
        "take smaller steps, or a coefficient that varies less"
    )
