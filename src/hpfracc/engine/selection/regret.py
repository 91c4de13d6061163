"""What choosing cost: the time spent against the time the best arm would have taken, as far as can be known."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table

from hpfracc.engine.selection.cost import CostModel
from hpfracc.engine.selection.wording import show_seconds

if TYPE_CHECKING:
    from hpfracc.engine.selection.choose import Option

__all__ = ["Ledger", "OperationRegret", "RegretReport"]

#: A call counts as wrong if its arm is slower than the best by more than this.
_SLOW = 1.1


@dataclass(slots=True)
class _Line:
    """What was run in one slot and bucket: calls per arm, and an option of each to ask the cost model with."""

    options: dict[str, Option] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    compiling: float = 0.0
    exploring: float = 0.0


class Ledger:
    """The books of a chooser. Not locked: its owner is."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Hashable, Hashable], _Line] = {}

    def offered(self, slot: Hashable, bucket: Hashable, options: list[Option]) -> None:
        """Note what could have been run."""
        line = self._line(slot, bucket)
        for option in options:
            line.options[option.arm] = option

    def ran(
        self, slot: Hashable, bucket: Hashable, option: Option, seconds: float, calls: int, compiled: float = 0.0
    ) -> None:
        """Note ``calls`` calls of ``seconds`` each, the first of which took ``compiled`` more."""
        line = self._line(slot, bucket)
        line.options[option.arm] = option
        line.calls[option.arm] = line.calls.get(option.arm, 0) + calls
        line.seconds += seconds * calls
        line.compiling += compiled

    def explored(self, slot: Hashable, bucket: Hashable, seconds: float) -> None:
        """Note time that went into trying an alternative."""
        self._line(slot, bucket).exploring += seconds

    def lines(self) -> list[tuple[Hashable, Hashable, _Line]]:
        """All lines with their slot and bucket."""
        return [(slot, bucket, line) for (slot, bucket), line in self._lines.items()]

    def clear(self) -> None:
        """Tear out all pages."""
        self._lines.clear()

    def _line(self, slot: Hashable, bucket: Hashable) -> _Line:
        line = self._lines.get((slot, bucket))
        if line is None:
            line = self._lines[slot, bucket] = _Line()
        return line
