"""A rule for samples of a kind met before: nothing is read or checked anew, and its engine call is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc._arrays import is_transformed
from hpfracc.operators._grids import Grid
from hpfracc.operators._order import Order
from hpfracc.operators._rule import Rule
from hpfracc.operators._values import KeptSum, Samples

__all__ = ["Again"]

#: Samples up to which the call itself is kept, with its operands: beyond, what is saved is nothing beside the work.
_MOST_POINTS = 65_536


class Again:
    """A rule that makes one engine call, of a plain order, for samples of one length and dtype.

    Where that call is a sum over the samples themselves, all of it but the samples is kept for the step met last.
    """

    __slots__ = ("_kept", "_order", "_rule")

    def __init__(self, rule: Rule, order: Order) -> None:
        self._rule = rule
        self._order = order
        self._kept: tuple[float, Any, Any] | None = None

    def __call__(self, values: Any, step: float, backend: Any) -> Any:
        """The operator at every point of ``values``."""
        if type(values) is np.ndarray:
            # Non-finite samples are data, and inf - inf is no accident.
            with np.errstate(invalid="ignore"):
                return self._apply(values, step, backend, None)
        return self._apply(values, step, backend, values.device)

    def _apply(self, values: Any, step: float, backend: Any, device: Any) -> Any:
        kept = self._kept
        if kept is not None and kept[0] == step and kept[1] == device and backend is None:
            return kept[2](values)
        calls: list[KeptSum] = []
        result = self._rule.apply(Samples(values, Grid(values.shape[-1], 0.0, step), backend, calls=calls), self._order)
        if len(calls) == 1 and calls[0].result is result and calls[0].signal is values and calls[0].options:
            made = calls[0]
            if values.shape[-1] <= _MOST_POINTS and not any(map(is_transformed, made.after)):
                pass
        return result
