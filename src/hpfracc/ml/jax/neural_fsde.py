"""Networks as drift and diffusion of a stochastic equation with memory, for JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import jax
import jax.numpy as jnp

from hpfracc.ml.arguments import refuse_foreign
from hpfracc.ml.fsde_models import (
    PathModel,
    Steps,
    along_noise,
    lower_bound,
    read_model,
    read_noise_order,
    sample_paths,
    simulate,
)
from hpfracc.ml.jax.order import OrderLike, as_order
from hpfracc.ml.jax.pytrees import assign, pytree

__all__ = ["NeuralFSDE"]


@final
@pytree("drift", "diffusion", "order")
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
        names = (drift, model, noise, interpretation, method, step, factors, adjoint)
        spec = read_model(*names, alpha=alpha, hurst=hurst)
        if noise == "additive" and not callable(diffusion):
            refuse_foreign("jax", "neural_fsde", "diffusion", diffusion)
            diffusion = jnp.asarray(diffusion)
        order = read_noise_order("jax", alpha, hurst, as_order)
        assign(self, drift=drift, diffusion=diffusion, order=order, spec=spec, adjoint=adjoint)

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
        return sample_paths("jax", partial(self._paths, t, None, args, key, first_path), y0, samples)[0]

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
        paths = partial(self._paths, t, control, args, key, first_path)
        return lower_bound("jax", paths, y0, t, data, scale, log_prob, samples)

    def _paths(self, t: Any, control: Any, args: Any, key: Any, first_path: int, rows: Any) -> tuple[Any, Any]:
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
