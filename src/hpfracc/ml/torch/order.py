r"""Learnable orders, and the order argument of all layers."""

from __future__ import annotations

import inspect
from typing import Any, final

import torch
from torch import Tensor, nn

from hpfracc import _reading
from hpfracc._arrays import to_host
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.ml.config import LearnedOrder, OrderLike, read_learnable, read_orders

__all__ = [
    "LearnableOrder", "OrderLike", "as_order", "check_tensor", "joined_order", "parameter_groups", "shown_order",
    "split_order",
]  # fmt: skip


@final
class LearnableOrder(LearnedOrder, nn.Module):
    r"""A fractional order within bounds, learned by gradient descent.

    .. math:: \alpha = lo + (hi - lo)\,\sigma(\rho).

    The parameter is :math:`\rho`, in float64; no value is clamped. Near both bounds the slope of the sigmoid vanishes,
    :math:`d\alpha/d\rho = (\alpha - lo)(hi - \alpha)/(hi - lo)`, so an order that starts there learns slowly: start
    away from them.

    Parameters
    ----------
    alpha : float or sequence of float
        Initial value, strictly between the bounds; a sequence gives one order per channel.
    bounds : (float, float)
        Lower and upper bound.

    Notes
    -----
    Bounds within one unit interval, such as (0, 1) or (1, 2), let layers on a GPU run without waiting for the value.
    :func:`parameter_groups` gives orders a learning rate of their own and no weight decay.

    Examples
    --------
    >>> from hpfracc.ml import LearnableOrder
    >>> order = LearnableOrder(0.5, bounds=(0.0, 1.0))
    >>> round(float(order().detach()), 12)
    0.5
    """

    def __init__(self, alpha: Any = 0.5, bounds: tuple[float, float] = (0.0, 1.0)) -> None:
        super().__init__()
        start, low, high = read_learnable(to_host(alpha) if isinstance(alpha, Tensor) else alpha, bounds)
        self.bounds = (low, high)
        self.rho = nn.Parameter(torch.as_tensor(start))

    def forward(self) -> Tensor:
        """The order, float64, on the device of the parameter."""
        low, high = self.bounds
        return low + (high - low) * torch.sigmoid(self.rho.double())

    def extra_repr(self) -> str:
        """The order and its bounds."""
        return f"alpha={shown_order(self)}, bounds={self.bounds}"


class _PlainOrder(nn.Module):
    """An order that is not learned within bounds."""

    alpha: Tensor
    ceiling = None

    @property
    def channels(self) -> int | None:
        return None if self.alpha.ndim == 0 else int(self.alpha.shape[0])

    def extra_repr(self) -> str:
        return f"alpha={shown_order(self)}"


class _FixedOrder(_PlainOrder):
    """A number, or one per channel.

    The buffer ``alpha`` is for state dicts, so that they contain the order; ``value`` is what layers use, because
    weights of plain numbers are cached and the buffer may lie on a GPU or be cast to half precision.
    """

    def __init__(self, alpha: Any) -> None:
        super().__init__()
        self.value: Any = read_orders(alpha)
        self.register_buffer("alpha", torch.as_tensor(self.value, dtype=torch.float64))
        self.register_state_dict_pre_hook(_write_order)
        self.register_load_state_dict_pre_hook(_supply_order)
        self.register_load_state_dict_post_hook(_read_order)

    def forward(self) -> Any:
        return self.value


def _write_order(module: Any, prefix: str, keep_vars: bool) -> None:
    """Before a state dict is made: the order in float64, whatever the module was cast to."""
    module.alpha = torch.as_tensor(module.value, dtype=torch.float64, device=module.alpha.device)


def _supply_order(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before a state dict is loaded: in older ones, which lack fixed orders, the layer's own."""
    _write_order(module, prefix, False)
    state.setdefault(prefix + "alpha", module.alpha)


def _read_order(module: Any, _: Any) -> None:
    """After a state dict is loaded."""
    if not module.alpha.is_meta:
        values = module.alpha.tolist()
        module.value = values if isinstance(values, float) else tuple(values)


class _GivenOrder(_PlainOrder):
    """A parameter or tensor given by the user."""

    def __init__(self, alpha: Tensor) -> None:
        super().__init__()
        if alpha.ndim > 1 or not alpha.numel() or alpha.is_complex():
            told = f"alpha has shape {tuple(alpha.shape)} and dtype {alpha.dtype}"
            raise ShapeError(f"{told}; use one real number, or one for each channel")
        if isinstance(alpha, nn.Parameter):
            self.alpha = alpha
        else:
            self.register_buffer("alpha", alpha)

    def forward(self) -> Tensor:
        return self.alpha.double()


def as_order(alpha: OrderLike) -> Any:
    """The order as a module, from a number (fixed), a tensor or parameter, or a :class:`LearnableOrder`."""
    if isinstance(alpha, LearnableOrder | _PlainOrder):
        return alpha
    return _GivenOrder(alpha) if isinstance(alpha, Tensor) else _FixedOrder(alpha)


def split_order(order: Any) -> tuple[list[Tensor], Any]:
    """The order for an :func:`~hpfracc.ml.torch.opaque.opaque` function: as a tensor, or as numbers."""
    value = order()
    return ([value], None) if isinstance(value, Tensor) else ([], value)


def joined_order(tensors: list[Tensor], value: Any) -> Any:
    """The order that was split off."""
    return tensors[0] if value is None else value


def shown_order(order: Any) -> str:
    """The order as printed."""
    with torch.no_grad():
        value = order()
    if isinstance(value, Tensor):
        value = value.tolist()
    several = isinstance(value, list | tuple)
    return "[" + ", ".join(f"{one:.6g}" for one in value) + "]" if several else f"{value:.6g}"


def parameter_groups(module: nn.Module, *, order_lr: float | None = None, **options: Any) -> list[dict[str, Any]]:
    """Parameters for an optimiser in two groups: orders without weight decay, and all others with ``options``.

    Parameters
    ----------
    module : nn.Module
        The module whose parameters are grouped.
    order_lr : float, optional
        The learning rate of the orders; the optimiser's own by default.
    **options
        Options of the other group, such as ``weight_decay=0.01``: those of any optimiser that is imported.

    Returns
    -------
    list of dict
        The other parameters with ``options``, then the orders.

    Raises
    ------
    InvalidInputError
        If no optimiser has one of the options. PyTorch would ignore it.

    Examples
    --------
    >>> import torch
    >>> from hpfracc.ml import FractionalLayer, LearnableOrder, parameter_groups
    >>> model = FractionalLayer(LearnableOrder(0.5), input_dim=8, output_dim=2)
    >>> optimiser = torch.optim.AdamW(parameter_groups(model, order_lr=0.05, weight_decay=0.01), lr=1e-3)
    >>> [len(group["params"]) for group in optimiser.param_groups]
    [2, 1]
    """
    known = {"lr", "weight_decay"}
    waiting: list[Any] = [torch.optim.Optimizer]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        known |= inspect.signature(kind.__init__).parameters.keys() - {"self", "params", "defaults"}
    if unknown := options.keys() - known:  # optimisers ignore unknown entries of a group
        raise InvalidInputError(
            f"no optimiser has the option {', '.join(map(repr, sorted(unknown)))}; use such as weight_decay=0.01, and "
            "import an optimiser of another library before its options are given"
        )
    _reading.instance("module", module, nn.Module, "hpfracc.ml.FractionalLayer(0.5)")
    kinds = (LearnableOrder, _GivenOrder)
    found = [each.parameters(recurse=False) for each in module.modules() if isinstance(each, kinds)]
    orders = {id(one): one for part in found for one in part}
    others = [one for one in module.parameters() if id(one) not in orders]
    own = {} if order_lr is None else {"lr": order_lr}
    return [{"params": others, **options}, {"params": [*orders.values()], "weight_decay": 0.0, **own}]


def check_tensor(x: Any) -> Tensor:
    """Samples; refuses anything that is not a PyTorch tensor.

    Raises
    ------
    InvalidInputError
        If ``x`` is anything else, such as an array of another library.
    """
    if not isinstance(x, Tensor):
        raise InvalidInputError(
            f"this layer takes a torch tensor, not {type(x).__name__}; convert it, or use hpfracc.ml.jax"
        )
    return x
