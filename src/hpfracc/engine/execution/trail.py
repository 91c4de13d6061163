"""What was decided last, in this thread or task; and what a composite call decided along its way."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from hpfracc.engine.selection.decision import Decision

__all__ = ["Mode", "aside", "composite", "current", "dry_run", "last_decision", "note", "replace_last"]


class Mode:
    """How engine calls behave inside a ``composite`` or ``dry_run`` block, and what was decided last in it.

    The list of decisions is one for the whole block. What was decided last is not: a task or a thread that runs in a
    copy of the context has its own, so a mode is replaced rather than changed.
    """

    __slots__ = ("_block", "decisions", "dry", "last", "outer")

    def __init__(
        self, last: Any, dry: bool, decisions: list[Decision], outer: Any, block: weakref.ref[_Block] | None = None
    ) -> None:
        self.last = last
        self.dry = dry
        self.decisions = decisions
        #: What the variable held before the block.
        self.outer = outer
        self._block = block

    def followed_by(self, last: Any) -> Mode:
        """The same after another decision."""
        return Mode(last, self.dry, self.decisions, self.outer, self._block)

    @property
    def is_over(self) -> bool:
        """Whether the block is gone although it never ended: an interrupt came just before its end."""
        return self._block is not None and self._block() is None


#: One variable, so that a hot call looks up one: the :class:`Mode` of the surrounding block, or without one what was
#: decided last (a bound arm, a decision, or the list of a composite call).
_trail: ContextVar[Any] = ContextVar("hpfracc_trail", default=None)

#: Called on every hot call: C functions, nothing around them. ``replace_last`` is for outside of blocks only.
current = _trail.get
replace_last = _trail.set


def note(last: Any) -> None:
    """Note what was decided last, inside a block or outside."""
    mode = _trail.get()
    _trail.set(mode.followed_by(last) if type(mode) is Mode else last)


def leave(mode: Mode) -> None:
    """Leave a block that is over."""
    _trail.set(mode.outer)


def last_decision() -> Decision | list[Decision] | None:
    """The decision behind the last engine call of this thread or task; None if there was none.

    A task begins with that of the task that started it. A composite call, one that made several engine calls of its own
    (a solver, say), gives the list of them; one that made a single call, its decision.
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
        self._stack: list[tuple[Any, Mode]] = []

    def __enter__(self) -> list[Decision]:
        outer = _trail.get()
        while type(outer) is Mode and outer.is_over:
            outer = outer.outer
        nested = type(outer) is Mode
        last, dry = (outer.last, outer.dry) if nested else (outer, False)
        inner = Mode(last, self.dry or dry, [], outer, weakref.ref(self))
        self._stack.append((outer, inner))
        _trail.set(inner)
        return inner.decisions

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outer, inner = self._stack.pop()
        _trail.set(outer)
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
    token = _trail.set(Mode(outer.last if type(outer) is Mode else outer, False, [], outer))
    try:
        yield
    finally:
        _trail.reset(token)
