"""The last decision of this thread or task, and the decisions of a composite call."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from hpfracc.engine.selection.decision import Decision, join_decisions


@dataclass(slots=True)
class Mode:
    """How engine calls behave inside a ``composite`` or ``dry_run`` block, and the last decision in it.

    The list of decisions is shared by the whole block. The last decision is not: a task or a thread that runs in a copy
    of the context has its own, so a mode is replaced, not changed.
    """

    last: Any
    dry: bool
    decisions: list[Decision]
    #: The value of the variable before the block.
    outer: Any
    block: weakref.ref[_ModeBlock] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the block was left without its exit code, because of an interrupt just before its end."""
        return self.block is not None and self.block() is None


#: One variable, so that a settled call needs one lookup: the :class:`Mode` of the surrounding block, or outside of
#: blocks the last decision (a bound arm, a decision, or the list of a composite call).
_log: ContextVar[Any] = ContextVar("hpfracc_decision_log", default=None)

#: Called by every settled call: a C function.
current = _log.get


def record(last: Any) -> None:
    """Record the last decision, inside a block or outside."""
    mode = _log.get()
    if type(mode) is Mode:
        last = Mode(last, mode.dry, mode.decisions, mode.outer, mode.block)
    _log.set(last)


def current_mode() -> Mode | None:
    """The mode of the surrounding block, None outside of blocks. Interrupted blocks are left first."""
    mode = _log.get()
    while type(mode) is Mode and mode.is_over:
        mode = mode.outer
        _log.set(mode)
    return mode if type(mode) is Mode else None


def last_decision() -> Decision | None:
    """The decision behind the last engine call of this thread or task; None if there was none.

    A task starts with the last decision of the task that created it. After a composite call with several engine calls
    (such as a solver) ``parts`` are the decisions of all of them.

    See Also
    --------
    explain, hpfracc.engine.Decision

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> half = hf.caputo(t, t, 0.5)
    >>> hf.last_decision().operation
    'causal_convolution'
    """
    last = last_recorded()
    return join_decisions(last) if isinstance(last, list) else last


def last_recorded() -> Decision | list[Decision] | None:
    """What was recorded last: a decision, or the list of a composite call with several engine calls or none."""
    last = _log.get()
    if type(last) is Mode:
        last = last.last
    if isinstance(last, list) and len(last) == 1:
        last = last[0]
    if last is None or isinstance(last, list | Decision):
        return last
    decision: Decision = last.decision
    return decision


def forget_last() -> None:
    """Discard the last decision."""
    _log.set(None)


class _ModeBlock:
    """A block with a mode of its own, whose decisions go to the surrounding block as well."""

    dry = False

    def __init__(self) -> None:
        self._stack: list[tuple[Any, Mode]] = []

    def __enter__(self) -> list[Decision]:
        outer = current_mode() or _log.get()
        last, dry = (outer.last, outer.dry) if type(outer) is Mode else (outer, False)
        inner = Mode(last, self.dry or dry, [], outer, weakref.ref(self))
        self._stack.append((outer, inner))
        _log.set(inner)
        return inner.decisions

    def __exit__(self, *error: object) -> None:
        outer, inner = self._stack.pop()
        _log.set(outer)
        if type(outer) is Mode:
            outer.decisions.extend(inner.decisions)
        if not self.dry:
            record(list(inner.decisions))


class composite(_ModeBlock):
    """Collect the decisions inside the block, which are then the ``parts`` of :func:`last_decision`."""


class dry_run(_ModeBlock):
    """Inside the block engine calls decide but do not compute; each returns zeros of the right shape and type."""

    dry = True


@contextmanager
def unlogged() -> Iterator[None]:
    """Inside the block engine calls compute, even in a dry run, and are not logged. For weights that are cached.

    Otherwise the zeros of a dry run would be cached.
    """
    outer = _log.get()
    token = _log.set(Mode(outer.last if type(outer) is Mode else outer, False, [], outer))
    try:
        yield
    finally:
        _log.reset(token)
