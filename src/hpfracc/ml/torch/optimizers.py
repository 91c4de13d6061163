"""Optimisers with fractional memory of past gradients, for PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.ml.moment_filters import ExponentialFilter, flow_filter, moment_filter, read_decay, read_filter_order

__all__ = ["FractionalGradientFlow", "FractionalSGD", "OptimizedFractionalAdam", "updates_together"]

Group = dict[str, Any]
Tensors = list[torch.Tensor]


class _Filtered(Optimizer):  # type: ignore[misc]
    """The common part of the optimisers: closures, groups, and moments kept as sums of exponentials.

    The state of a parameter is ``moments``, with one row for each exponential: ``s_j <- rates[j] s_j + gradient``.
    """

    def add_param_group(self, param_group: Group) -> None:
        """Add a group with its own options, which are checked immediately."""
        super().add_param_group(param_group)
        self._check(self.param_groups[-1])

    def _check(self, group: Group) -> None:
        read_filter_order(group["fractional_order"])
        for name in ("lr", "weight_decay"):
            _reading.number(name, group[name], least=0)

    def _exponentials(self, group: Group) -> ExponentialFilter:
        """The filter of a group."""
        raise NotImplementedError

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors, found: Tensors) -> None:
        """Change parameters by filtered gradients, which are not yet divided by the sum of the weights."""
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; ``closure`` evaluates the loss again and returns it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                parameters = [each for each in group["params"] if each.grad is not None]
                if any(each.grad.is_sparse for each in parameters):
                    raise InvalidInputError(
                        f"{type(self).__name__} takes no sparse gradients; use torch.optim.SparseAdam"
                    )
                if parameters:
                    gradients, by = [_gradient(group, each) for each in parameters], self._exponentials(group)
                    self._move(group, parameters, gradients, self._filter(group, by, parameters, gradients))
        return loss

    def _filter(self, group: Group, by: ExponentialFilter, parameters: Tensors, gradients: Tensors) -> Tensors:
        """Update the moments, by few kernels for many parameters, and return the filtered gradients."""
        count = len(by.rates)
        for each, gradient in zip(parameters, gradients, strict=True):
            state = self.state[each]
            if "moments" not in state:
                state["moments"], state["step"] = gradient.new_zeros((count, *gradient.shape)), 0
            elif state["moments"].shape[0] != count:
                raise InvalidInputError(
                    f"fractional_order={group['fractional_order']} needs {count} moments and the state has "
                    f"{state['moments'].shape[0]}: the order of a group cannot change after its first step"
                )
            state["step"] += 1
        moments, filtered = [self.state[each]["moments"] for each in parameters], list[torch.Tensor]()
        if updates_together(group, gradients, count):
            for rate, weight, *parts in zip(by.rates, by.weights, *(each.unbind(0) for each in moments), strict=True):
                torch._foreach_mul_(parts, rate)
                torch._foreach_add_(parts, gradients)
                if filtered:
                    torch._foreach_add_(filtered, parts, alpha=weight)
                else:
                    filtered = list(torch._foreach_mul(parts, weight))
            return filtered
        for moment, gradient in zip(moments, gradients, strict=True):
            rates, weights = moment.new_tensor(by.rates), moment.new_tensor(by.weights)
            torch.addcmul(gradient, rates.reshape(count, *(1,) * gradient.ndim), moment, out=moment)
            filtered.append((weights @ moment.reshape(count, -1)).reshape(gradient.shape))
        return filtered


def _options(given: Group) -> Group:
    """The arguments of an optimiser that are options of its groups, from all local names."""
    return {name: value for name, value in given.items() if name not in ("self", "params", "__class__")}


def _gradient(group: Group, parameter: torch.Tensor) -> torch.Tensor:
    """A real view, with sign and weight decay applied."""
    gradient: Any = -parameter.grad if group["maximize"] else parameter.grad
    return _real(gradient.add(parameter, alpha=group["weight_decay"]) if group["weight_decay"] else gradient)


class OptimizedFractionalAdam(_Filtered):
    r"""Adam whose first moment is filtered with fractional memory.

    .. math::
        m_n = \frac{\sum_{k<n} g_k \nabla_{n-k}}{\sum_{k<n} g_k}, \quad
        g_k = (1-\beta_1)^a \frac{(a)_k}{k!} \beta_1^k, \quad
        \theta_n = \theta_{n-1} - \eta \frac{m_n}{\sqrt{v_n} + \epsilon}

    :math:`g_k` are the weights of :math:`((1-\beta_1)/(1-\beta_1 z^{-1}))^a`: order 1 is Adam, order 0 is Adam without
    momentum. In between, the newest gradients weigh more and old ones fade more slowly than with any other
    :math:`\beta_1`. The weights are represented by at most six exponentials (to 1e-6 for :math:`\beta_1 = 0.9`), so the
    state is at most 3.5 times that of Adam. The gradient itself is not replaced by a fractional derivative: a Caputo
    gradient in parameter space vanishes at points other than the minima.

    Parameters
    ----------
    params : iterable
        Parameters or groups, as for every ``torch.optim.Optimizer``.
    lr : float, default 0.001
        :math:`\eta`.
    fractional_order : float, default 0.5
        a, from 0 to 1.
    betas : pair of float
        :math:`\beta_1` and the decay of the second moment v, as in Adam.
    eps : float
        :math:`\epsilon`.
    weight_decay : float
        Factor of the L2 penalty that is added to the gradient.
    maximize : bool
        Whether to maximise instead of minimise.
    foreach : bool, optional
        Whether all parameters of a group are updated by shared kernels; by default on a GPU if there are at least as
        many parameters as exponentials.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml.optimized_optimizers import OptimizedFractionalAdam
    >>> x = torch.zeros(1, requires_grad=True)
    >>> optimizer = OptimizedFractionalAdam([x], lr=0.05, fractional_order=0.5)
    >>> for _ in range(500):
    ...     optimizer.zero_grad()
    ...     loss = ((x - 1.0) ** 2).sum()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> bool(abs(x.item() - 1.0) < 1e-3)
    True
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        fractional_order: float = 0.5,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(params, _options(locals()))

    def _check(self, group: Group) -> None:
        super()._check(group)
        _reading.number("eps", group["eps"], least=0)
        for place, each in enumerate(group["betas"]):
            read_decay(f"betas[{place}]", each)

    def _exponentials(self, group: Group) -> ExponentialFilter:
        return moment_filter(read_filter_order(group["fractional_order"]), float(group["betas"][0]))

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors, found: Tensors) -> None:
        by, second, states = self._exponentials(group), group["betas"][1], [self.state[each] for each in parameters]
        for state, gradient in zip(states, gradients, strict=True):
            if "exp_avg_sq" not in state:
                state["exp_avg_sq"] = torch.zeros_like(gradient)
        squares, targets = [state["exp_avg_sq"] for state in states], [_real(each) for each in parameters]
        sizes = [-float(group["lr"]) / by.total(int(state["step"])) for state in states]
        corrections = [math.sqrt(1.0 - second ** int(state["step"])) for state in states]
        if updates_together(group, gradients):
            torch._foreach_mul_(squares, second)
            torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - second)
            below = list(torch._foreach_sqrt(squares))
            torch._foreach_div_(below, corrections)
            torch._foreach_add_(below, group["eps"])
            torch._foreach_addcdiv_(targets, found, below, scalars=sizes)
            return
        for target, square, gradient, moment, size, correction in zip(
            targets, squares, gradients, found, sizes, corrections, strict=True
        ):
            square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
            target.addcdiv_(moment, square.sqrt().div_(correction).add_(group["eps"]), value=size)


class FractionalSGD(_Filtered):
    r"""Gradient descent with fractional momentum: the filter of :class:`OptimizedFractionalAdam` alone.

    :math:`\theta_n = \theta_{n-1} - \eta m_n`. Order 1 is an exponential average of gradients, normalised from the
    first step on; order 0 is plain gradient descent.

    Parameters
    ----------
    params : iterable
        Parameters or groups.
    lr : float, default 0.01
        :math:`\eta`.
    fractional_order : float, default 0.5
        From 0 to 1.
    momentum : float, default 0.9
        The decay of the filter.
    weight_decay, maximize, foreach
        As for :class:`OptimizedFractionalAdam`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        fractional_order: float = 0.5,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(params, _options(locals()))

    def _check(self, group: Group) -> None:
        super()._check(group)
        read_decay("momentum", group["momentum"])

    def _exponentials(self, group: Group) -> ExponentialFilter:
        return moment_filter(read_filter_order(group["fractional_order"]), float(group["momentum"]))

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors, found: Tensors) -> None:
        by = self._exponentials(group)
        for each, moment in zip(parameters, found, strict=True):
            _real(each).add_(moment, alpha=-group["lr"] / by.total(int(self.state[each]["step"])))


class FractionalGradientFlow(_Filtered):
    r"""The gradient flow :math:`D^a \theta = -\eta \nabla L(\theta)`, by the explicit product rectangle rule.

    .. math:: \theta_n = \theta_0 - \frac{\eta}{\Gamma(a+1)} \sum_{k=0}^{n-1} \big((k+1)^a - k^a\big) \nabla_{n-1-k}

    where a step is the unit of time. Its stationary points are those of L, and order 1 is gradient descent. On a
    quadratic of curvature :math:`\lambda` it follows :math:`\theta_0 E_a(-\eta\lambda n^a)`, whose tail is algebraic:
    on strongly convex problems it is *slower* than gradient descent. It remembers all gradients, as 20 to 30
    exponentials and the initial parameters: far more state than Adam.

    Parameters
    ----------
    params : iterable
        Parameters or groups.
    lr : float, default 0.01
        :math:`\eta`; stable if :math:`\eta \lambda` is below about 1.
    fractional_order : float, default 0.5
        Above 0, up to 1.
    horizon : int, default 100000
        Number of steps over which the exponentials approximate the weights to 1e-6.
    weight_decay, maximize, foreach
        As for :class:`OptimizedFractionalAdam`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        fractional_order: float = 0.5,
        horizon: int = 100_000,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(params, _options(locals()))

    def _check(self, group: Group) -> None:
        super()._check(group)
        read_filter_order(group["fractional_order"], flow=True)
        _reading.whole("horizon", group["horizon"], least=1)

    def _exponentials(self, group: Group) -> ExponentialFilter:
        return flow_filter(read_filter_order(group["fractional_order"]), group["horizon"])

    def _move(self, group: Group, parameters: Tensors, gradients: Tensors, found: Tensors) -> None:
        for each, moment in zip(parameters, found, strict=True):
            if "first" not in self.state[each]:
                self.state[each]["first"] = _real(each).clone()
            _real(each).copy_(self.state[each]["first"] - group["lr"] * moment)


def _real(values: torch.Tensor) -> torch.Tensor:
    """A real view of complex values; other values unchanged."""
    return torch.view_as_real(values) if values.is_complex() else values


def updates_together(group: Group, tensors: list[torch.Tensor], exponentials: int = 1) -> bool:
    """Whether to update all tensors by shared kernels, three for each exponential.

    On a processor most steps take longer with them. On a GPU they pay if there are at least as many tensors as
    exponentials (benchmarks/optimizers.py).
    """
    wish = group["foreach"]
    if wish is not None:
        return bool(wish)
    return len(tensors) >= max(2, exponentials) and all(each.is_cuda for each in tensors)
