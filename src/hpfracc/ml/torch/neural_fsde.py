"""Networks as drift and diffusion of a stochastic equation with memory, for PyTorch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hpfracc._config import config
from hpfracc.ml.neural_equations import Along, PathLayer, along_noise
from hpfracc.ml.torch.order import as_order, shown_order
from hpfracc.solvers.sde.stepping import Steps, step_in_blocks
from hpfracc.solvers.tensors.on_torch.buffers import Buffers, warn_of_captured

__all__ = ["NeuralFSDE"]

#: Steps of a block. The memory, 60 numbers per component of the state in the Volterra model, is stored once per block.
BLOCK = 32


@final
class NeuralFSDE(PathLayer, nn.Module):  # type: ignore[misc]
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
    H : float, tensor, nn.Parameter or LearnableOrder
        H of the other models.
    noise : {"additive", "diagonal", "general"}
        The shape of the diffusion.
    step : float
        Length of a step.
    interpretation : {"ito", "stratonovich"}, optional
        Interpretation of multiplicative noise at ``H=0.5``.
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
    Train with :meth:`elbo`, or with :func:`~hpfracc.ml.path_losses.energy_score` or
    :func:`~hpfracc.ml.path_losses.signature_mmd` on samples.

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

    library, _as_order = "torch", staticmethod(as_order)

    def _assign(self, **fields: Any) -> None:
        nn.Module.__init__(self)
        drift, diffusion = fields["drift"], fields.pop("diffusion")
        for name, value in fields.items():
            setattr(self, name, value)
        if self.spec.noise == "additive" and not callable(diffusion) and not isinstance(diffusion, nn.Parameter):
            # Numbers keep all their digits; the state has the precision of y0.
            kept = diffusion if isinstance(diffusion, Tensor) else torch.as_tensor(diffusion, dtype=torch.float64)
            self.register_buffer("diffusion", kept)
        else:
            self.diffusion = diffusion
        warn_of_captured(self, drift=drift, diffusion=diffusion)

    def _recomputed(self, functions: tuple[Any, ...], args: Any) -> tuple[tuple[Any, ...], Along]:
        if not torch.is_grad_enabled():
            return functions, along_noise
        return functions, partial(_along_regenerated_noise, buffers=Buffers(functions, args))

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
        found: Tensor = self._paths(y0, t, None, samples, args, rng=_seeded(rng), first_path=first_path)[0]
        return found

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
        numbers = {"rng": _seeded(rng), "first_path": first_path}
        found: Tensor = self._lower_bound(y0, t, data, control, scale, log_prob, samples, args, **numbers)
        return found

    def extra_repr(self) -> str:
        """Model, order, noise and step."""
        name = "alpha" if self.spec.model == "volterra" else "H"
        return (
            f"model={self.spec.model!r}, {name}={shown_order(self.order)}, noise={self.spec.noise!r}, "
            f"step={self.spec.step:g}"
        )


def _seeded(rng: Any) -> Any:
    """A seed of PyTorch's own generator if none was given."""
    return int(torch.randint(2**62, ())) if rng is None else rng


def _along_regenerated_noise(draw: Callable[[Any], Tensor], steps: Steps, key: Any, *, buffers: Buffers) -> Tensor:
    """The paths along the noise ``draw(key)``, which store neither noise nor activations for the backward pass.

    Steps are taken in blocks, each of which stores its initial state. The backward pass recomputes each block and
    regenerates its noise from the key: random numbers depend on the key, the path and their index alone, so they are
    bitwise the same.

    Parameters
    ----------
    draw : callable
        Returns the noise, shape (steps, paths, noises); if it depends on a learned Hurst index, it is stored.
    steps : Steps
        The equation and its steps.
    key : array
        Key of the random numbers.
    buffers : Buffers
        Buffers of the modules that are called; the backward pass leaves them unchanged.
    """

    def drawn() -> Tensor:
        with _SameArms():
            return draw(key)

    # Drawn outside the blocks, because it may depend on learned parameters.
    held: list[Tensor | None] = [drawn()]
    released = False

    def rows(begin: int, end: int) -> Tensor:
        """The increments of a range of steps, drawn again in the backward pass, which needs the first block last."""
        whole = drawn() if held[0] is None else held[0]
        held[0] = None if released and not begin else whole
        return whole[begin:end]

    found: Tensor = step_in_blocks(steps, rows, BLOCK, partial(_run, buffers))
    assert held[0] is not None
    if not held[0].requires_grad:  # noise that carries a gradient stays in its graph
        held[0], released = None, True
    return found


def _run(buffers: Buffers, function: Callable[..., Any], *tensors: Tensor) -> Any:
    # If the functions use the engine, it must choose the same arms both times.
    return checkpoint(
        function, *tensors, use_reentrant=False, context_fn=lambda: (_SameArms(), _SameArms(buffers.replayed()))
    )


class _SameArms:
    """Deterministic choices within the block, which may be entered again: a graph may be walked twice.

    A plain call of ``config(...)`` would change the whole process.
    """

    def __init__(self, also: Any = None) -> None:
        self._also = contextlib.nullcontext() if also is None else also

    def __enter__(self) -> None:
        self._within = contextlib.ExitStack()
        self._within.enter_context(config(deterministic=True))
        self._within.enter_context(self._also)

    def __exit__(self, *_: object) -> None:
        self._within.close()
