"""Networks as drift and diffusion of a stochastic equation with memory, for JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp

from hpfracc.ml.jax.order import as_order, assign, pytree
from hpfracc.ml.neural_equations import Along, PathLayer, PathModel, along_noise
from hpfracc.solvers.sde.stepping import Steps

__all__ = ["NeuralFSDE"]


@final
@pytree("drift", "diffusion", "order")
@dataclass(init=False, frozen=True, eq=False)
class NeuralFSDE(PathLayer):
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

    library, _as_order = "jax", staticmethod(as_order)

    def _assign(self, **fields: Any) -> None:
        if fields["spec"].noise == "additive" and not callable(fields["diffusion"]):
            fields["diffusion"] = jnp.asarray(fields["diffusion"])
        assign(self, **fields)

    def _recomputed(self, functions: tuple[Any, ...], args: Any) -> tuple[tuple[Any, ...], Along]:
        return tuple(_Rematerialized(each) if callable(each) else each for each in functions), _along_regenerated_noise

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
        return self._paths(y0, t, None, samples, args, key=key, first_path=first_path)[0]

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
        numbers = {"key": key, "first_path": first_path}
        return self._lower_bound(y0, t, data, control, scale, log_prob, samples, args, **numbers)


@pytree("function")
@dataclass(frozen=True, eq=False)
class _Rematerialized:
    """A function whose intermediate values are recomputed in the backward pass."""

    function: Any

    def __call__(self, *args: Any) -> Any:
        return jax.checkpoint(lambda *given: self.function(*given))(*args)


def _along_regenerated_noise(draw: Callable[[Any], Any], steps: Steps, key: Any) -> Any:
    """The paths along the noise ``draw(key)``; the backward pass restarts from the key and the initial values."""
    return jax.checkpoint(lambda key: along_noise(draw, steps, key))(key)
