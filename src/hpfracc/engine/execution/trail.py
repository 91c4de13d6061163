"""What was decided last, in this thread or task; and what a composite call decided along its way."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from hpfracc.engine.selection.decision import Decision

__all__ = ["composite", "dry_run", "last_decision", "mode", "note"]


@dataclass(frozen=True, slots=True)
class Mode:
    """How engine calls behave inside a ``composite`` or ``dry_run`` block."""

    decisions: list[Decision] = field(default_factory=list)
    dry: bool = False


#: The last holder of a decision, or the list of a composite call once it has ended.
_last: ContextVar[Any] = ContextVar("hpfracc_last_decision", default=None)
_mode: ContextVar[Mode | None] = ContextVar("hpfracc_mode", default=None)

#: Called on every hot call: C functions, nothing around them.
note = _last.set
mode = _mode.get


def last_decision() -> Decision | list[Decision] | None:
    """The decision behind the last engine call of this thread or task; None if there was none.

    A composite call, one that made several engine calls of its own (a solver, say), gives the list of them.
    """
    last = _last.get()
    if last is None or isinstance(last, list | Decision):
        return last
    decision: Decision = last.decision
    return decision


def forget_last() -> None:
    """As if nothing had been decided yet."""
    _last.set(None)


class _Block:
    """A block with a mode of its own, whose decisions go to the surrounding block as well."""

    dry = False

    def __init__(self) -> None:
        self._stack: list[tuple[Mode | None, Mode, Token[Mode | None]]] = []

    def __enter__(self) -> list[Decision]:
        outer = _mode.get()
        inner = Mode(dry=self.dry or (outer is not None and outer.dry))
        self._stack.append((outer, inner, _mode.set(inner)))
        return inner.decisions

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outer, inner, token = self._stack.pop()
        _mode.reset(token)
        if outer is not None:
            outer.decisions.extend(inner.decisions)
        if not self.dry:
            _last.set(list(inner.decisions))


class composite(_Block):
    """Collect the decisions made inside the block: afterwards :func:`last_decision` gives their list."""


class dry_run(_Block):
    """Inside the block engine calls decide but do not compute: each hands back zeros of the right kind."""

    dry = True
