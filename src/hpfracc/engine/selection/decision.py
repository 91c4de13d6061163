"""A decision: the chosen arm, all candidates, and their display.

A table in a terminal, HTML in a notebook, and a dict for programs.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hpfracc._reading import format_bytes, format_seconds
from hpfracc.engine.workload import Bucket


@dataclass(frozen=True, slots=True)
class Candidate:
    """One arm in a decision: its predicted cost, or why it was refused.

    Times are in seconds, ``nan`` if unknown.
    """

    arm: str
    backend: str
    device: str = "cpu"
    refused: str | None = None
    seconds: float = math.nan
    low: float = math.nan
    high: float = math.nan
    transfer: float = 0.0
    compile: float = 0.0
    total: float = math.nan
    memory: int = 0
    samples: int = 0
    source: str = "none"

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values, with None for unknown numbers."""
        return plain_values(self)


@dataclass(frozen=True, slots=True)
class Fallback:
    """An arm that was chosen and failed, and its error."""

    arm: str
    kind: str
    error: str


@dataclass(frozen=True)
class Decision:
    """The arm chosen for a call, and why.

    Attributes
    ----------
    operation, arm, backend, device, algorithm : str
        The operation, and what runs it.
    reason : str
        One sentence.
    wish : str or None
        What requested this backend; None if the engine chose it.
    shape, dtype, bucket, start
        Properties of the call; ``start`` is where the operands were, ``"host"`` or ``"device"``.
    rows : callable
        Computes ``candidates`` on first access, because most decisions are never inspected.
    fallbacks : tuple of Fallback
        Arms that failed before this one succeeded.
    explored : bool
        Whether this arm was tried to learn about it, rather than expected to be fastest.
    chunks : int
        Number of chunks: more than 1 if the call did not fit into memory.
    parts : tuple of Decision
        For a composite call with several engine calls (such as a solver): the decisions of all of them, of which this
        is the last. Empty for a single engine call. Iterating over a decision, its length and an index give the parts,
        or the decision itself.
    """

    operation: str
    arm: str
    backend: str
    device: str
    algorithm: str
    reason: str
    shape: tuple[int, ...]
    dtype: str
    bucket: Bucket
    start: str
    library: str = "numpy"
    wish: str | None = None
    rows: Callable[[], tuple[Candidate, ...]] = field(default=tuple, repr=False, compare=False)
    fallbacks: tuple[Fallback, ...] = ()
    explored: bool = False
    chunks: int = 1
    parts: tuple[Decision, ...] = field(default=(), repr=False, compare=False)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.parts or (self,))

    def __len__(self) -> int:
        return len(self.parts) or 1

    def __getitem__(self, index: int) -> Decision:
        return (self.parts or (self,))[index]

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every arm; refused ones with the reason."""
        return self.rows()

    @property
    def chosen(self) -> Candidate | None:
        """The row of the chosen arm."""
        return next((row for row in self.candidates if row.arm == self.arm), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; with ``parts`` for a composite call."""
        names = (
            "operation", "arm", "backend", "device", "algorithm", "reason", "wish", "shape", "dtype", "bucket", "start",
            "library", "explored", "chunks",
        )  # fmt: skip
        values = {name: getattr(self, name) for name in names}
        return {
            **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
            "candidates": [row.to_dict() for row in self.candidates],
            "fallbacks": [plain_values(row) for row in self.fallbacks],
            **({"parts": [part.to_dict() for part in self.parts]} if self.parts else {}),
        }


def join_decisions(decisions: Sequence[Decision]) -> Decision | None:
    """The decision of a composite call with these engine calls; None if it made none."""
    if len(decisions) < 2:
        return decisions[0] if decisions else None
    return replace(decisions[-1], parts=tuple(decisions))


def plain_values(row: Any) -> dict[str, Any]:
    """The fields of a dataclass with slots, with None for numbers that are not finite."""
    values = ((name, getattr(row, name)) for name in row.__slots__)
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values}


_COLUMNS = {
    "": "word", "arm": "word", "predicted": "number", "interval": "number", "transfer": "number",
    "first call": "number", "memory": "number", "samples": "number", "from": "word",
}  # fmt: skip


class Explanation:
    """Why the engine chooses an arm.

    Print it, show it in a notebook, or use :meth:`to_dict`. ``decisions`` has one entry for a plain call, and one for
    each engine call of a composite one.
    """

    def __init__(self, decisions: Iterable[Decision]) -> None:
        self.decisions: tuple[Decision, ...] = tuple(decisions)

    @property
    def decision(self) -> Decision:
        """The first decision."""
        return self.decisions[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values of the decision, or ``{"decisions": [...]}`` for a composite call."""
        if len(self.decisions) == 1:
            return self.decisions[0].to_dict()
        return {"decisions": [decision.to_dict() for decision in self.decisions]}

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*(part for decision in self.decisions for part in _render(decision)))

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(_html(decision) for decision in self.decisions)


def as_text(renderable: Any) -> str:
    """``renderable`` as rich prints it, in plain text."""
    from rich.console import Console

    out = io.StringIO()
    # In a notebook, rich would otherwise display it and write nothing to the file.
    Console(file=out, width=140, color_system=None, force_jupyter=False).print(renderable)
    return out.getvalue().rstrip()


def title(decision: Decision) -> str:
    """The call, in one line."""
    shape = " x ".join(map(str, decision.shape)) or "scalar"
    where = "on the host" if decision.start == "host" else f"on {decision.device}"
    return f"{decision.operation}: {shape} {decision.dtype}, {decision.library} operands {where}"


def verdict(decision: Decision) -> str:
    """The decision, in one line."""
    return decision.reason if decision.reason.startswith(decision.arm) else f"{decision.arm}: {decision.reason}"


def _cells(decision: Decision, row: Candidate) -> Sequence[str]:
    interval = "-"
    if math.isfinite(row.low) and math.isfinite(row.high):
        interval = f"{format_seconds(row.low)} .. {format_seconds(row.high)}"
    times = format_seconds(row.total), interval, format_seconds(row.transfer), format_seconds(row.compile)
    chosen = ">" if row.arm == decision.arm else ""
    return chosen, row.arm, *times, format_bytes(row.memory), str(row.samples), row.source


def _render(decision: Decision) -> Iterator[Any]:
    from rich.table import Table
    from rich.text import Text

    from hpfracc.profiling.formats import make_table

    table, refused = make_table(title(decision), **_COLUMNS), Table.grid(padding=(0, 2))
    for row in decision.candidates:
        if row.refused is not None:
            refused.add_row(Text(f"  {row.arm}", style="dim"), Text(row.refused, style="dim", overflow="fold"))
            continue
        style = "bold green" if row.arm == decision.arm else None
        table.add_row(*map(Text, _cells(decision, row)), style=style)
    yield table
    yield Text(verdict(decision), style="bold")
    for failed in decision.fallbacks:
        yield Text(f"  fell back from {failed.arm} ({failed.kind}): {failed.error}", style="yellow")
    if refused.row_count:
        yield Text("refused:", style="dim")
        yield refused


def _html(decision: Decision) -> str:
    from hpfracc._results import as_html

    failed = {f"fell back from {row.arm}": f"{row.kind}: {row.error}" for row in decision.fallbacks}
    rows = [_cells(decision, row) if row.refused is None else ("", row.arm, row.refused) for row in decision.candidates]
    return as_html(title(decision), {"decision": verdict(decision)} | failed, rows=[tuple(_COLUMNS), *rows])
