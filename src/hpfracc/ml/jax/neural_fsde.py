"""Networks as drift and diffusion of a stochastic equation with memory, for JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from hpfracc._arrays import is_tracer, library_of
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError
from hpfracc.ml.fsde_models import PathModel, Steps, along_noise, read_model, read_samples, simulate
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import is_plain_function

__all__ = ["NeuralFSDE"]


@final
@jax.tree_util.register_pytree_node_class
@dataclass(init=False, frozen=True, eq=False)
class NeuralFSDE:
    r"""Paths of a stochastic equation with memory, with the gradient of their discrete steps; a pytree.

    See :class:`hpfracc.ml.torch.neural_fsde.NeuralFSDE` for the parameters. Here ``drift`` and ``diffusion`` are
    functions, or callable pytrees such as Equinox modules: their arrays are leaves of this pytree, as are an additive
    diffusion and the order. ``adjoint="stored"`` applies :func:`jax.checkpoint` to both functions and to all steps:
    nothing is kept between the passes, and the backward pass regenerates the noise from ``key``.

    Notes
    -----
    Paths are nan if H is traced and its value is below 1/2 with multiplicative noise.

    Examples
    --------
    >>> import jax
    >>> from hpfracc.ml.jax.neural_fsde import NeuralFSDE
    >>> model = NeuralFSDE(lambda t, y: -y, 0.3, alpha=0.75, noise="additive", step=0.1)
    >>> model(jax.numpy.ones((4, 1)), [0.0, 0.5, 1.0], samples=5, key=jax.random.key(1)).shape
    (3, 5, 4, 1)
    """

    drift: Any
    diffusion: Any
    order: Any
    spec: PathModel
    adjoint: str

    def __init__(
        self,
        drift: Callable[..., Any],
        diffusion: Any,
        model: str = "volterra",
        *,
        alpha: OrderLike = None,
        hurst: OrderLike = None,
        noise: str = "diagonal",
        step: float,
        interpretation: str | None = None,
        method: str | None = None,
        factors: int = 8,
        adjoint: str = "direct",
    ) -> None:
        given = {"alpha": alpha is not None, "hurst": hurst is not None}
        spec = read_model(model, noise, interpretation, method, step, factors, **given)
        if adjoint not in ("direct", "stored"):
            raise InvalidInputError(f"adjoint={adjoint!r} is unknown; use 'direct' or 'stored'")
        if not callable(drift):
            raise InvalidInputError(f"drift={drift!r} cannot be called; give a function drift(t, y)")
        if noise == "additive" and not callable(diffusion):
            _refuse_foreign("diffusion", diffusion)
            diffusion = jnp.asarray(diffusion)
        _refuse_foreign("the order", alpha if hurst is None else hurst)
        order = as_order(alpha if hurst is None else hurst)
        if order.channels is not None:
            raise ShapeError(f"{'alpha' if hurst is None else 'hurst'} has {order.channels} values; give one")
        _assign(self, drift, diffusion, order, spec, adjoint)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arrays of both functions and the order are leaves; functions without arrays are static."""
        plain = tuple(each if is_plain_function(each) else None for each in (self.drift, self.diffusion))
        parts = (self.drift, self.diffusion)
        moving = tuple(None if fixed is not None else each for fixed, each in zip(plain, parts, strict=True))
        return (*moving, self.order), (*plain, self.spec, self.adjoint)

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], children: tuple[Any, ...]) -> NeuralFSDE:
        """Rebuild from leaves and static parts, without checks, because leaves may be anything."""
        plain, (spec, adjoint) = static[:2], static[2:]
        parts = (each if fixed is None else fixed for fixed, each in zip(plain, children[:2], strict=True))
        made = object.__new__(cls)
        _assign(made, *parts, children[2], spec, adjoint)
        return made

    def __call__(
        self,
        y0: Any,
        t: Any,
        *,
        key: Any,
        samples: int | None = None,
        args: Sequence[Any] = (),
        first_path: int = 0,
    ) -> Any:
        """Paths at the times ``t``, shape (N, ..., d), or (N, samples, ..., d), for a ``key`` of ``jax.random.key``."""
        rows, shape = _rows(y0, read_samples(samples))
        found, _ = self._paths(rows, t, None, args, key, first_path)
        return found.reshape(found.shape[0], *shape, rows.shape[1])

    def elbo(
        self,
        y0: Any,
        t: Any,
        data: Any,
        control: Callable[..., Any],
        *,
        key: Any,
        scale: Any = None,
        log_prob: Callable[[Any, Any], Any] | None = None,
        samples: int = 1,
        args: Sequence[Any] = (),
        first_path: int = 0,
    ) -> Any:
        """A lower bound of the log-likelihood of each series.

        See :meth:`hpfracc.ml.torch.neural_fsde.NeuralFSDE.elbo`.
        """
        if (scale is None) == (log_prob is None):
            raise InvalidInputError("give either scale=, the standard deviation of the data, or log_prob=")
        rows, shape = _rows(y0, read_samples(samples))
        if tuple(data.shape[:-1]) != (len(t), *y0.shape[:-1]):
            raise ShapeError(f"data has shape {tuple(data.shape)}; give (N, ..., k), {(len(t), *y0.shape[:-1])} and k")
        found, spent = self._paths(rows, t, control, args, key, first_path)
        x = found.reshape(found.shape[0], *shape, rows.shape[1])
        target = data[:, None]
        likelihood = log_prob(x, target) if log_prob is not None else _normal(x, target, scale)
        if tuple(likelihood.shape) != (x.shape[0], *shape):
            raise ShapeError(
                f"log_prob returned shape {tuple(likelihood.shape)}; return (N, samples, ...), {(x.shape[0], *shape)}"
            )
        return (likelihood.sum(0) - spent.reshape(shape)).mean(0)

    def _paths(self, rows: Any, t: Any, control: Any, args: Any, key: Any, first_path: int) -> tuple[Any, Any]:
        diffusion = self.diffusion
        if self.spec.noise == "additive" and callable(diffusion):
            diffusion = diffusion()
        functions = (self.drift, diffusion, control)
        if self.adjoint == "stored":
            functions = tuple(_Rematerialized(each) if callable(each) else each for each in functions)  # type: ignore[assignment]
        along = _along_regenerated_noise if self.adjoint == "stored" else None
        return simulate(
            self.spec, functions, rows, t, self.order(), args=tuple(args), key=key, first_path=first_path, along=along
        )


@jax.tree_util.register_pytree_node_class
class _Rematerialized:
    """A function whose intermediate values are recomputed in the backward pass."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        """Its arrays."""
        return (self.function,), None

    @classmethod
    def tree_unflatten(cls, static: None, children: tuple[Any]) -> _Rematerialized:
        """Rebuild from its arrays."""
        return cls(*children)

    def __call__(self, *args: Any) -> Any:
        return jax.checkpoint(lambda *given: self.function(*given))(*args)


def _assign(made: NeuralFSDE, *values: Any) -> None:
    for name, value in zip(("drift", "diffusion", "order", "spec", "adjoint"), values, strict=True):
        object.__setattr__(made, name, value)


def _rows(y0: Any, samples: int | None) -> tuple[Any, tuple[int, ...]]:
    """Initial values of all paths along one axis, and the shape of that axis."""
    _refuse_foreign("y0", y0)
    if library_of(y0) != "jax" or y0.ndim < 1 or not jnp.issubdtype(y0.dtype, jnp.floating):
        raise InvalidInputError(f"y0={y0!r} is not a real JAX array of shape (..., d); give one")
    shape = tuple(y0.shape[:-1])
    rows = y0.reshape(-1, y0.shape[-1])
    if samples is None:
        return rows, shape
    return jnp.tile(rows, (samples, 1)), (samples, *shape)


def _normal(x: Any, data: Any, scale: Any) -> Any:
    if data.shape[-1] != x.shape[-1]:
        raise ShapeError(f"data has {data.shape[-1]} components and the state {x.shape[-1]}; give log_prob= instead")
    spread = jnp.asarray(scale, x.dtype)
    if not is_tracer(scale) and bool((np.asarray(scale) <= 0).any()):
        raise InvalidInputError(f"scale={scale!r} is not positive; give the standard deviation of the data")
    errors = (x - data) / spread
    return (-0.5 * errors**2 - jnp.log(spread) - 0.5 * math.log(2.0 * math.pi)).sum(-1)


def _refuse_foreign(name: str, value: Any) -> None:
    if library_of(value) == "torch":
        raise PinnedBackendError(f"{name} is a tensor of PyTorch; use hpfracc.ml.torch.neural_fsde, or a JAX array")


def _along_regenerated_noise(draw: Callable[[Any], Any], steps: Steps, key: Any) -> Any:
    """The paths along the noise ``draw(key)``; the backward pass restarts from the key and the initial values."""
    return jax.checkpoint(lambda key: along_noise(draw, steps, key))(key)
