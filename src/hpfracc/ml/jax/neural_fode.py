"""A function with parameters as the right-hand side of a fractional differential equation, for JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from hpfracc._arrays import is_array
from hpfracc.errors import InvalidInputError
from hpfracc.ml.config import refuse_foreign
from hpfracc.ml.jax.order import is_plain_function, pytree
from hpfracc.ml.neural_equations import NeuralOptions, read_method, solve_states

__all__ = ["NeuralFODE"]


@pytree("func", "alpha")
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
    but not arrays that a plain function captures (an error says so): pass them as ``args``, or use ``"recomputed"``.
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
        refuse_foreign("jax", "neural_fode", "alpha", self.alpha)

    def order(self) -> Any:
        """The order, or a tuple of them: a pytree such as ``LearnableOrder`` is called."""
        return tuple(map(_order, self.alpha)) if isinstance(self.alpha, tuple) else _order(self.alpha)

    def __call__(self, y0: Any, t: Any, args: Sequence[Any] = (), dy0: Any = None) -> Any:
        """The solution at the times ``t``, shape (N, ..., d); for a tuple of states, a tuple."""
        method = read_method(self.method, self.step, self.adjoint)
        fun, rest, count = self.func, tuple(args), len(args)
        if not is_plain_function(fun):
            # Arrays of a pytree are arguments of the solve; its other leaves, such as activations, stay as they are.
            leaves, tree = jax.tree_util.tree_flatten(fun)
            arrays = [each if is_array(each) else None for each in leaves]
            others = [None if is_array(each) else each for each in leaves]
            rest = (*args, arrays)

            def fun(time: Any, y: Any, *given: Any) -> Any:
                whole = [one if other is None else other for one, other in zip(given[count], others, strict=True)]
                return jax.tree_util.tree_unflatten(tree, whole)(time, y, *given[:count])

        options = {**self.options, "method": method, "step": self.step, "args": rest}
        try:
            return solve_states("jax", fun, y0, t, self.order(), dy0, options)
        except Exception as error:  # JAX's own class is private
            if "closed-over value" not in str(error):
                raise
            raise InvalidInputError(
                "func captures a value whose gradient is wanted, and adjoint='stored' reaches arguments only: pass it "
                "in args, as in func(t, y, p) and model(y0, t, (p,)), make func a pytree, or give adjoint='recomputed'"
            ) from error


def _order(alpha: Any) -> Any:
    return alpha() if callable(alpha) and not is_plain_function(alpha) else alpha
