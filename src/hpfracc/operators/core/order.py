"""The order of an operator: a plain number, or a scalar of the caller's library that may carry a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hpfracc._arrays import is_array, is_tracer, library_of, refuse_masked
from hpfracc._reading import number, whole
from hpfracc._xp import NUMPY, Namespace, namespace_of
from hpfracc.errors import InvalidInputError, ShapeError


@dataclass(frozen=True, slots=True)
class Order:
    """A checked order.

    Attributes
    ----------
    value : float or array
        A float if the order is a plain number, else a float64 scalar of ``xp``'s library.
    known : float or None
        Its value, or None if it is traced and unknown.
    ceiling : int
        The integer n with ``n - 1 < alpha <= n``.
    xp : Namespace
        The namespace in which weights of this order are computed.
    """

    value: Any
    known: float | None
    ceiling: int
    xp: Namespace

    @property
    def plain(self) -> bool:
        """Whether it is a number, so that weights of this order can be cached."""
        return self.xp is NUMPY

    @property
    def is_integer(self) -> bool:
        """Whether it is a plain integer."""
        return self.plain and float(self.value).is_integer()

    def negated(self) -> Order:
        """The order of the inverse operation."""
        known = None if self.known is None else -self.known
        return Order(-self.value, known, 1 - self.ceiling if known is None else math.ceil(known), self.xp)

    def guard(self, value: Any) -> Any:
        """``value``, replaced by nan if a traced order lies outside the interval given by ``ceiling``.

        A rule for one interval of orders gives plausible but wrong numbers in the next.
        """
        if self.known is not None:
            return value
        inside = (self.value > self.ceiling - 1) & (self.value <= self.ceiling)
        return self.xp.where(inside, value, math.nan)

    def guard_integral(self, value: Any) -> Any:
        """``value``, replaced by nan if a traced order is negative."""
        return value if self.known is not None else self.xp.where(self.value >= 0.0, value, math.nan)


def read_order(alpha: Any, *, ceiling: int | None = None, name: str = "alpha") -> Order:
    """Check an order and find the interval between integers that contains it.

    Parameters
    ----------
    alpha : number or scalar array
        The gradient of a tensor or JAX array is kept.
    ceiling : int, optional
        The integer n with ``n - 1 < alpha <= n``. By default it is read from ``alpha``; it is needed only if that is
        traced by JAX or mapped by ``torch.func.vmap`` and lies above 1, because its value cannot be read then and 1 is
        assumed. If it is given, the value of a learned order on a GPU is not read either, which would synchronise the
        host with the GPU; results are nan if it does not fit.
    name : str
        Name in errors.
    """
    if alpha is None:
        raise InvalidInputError(
            f"{name} is missing; give the order after the points, as in hf.caputo(f, t, 0.5), or by name: {name}=0.5"
        )
    refuse_masked(alpha, name)
    library = library_of(alpha)
    if is_array(alpha):
        if math.prod(alpha.shape) != 1:
            raise ShapeError(
                f"{name} has shape {tuple(alpha.shape)}; an operator has one order, so give one number. If these are "
                "points or samples, the arguments are swapped: the order comes last, as in hf.caputo(f, t, 0.5)"
            )
        if "complex" in str(alpha.dtype):
            raise InvalidInputError(f"{name} has dtype {alpha.dtype}; orders are real")
        if alpha.shape:
            alpha = alpha.reshape(())
    if library in ("torch", "jax"):
        # Reading a number from a GPU makes the host wait for all queued work.
        hidden = library == "torch" and ceiling is not None and alpha.is_cuda and alpha.requires_grad
        known = None if hidden else _read(alpha, library)
        xp = namespace_of(alpha)
        with xp.scope():
            value: Any = xp.array(alpha)
    else:
        known, value, xp = alpha, number(name, alpha), NUMPY
    known = None if known is None else number(name, known)
    ceiling = None if ceiling is None else whole("ceiling", ceiling)
    found = math.ceil(known) if known is not None else ceiling if ceiling is not None else 1
    if ceiling is not None and found != ceiling:
        raise InvalidInputError(
            f"{name}={known} is outside ({ceiling - 1}, {ceiling}], the orders between the bounds of a learned order "
            f"or those of ceiling={ceiling}. A learned order at the end of its bounds no longer learns: start it "
            "further inside, or give it a smaller learning rate. For any other order leave ceiling out"
        )
    return Order(value, known, int(found), xp)


def _read(alpha: Any, library: str) -> float | None:
    """The value, or None if it is traced or mapped."""
    if library == "jax":
        return None if is_tracer(alpha) else float(alpha)
    try:
        return float(alpha.detach())
    except RuntimeError:  # torch.func.vmap does not allow it
        return None
