"""A network as the right-hand side of a fractional differential equation, for PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import torch
from torch import nn

from hpfracc._arrays import is_array, to_host
from hpfracc._choices import names_options_of
from hpfracc._reading import numbers
from hpfracc.errors import InvalidInputError
from hpfracc.ml.config import refuse_foreign
from hpfracc.ml.neural_equations import NeuralOptions, read_method, solve_states
from hpfracc.solvers.ode._fdeint import fdeint
from hpfracc.solvers.tensors.on_torch.buffers import warn_of_captured

__all__ = ["NeuralFODE"]


class NeuralFODE(nn.Module):  # type: ignore[misc]
    r"""The solution of :math:`D^\alpha y = f_\theta(t, y)` as a layer, with the gradient of its discrete steps.

    Parameters
    ----------
    func : nn.Module or callable
        ``func(t, y)``, t a tensor without axes; returns the shape of y, for a tuple of states a tuple of their shapes.
    alpha : float, tensor, nn.Parameter, nn.Module, or tuple
        The order of Caputo's derivative: one, or one per component (anything that broadcasts to the state). A parameter
        is learned; so is a module that returns the order when called. For a tuple of states, a tuple of orders.
    method : str, default "pece"
        ``"pece"``, ``"explicit_rectangle"``, ``"implicit_trapezoid"`` or ``"implicit_rectangle"`` with a ``step``;
        ``"adaptive"``, ``"l1"`` or ``"l2_1sigma"`` in addition.
    step : float, optional
        The step; without it the step adapts to ``rtol`` and ``atol`` (``method="adaptive"``).
    adjoint : {"stored", "recomputed", "direct"}, optional
        How the gradient is computed, for the first four methods. All three give the same gradient.

        - ``"stored"``, the default, keeps the states and transposes the steps. It takes the least time and memory: a
          few solutions and the activations of one block. Of real states only. A gradient that is differentiated again
          is that of ``"direct"``.
        - ``"recomputed"`` recomputes blocks of 64 steps. Use it for complex states, and if ``func`` draws random
          numbers or uses tensors that were computed outside it. It keeps about twice as much, and the nodes of
          autograd's graph, about 18 kB for each step.
        - ``"direct"`` leaves everything to autograd, with all activations in memory: for few steps.
    **options
        Further options of :func:`hpfracc.fdeint`, such as ``rtol``, except ``args``.

    Notes
    -----
    A solve that fails raises a :class:`~hpfracc.errors.SolveError`. With ``"pece"`` that happens where a learned order
    becomes so small that the step is no longer stable: take a smaller one, ``"implicit_trapezoid"``, or no step.

    An order can be identified only if ``func`` is constrained: a free network can imitate another order. With
    ``"stored"``, ``func`` has to return the same values when it is called again (no Dropout), and tensors that were
    computed outside it and carry a gradient have to be passed through ``args``. Running statistics, such as those of
    BatchNorm, change only in the forward pass, once per evaluation, with every adjoint. Their modules are found if
    ``func`` is a module or refers to one by name, but not inside other objects. If ``func`` cannot be mapped over t by
    ``torch.func.vmap`` (it has a branch, or calls ``float(t)``), its graph is inspected in each evaluation. An adjoint
    equation with a Caputo derivative that starts at the gradient in y(T) does *not* give the gradient: the correct one
    has a Riemann-Liouville derivative.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml.torch.neural_fode import NeuralFODE
    >>> model = NeuralFODE(lambda t, y: -y, alpha=nn.Parameter(torch.tensor(0.6)), step=0.05)
    >>> y = model(torch.ones(4, 1), torch.linspace(0.0, 1.0, 3))
    >>> y.shape
    torch.Size([3, 4, 1])
    >>> y.sum().backward()
    >>> bool(model.alpha.grad.isfinite())
    True
    """

    @names_options_of(fdeint, leave_out=("args",))
    def __init__(
        self,
        func: Callable[..., Any],
        alpha: Any,
        method: str = "pece",
        step: float | None = None,
        *,
        adjoint: str | None = None,
        **options: Unpack[NeuralOptions],
    ) -> None:
        super().__init__()
        if not callable(func):
            raise InvalidInputError(f"func={func!r} cannot be called; give a module or a function func(t, y)")
        self.method = read_method(method, step, adjoint)
        self.step, self.options = step, options
        self.func = func
        self.parts = len(alpha) if isinstance(alpha, tuple) else 0
        if self.parts:
            self.alphas = nn.ModuleList([_Order(each) for each in alpha])
        else:
            _keep_order(self, alpha)
        warn_of_captured(self, func=func)

    def order(self) -> Any:
        """The order as a tensor, or a tuple of them."""
        if self.parts:
            return tuple(each() for each in self.alphas)
        return self.alpha() if isinstance(self.alpha, nn.Module) else self.alpha

    def forward(self, y0: Any, t: Any, args: Sequence[Any] = (), dy0: Any = None) -> Any:
        """The solution at the times ``t``, shape (N, ..., d); for a tuple of states, a tuple.

        Parameters
        ----------
        y0 : tensor of shape (..., d), or tuple of tensors
            The state at ``t[0]``. The states of a tuple have the same axes except for the last.
        t : tensor or array, shape (N,)
            Increasing times; the first is the start. Those that require a gradient get one.
        args : sequence
            Additional arguments of ``func``.
        dy0 : list, optional
            y'(t0), ..., each like ``y0``, for orders above 1.
        """
        rest = {**self.options, "method": self.method, "step": self.step, "args": tuple(args)}
        return solve_states("torch", self.func, y0, t, self.order(), dy0, rest)

    def extra_repr(self) -> str:
        """Order, method and step."""
        order = "learnable" if self.parts or not isinstance(self.alpha, torch.Tensor) else self.alpha.tolist()
        name = self.method if isinstance(self.method, str) else self.method.name
        return f"alpha={order}, derivative=Caputo, method={name!r}, step={self.step}"


class _Order(nn.Module):  # type: ignore[misc]
    """One order of a tuple."""

    def __init__(self, alpha: Any) -> None:
        super().__init__()
        _keep_order(self, alpha)

    def forward(self) -> torch.Tensor:
        """The order."""
        found: torch.Tensor = self.alpha() if isinstance(self.alpha, nn.Module) else self.alpha
        return found


def _keep_order(module: nn.Module, alpha: Any) -> None:
    """Set ``module.alpha``; a fixed order is a buffer."""
    if isinstance(alpha, nn.Module | nn.Parameter):
        module.alpha = alpha
        return
    refuse_foreign("torch", "neural_fode", "alpha", alpha)
    plain = isinstance(alpha, torch.Tensor) and not alpha.is_complex()
    given = alpha if plain else numbers("alpha", to_host(alpha) if is_array(alpha) else alpha)
    module.register_buffer("alpha", torch.as_tensor(given, dtype=torch.float64))
