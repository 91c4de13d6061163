"""A decision as a block of the page: a summary in words, and a table of all arms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpfracc.cli.demo.blocks import Cell, TableBlock, Words
from hpfracc.engine.selection.decision import Candidate, Decision, title, verdict
from hpfracc.profiling.formats import format_bytes, format_seconds

__all__ = ["DecisionBlock"]

_SOURCES = {"knots": "calibration", "prior": "packaged prior", "none": "nothing"}


@dataclass(frozen=True)
class DecisionBlock:
    """A decision, as :func:`hpfracc.explain` returns it.

    Attributes
    ----------
    decision : Decision
        The decision.
    guess : str
        The arm that would have been chosen before any measurement.
    """

    decision: Decision
    guess: str

    def to_html(self) -> str:
        """Summary and table as HTML."""
        return Words(self._words()).to_html() + self._table().to_html()

    def _words(self) -> list[str]:
        decision = self.decision
        words = [f"{title(decision)}.", f"{verdict(decision)}."]
        rivals = [row for row in decision.candidates if row.refused is None and row.arm != decision.arm]
        if rivals and decision.chosen is not None and math.isfinite(rivals[0].total):
            rival = rivals[0]
            words.append(
                f"The runner-up is `{rival.arm}` with {format_seconds(rival.total)}. The engine switches to another "
                "arm only if it is at least 10\u00a0% faster, so that noise does not change the choice."
            )
        same = self.guess == decision.arm
        words.append(f"Before any measurement, it would have chosen {'the same arm' if same else f'`{self.guess}`'}.")
        return words

    def _table(self) -> TableBlock:
        columns = ("arm", ">predicted", ">interval", ">transfer", ">first call", ">memory", "known from")
        possible = [row for row in self.decision.candidates if row.refused is None]
        refused = [row for row in self.decision.candidates if row.refused is not None]
        notes = [f"`{row.arm}`: {row.refused}" for row in refused]
        return TableBlock(
            "All arms, fastest first; arms that cannot run this call are listed below",
            columns,
            [self._row(row) for row in possible],
            (),
            notes,
        )

    def _row(self, row: Candidate) -> list[Cell]:
        calls = "1 call timed" if row.samples == 1 else f"{row.samples} calls timed"
        known = calls if row.samples else _SOURCES.get(row.source, row.source)
        between = "-"
        if math.isfinite(row.low) and math.isfinite(row.high):
            between = f"{format_seconds(row.low)} to {format_seconds(row.high)}"
        kind = "chosen" if row.arm == self.decision.arm else ""
        texts = (
            row.arm,
            format_seconds(row.total),
            between,
            format_seconds(row.transfer) if row.transfer else "none",
            format_seconds(row.compile) if row.compile else "none",
            format_bytes(row.memory),
            known,
        )
        return [
            Cell(text, kind=f"arm {row.backend} {kind}".strip() if column == 0 else kind)
            for column, text in enumerate(texts)
        ]
