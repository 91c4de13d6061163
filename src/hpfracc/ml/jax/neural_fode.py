"""A function with parameters as the right-hand side of a fractional differential equation, for JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from hpfracc._arrays import is_array, library_of
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError
from hpfracc.ml.fode_methods import NeuralOptions, read_method
from hpfracc.ml.jax.pytrees import is_plain_function
from hpfracc.solvers.ode._fdeint import fdeint

__all__ = ["NeuralFODE"]


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True, eq=False)
class NeuralFODE:
    r"""The solution of :math:`D^\alpha y = f_\theta(t, y)`, with the gradient of its discrete steps; a pytree.

    See :class:`hpfracc.ml.torch.neural_fode.NeuralFODE` for the parameters. Here ``func`` is a function, or a callable
    pytree such as an Equinox or Flax NNX module; ``alpha`` may also be a
    :class:`~hpfracc.ml.jax.order.LearnableOrder`. Both are children of this pytree, so that ``jax.grad``, Equinox's
    filters and Optax reach their arrays; a plain function is static.

    Notes
    -----
    With ``adjoint="stored"`` the gradient reaches the arrays of ``func``, ``alpha``, the initial values and ``args``,
    but not arrays that a plain function captures (JAX raises an error): pass them as ``args``, or use ``"recomputed"``.
    Put ``jax.jit`` around a training step: outside of it an object is recompiled at each call. Inside, a solve that
    fails, or whose explicit steps are not stable, is nan.

    Examples
    --------
    >>> import jax
    >>> from hpfracc.ml.jax.neural_fode import NeuralFODE
    >>> model = NeuralFODE(lambda t, y: -y, 0.6, step=0.05)
    >>> model(jax.numpy.ones((4, 1)), jax.numpy.linspace(0.0, 1.0, 3)).shape
    (3, 4, 1)
    """

    func: Callable[..., Any]
    alpha: Any
    method: Any = "pece"
    step: float | None = None
    adjoint: str | None = None
    options: NeuralOptions = field(default_factory=NeuralOptions)

    def __post_init__(self) -> None:
        if not callable(self.func) and type(self.func) is not object:
            raise InvalidInputError(f"func={self.func!r} cannot be called; give a function func(t, y)")
        read_method(self.method, self.step, self.adjoint)
        _refuse_foreign("alpha", self.alpha)

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, Any], tuple[Any, ...]]:
        """The function, unless it is a plain one, and the order are children; the rest is static."""
        plain = self.func if is_plain_function(self.func) else None
        children = {"func": None if plain is not None else self.func, "alpha": self.alpha}
        keyed = tuple((jax.tree_util.GetAttrKey(name), each) for name, each in children.items())
        return keyed, (plain, self.method, self.step, self.adjoint, _frozen(self.options))  # type: ignore[return-value]

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, Any]) -> NeuralFODE:
        """Rebuild from children and static parts, without checks, because leaves may be anything."""
        func, alpha = children
        plain, method, step, adjoint, options = static
        made = object.__new__(cls)
        values = (func if plain is None else plain, alpha, method, step, adjoint, dict(options))
        for name, value in zip(("func", "alpha", "method", "step", "adjoint", "options"), values, strict=True):
            object.__setattr__(made, name, value)
        return made

    def order(self) -> Any:
        """The order, or a tuple of them: a pytree such as ``LearnableOrder`` is called."""
        return tuple(map(_order, self.alpha)) if isinstance(self.alpha, tuple) else _order(self.alpha)

    def __call__(self, y0: Any, t: Any, args: Sequence[Any] = (), dy0: Any = None) -> Any:
        """The solution at the times ``t``, shape (N, ..., d); for a tuple of states, a tuple."""
        method = read_method(self.method, self.step, self.adjoint)
        options: NeuralOptions = {**self.options}
        count, order = len(args), self.order()
        fun: Callable[..., Any] = self.func
        rest = tuple(args)
        if not is_plain_function(fun):
            # Arrays of a pytree are arguments of the solve; its other leaves, such as activations, stay as they are.
            leaves, tree = jax.tree_util.tree_flatten(fun)
            arrays = [each if is_array(each) else None for each in leaves]
            others = [None if is_array(each) else each for each in leaves]
            rest = (*args, arrays)

            def fun(time: Any, y: Any, *given: Any) -> Any:
                whole = [one if other is None else other for one, other in zip(given[count], others, strict=True)]
                return jax.tree_util.tree_unflatten(tree, whole)(time, y, *given[:count])

        if not isinstance(y0, tuple):
            _refuse_foreign("y0", y0)
            if isinstance(order, tuple):
                raise ShapeError(f"alpha has {len(order)} orders for a tuple of states, and y0 is one array")
            if dy0 is not None:
                options["dy0"] = dy0
            return fdeint(fun, y0, t, order, method=method, step=self.step, args=rest, **options)
        for place, each in enumerate(y0):
            _refuse_foreign(f"y0[{place}]", each)
            if each.ndim < 1 or each.shape[:-1] != y0[0].shape[:-1]:
                shapes = f"y0[{place}] has shape {each.shape} and y0[0] {y0[0].shape}"
                raise ShapeError(f"{shapes}: all axes but the last must agree")
        ends: list[int] = []
        for each in y0:
            ends.append((ends[-1] if ends else 0) + each.shape[-1])
        if isinstance(order, tuple):
            if len(order) != len(y0):
                raise ShapeError(f"alpha has {len(order)} orders and y0 {len(y0)} states")
            pairs = zip(order, y0, strict=True)
            order = jnp.concatenate([jnp.broadcast_to(jnp.asarray(a), (each.shape[-1],)) for a, each in pairs])
        if dy0 is not None:
            options["dy0"] = [jnp.concatenate(tuple(each), -1) for each in dy0]

        def joined(time: Any, y: Any, *given: Any) -> Any:
            values = fun(time, tuple(jnp.split(y, ends[:-1], -1)), *given)
            if not isinstance(values, tuple) or len(values) != len(ends):
                raise ShapeError(f"func(t, y) has to return a tuple of {len(ends)} arrays, like y0")
            return jnp.concatenate(values, -1)

        found = fdeint(joined, jnp.concatenate(y0, -1), t, order, method=method, step=self.step, args=rest, **options)
        return tuple(jnp.split(found, ends[:-1], -1))


def _order(alpha: Any) -> Any:
    return alpha() if callable(alpha) and not is_plain_function(alpha) else alpha


def _frozen(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))


def _refuse_foreign(name: str, value: Any) -> None:
    if library_of(value) == "torch":
        raise PinnedBackendError(f"{name} is a tensor of PyTorch; use hpfracc.ml.torch.neural_fode, or a JAX array")
    if name.startswith("y0") and library_of(value) != "jax":
        raise InvalidInputError(f"{name} is not a JAX array; give one of shape (..., d)")
