"""What was decided last, in this thread or task; and what a composite call decided along its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from hpfracc.engine.selection.decision import Decision

__all__ = ["Mode", "aside", "composite", "current", "dry_run", "last_decision", "note", "replace_last"]


class Mode:
    """How engine calls behave inside a ``composite`` or ``dry_run`` block, and what they decided."""

    __slots__ = ("decisions", "dry", "last")

    def __init__(self, last: Any, dry: bool) -> None:
        self.decisions: list[Decision] = []
        self.dry = dry
        self.last = last


#: One variable, so that a hot call looks up one: the :class:`Mode` of the surrounding block, or without one what was
#: decided last (a plan, a decision, or the list of a composite call).
_trail: ContextVar[Any] = ContextVar("hpfracc_trail", default=None)

#: Called on every hot call: C functions, nothing around them. ``replace_last`` is for outside of blocks only.
current = _trail.get
replace_last = _trail.set


def note(last: Any) -> None:
    """Note what was decided last, inside a block or outside."""
    mode = _trail.get()
    if type(mode) is Mode:
        mode.last = last
    else:
        _trail.set(last)


def last_decision() -> Decision | list[Decision] | None:
    """The decision behind the last engine call of this thread or task; None if there was none.

    A composite call, one that made several engine calls of its own (a solver, say), gives the list of them; one that
    made a single call, its decision.
    """
    last = _trail.get()
    if type(last) is Mode:
        last = last.last
    if isinstance(last, list) and len(last) == 1:
        last = last[0]
    if last is None or isinstance(last, list | Decision):
        return last
    decision: Decision = last.decision
    return decision


def forget_last() -> None:
    """As if nothing had been decided yet."""
    _trail.set(None)


class _Block:
    """A block with a mode of its own, whose decisions go to the surrounding block as well."""

    dry = False

    def __init__(self) -> None:
        self._stack: list[tuple[Any, Mode, Token[Any]]] = []

    def __enter__(self) -> list[Decision]:
        outer = _trail.get()
        nested = type(outer) is Mode
        inner = Mode(outer.last if nested else outer, self.dry or (nested and outer.dry))
        self._stack.append((outer, inner, _trail.set(inner)))
        return inner.decisions

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outer, inner, token = self._stack.pop()
        _trail.reset(token)
        if type(outer) is Mode:
            outer.decisions.extend(inner.decisions)
        if not self.dry:
            note(list(inner.decisions))


class composite(_Block):
    """Collect the decisions made inside the block: afterwards :func:`last_decision` gives their list."""


class dry_run(_Block):
    """Inside the block engine calls decide but do not compute: each hands back zeros of the right kind."""

    dry = True


@contextmanager
def aside() -> Iterator[None]:
    """Inside the block engine calls compute, even in a dry run, and leave no trace: for weights that are kept.

    What a dry run puts in their place would otherwise be kept as well.
    """
    outer = _trail.get()
    token = _trail.set(Mode(outer.last if type(outer) is Mode else outer, dry=False))
    try:
        yield
    finally:
        _trail.reset(token)
