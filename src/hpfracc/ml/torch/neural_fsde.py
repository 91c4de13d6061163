"""Networks as drift and diffusion of a stochastic equation with memory, for PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from hpfracc._arrays import library_of
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError
from hpfracc.ml.fsde_models import read_model, read_samples, simulate
from hpfracc.ml.torch.order import OrderLike, as_order, shown_order
from hpfracc.ml.torch.regenerated_noise import along_regenerated_noise
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers, warn_of_captured

__all__ = ["NeuralFSDE"]


@final
class NeuralFSDE(nn.Module):  # type: ignore[misc]
    r"""Paths of a stochastic equation with memory as a layer, with the gradient of its discrete steps.

    .. math:: X_t = X_0 + \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1} \left(f(s, X)\,ds + g(s, X)\,dW_s\right)

    for ``model="volterra"``, and :math:`dX = f\,dt + g\,dB^H` for the other two.

    Parameters
    ----------
    drift : nn.Module or callable
        ``drift(t, y, *args)`` with y of shape ``(paths, d)``; returns that shape, or one number. Give a network as a
        module: the parameters of one that a function merely calls are not those of this layer, and a warning says so.
    diffusion : nn.Module, callable, number or tensor
        With ``noise="additive"`` numbers or a tensor, of shape ``()``, ``(d,)`` or ``(d, m)``; a parameter is learned,
        and so is a module that returns the tensor when called without arguments. Otherwise ``diffusion(t, y, *args)``,
        of shape ``(paths, d)`` or one number (``"diagonal"``: component i has its own noise, whose strength depends on
        component i alone) or ``(paths, d, m)`` (``"general"``).
    model : {"volterra", "fbm", "markov"}
        ``"volterra"``: Caputo's equation with white noise, as an Ito integral. ``"fbm"``: fractional Brownian motion;
        for multiplicative noise :math:`H \ge 1/2`. ``"markov"``: Riemann-Liouville fractional Brownian motion as a sum
        of Ornstein-Uhlenbeck factors, for :meth:`elbo`.
    alpha : float, tensor, nn.Parameter or LearnableOrder
        The order of the Volterra equation, above 1/2 and at most 1.
    hurst : float, tensor, nn.Parameter or LearnableOrder
        H of the other models.
    noise : {"additive", "diagonal", "general"}
        The shape of the diffusion.
    step : float
        Length of a step.
    interpretation : {"ito", "stratonovich"}, optional
        Interpretation of multiplicative noise at ``hurst=0.5``.
    method : str, optional
        Method of :func:`hpfracc.solve_fsde`, for ``"fbm"``. By default Euler's, or the one the Stratonovich integral
        needs.
    factors : int
        Number of factors of the Markov model.
    adjoint : {"direct", "stored"}
        ``"direct"`` keeps all steps and the noise for the backward pass. ``"stored"`` keeps the paths, and the whole
        state every 32 steps: the backward pass regenerates the noise from its key and recomputes these steps. The
        gradient is the same up to rounding. With ``model="fbm"`` and a learned Hurst index the noise is kept.

    Notes
    -----
    Minimising the mean square error between paths and data makes the noise vanish: the best single guess is the mean.
    Train with :meth:`elbo`, or with :func:`~hpfracc.ml.torch.path_losses.energy_score` or
    :func:`~hpfracc.ml.torch.path_losses.signature_mmd` on samples.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import LearnableOrder
    >>> from hpfracc.ml.torch.neural_fsde import NeuralFSDE
    >>> order = LearnableOrder(0.75, bounds=(0.5, 1.0))
    >>> model = NeuralFSDE(lambda t, y: -y, 0.3, alpha=order, noise="additive", step=0.1)
    >>> x = model(torch.ones(4, 1), torch.linspace(0.0, 1.0, 3), samples=5, rng=1)
    >>> x.shape
    torch.Size([3, 5, 4, 1])
    >>> x.square().mean().backward()
    >>> bool(order.rho.grad.isfinite())
    True
    """

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
        super().__init__()
        given = {"alpha": alpha is not None, "hurst": hurst is not None}
        self.spec = read_model(model, noise, interpretation, method, step, factors, **given)
        if adjoint not in ("direct", "stored"):
            raise InvalidInputError(f"adjoint={adjoint!r} is unknown; use 'direct' or 'stored'")
        if not callable(drift):
            raise InvalidInputError(f"drift={drift!r} cannot be called; give a module or a function drift(t, y)")
        self.adjoint = adjoint
        self.drift = drift
        if noise == "additive" and not callable(diffusion) and not isinstance(diffusion, nn.Parameter):
            _refuse_foreign("diffusion", diffusion)
            # Numbers keep all their digits; the state has the precision of y0.
            kept = diffusion if isinstance(diffusion, Tensor) else torch.as_tensor(diffusion, dtype=torch.float64)
            self.register_buffer("diffusion", kept)
        else:
            self.diffusion = diffusion
        _refuse_foreign("the order", alpha if hurst is None else hurst)
        self.order = as_order(alpha if hurst is None else hurst)
        if self.order.channels is not None:
            raise ShapeError(f"{'alpha' if hurst is None else 'hurst'} has {self.order.channels} values; give one")
        warn_of_captured(self, drift=drift, diffusion=diffusion)

    def forward(
        self,
        y0: Tensor,
        t: Any,
        *,
        samples: int | None = None,
        args: Sequence[Any] = (),
        rng: Any = None,
        first_path: int = 0,
    ) -> Tensor:
        """Paths at the times ``t``, shape (N, ..., d), or (N, samples, ..., d).

        Parameters
        ----------
        y0 : tensor, shape (..., d)
            Initial values. The functions get all paths along one axis, samples first: path ``s * batch + b``.
        t : tensor or array, shape (N,)
            Increasing times, the start first; each a whole number of steps after it.
        samples : int, optional
            Number of paths per initial value; one by default.
        args : sequence
            Additional arguments of both functions.
        rng : int or torch.Generator, optional
            The same seed gives the same paths; by default new paths each time, from PyTorch's own generator.
        first_path : int
            Index of the first path: processes that share a seed but use different indices get independent paths.
        """
        rows, shape = _rows(y0, read_samples(samples))
        found, _ = self._paths(rows, t, None, args, rng, first_path)
        return found.reshape(found.shape[0], *shape, rows.shape[1])

    def elbo(
        self,
        y0: Tensor,
        t: Any,
        data: Tensor,
        control: Callable[..., Any],
        *,
        scale: Any = None,
        log_prob: Callable[[Tensor, Tensor], Tensor] | None = None,
        samples: int = 1,
        args: Sequence[Any] = (),
        rng: Any = None,
        first_path: int = 0,
    ) -> Tensor:
        r"""A lower bound of the log-likelihood of each series, from controlled paths.

        .. math:: E \left[\sum_i \log p(\text{data}_i \mid X_{t_i}) - \tfrac12 \int |u(t, X)|^2 dt\right],

        where the Brownian motion that drives the paths has the drift u. Its maximum over all u is the log-likelihood
        itself [1].

        Parameters
        ----------
        y0, t, args, rng, first_path
            As in a call.
        data : tensor, shape (N, ..., k)
            Observations at the times ``t``.
        control : nn.Module or callable
            ``control(t, y, *args)`` returns u, of shape ``(paths, m)`` for m noises. For the Markov model
            ``control(t, y, factors, *args)`` with factors of shape ``(paths, m, factors)``: the past of the noise.
        scale : float or tensor, optional
            Standard deviation of independent normal errors of the data; for k = d.
        log_prob : callable, optional
            Instead of ``scale``: ``log_prob(x, data)`` with x of shape (N, samples, ..., d) and data of shape
            (N, 1, ..., k), returning shape (N, samples, ...).
        samples : int
            Number of paths to average over.

        Returns
        -------
        tensor, shape (...)
            One bound for each series.

        References
        ----------
        1. R. Daems, M. Opper, G. Crevecoeur, T. Birdal, "Variational inference for SDEs driven by fractional noise",
           ICLR 2024.
        """
        if (scale is None) == (log_prob is None):
            raise InvalidInputError("give either scale=, the standard deviation of the data, or log_prob=")
        rows, shape = _rows(y0, read_samples(samples))
        if tuple(data.shape[:-1]) != (len(t), *y0.shape[:-1]):
            raise ShapeError(f"data has shape {tuple(data.shape)}; give (N, ..., k), {(len(t), *y0.shape[:-1])} and k")
        found, spent = self._paths(rows, t, control, args, rng, first_path)
        x = found.reshape(found.shape[0], *shape, rows.shape[1])
        target = data[:, None]
        likelihood = log_prob(x, target) if log_prob is not None else _normal(x, target, scale)
        if tuple(likelihood.shape) != (x.shape[0], *shape):
            raise ShapeError(
                f"log_prob returned shape {tuple(likelihood.shape)}; return (N, samples, ...), {(x.shape[0], *shape)}"
            )
        return (likelihood.sum(0) - spent.reshape(shape)).mean(0)

    def _paths(self, rows: Tensor, t: Any, control: Any, args: Any, rng: Any, first_path: int) -> tuple[Tensor, Any]:
        diffusion = self.diffusion
        if self.spec.noise == "additive" and callable(diffusion):
            diffusion = diffusion()
        functions = (self.drift, diffusion, control)
        if rng is None:
            rng = int(torch.randint(2**62, ()))
        along = None
        if self.adjoint == "stored" and torch.is_grad_enabled():
            along = partial(along_regenerated_noise, buffers=Buffers(functions, args))
        return simulate(
            self.spec, functions, rows, t, self.order(), args=tuple(args), rng=rng, first_path=first_path, along=along
        )

    def extra_repr(self) -> str:
        """Model, order, noise and step."""
        name = "alpha" if self.spec.model == "volterra" else "hurst"
        return (
            f"model={self.spec.model!r}, {name}={shown_order(self.order)}, noise={self.spec.noise!r}, "
            f"step={self.spec.step:g}"
        )


def _rows(y0: Any, samples: int | None) -> tuple[Tensor, tuple[int, ...]]:
    """Initial values of all paths along one axis, and the shape of that axis."""
    _refuse_foreign("y0", y0)
    if library_of(y0) != "torch" or y0.ndim < 1 or not y0.is_floating_point():
        raise InvalidInputError(f"y0={y0!r} is not a real PyTorch tensor of shape (..., d); give one")
    shape = tuple(y0.shape[:-1])
    rows = y0.reshape(-1, y0.shape[-1])
    if samples is None:
        return rows, shape
    return rows.repeat(samples, 1), (samples, *shape)


def _normal(x: Tensor, data: Tensor, scale: Any) -> Tensor:
    if data.shape[-1] != x.shape[-1]:
        raise ShapeError(f"data has {data.shape[-1]} components and the state {x.shape[-1]}; give log_prob= instead")
    spread = torch.as_tensor(scale, dtype=x.dtype, device=x.device)
    if bool((spread.detach() <= 0).any()):
        raise InvalidInputError(f"scale={scale!r} is not positive; give the standard deviation of the data")
    errors = (x - data) / spread
    return (-0.5 * errors.square() - spread.log() - 0.5 * math.log(2.0 * math.pi)).sum(-1)


def _refuse_foreign(name: str, value: Any) -> None:
    if library_of(value) == "jax":
        raise PinnedBackendError(f"{name} is an array of JAX; use hpfracc.ml.jax.neural_fsde, or give a tensor")
