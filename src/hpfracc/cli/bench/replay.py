"""Replaying a table of stored times: the code for it lies with the benchmarks of the source tree."""

from __future__ import annotations

from pathlib import Path

from hpfracc.cli.answer import Answer
from hpfracc.errors import MissingDependencyError

__all__ = ["replay"]


def replay(table: Path) -> Answer:
    """Replay ``table`` where the benchmarks can be imported, or say where they are."""
    raise MissingDependencyError(f"{table}")
