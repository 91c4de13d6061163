"""Work on a GPU that repeats and is replayed as one launch, for callers of several engine operations."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from hpfracc._arrays import library_of
from hpfracc._config import adopt, config, current_context, get_settings
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.decision_log import current, record
from hpfracc.engine.execution.prepared import holding
from hpfracc.engine.execution.wrappers import is_wrapped

__all__ = ["ReplayedFunction"]

#: Maximum number of elements of the first array: above, the GPU takes longer than the host's launches.
_MOST = 2**22
#: Of that many calls one runs in the ordinary way, because the engine learns from it; and of that many one is recorded
#: again, with the arm that the engine chooses then.
_ORDINARY_EVERY, _RECORDED_EVERY = 128, 8192


class ReplayedFunction:
    """A differentiable function of tensors, with the settings of its first caller.

    Parameters
    ----------
    function : callable
        Gives one array. It reads no value of an array on the host, and its engine calls keep their kind.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        #: Constants on the GPU that a recording reads.
        self._held: dict[int, Any] = {}
        #: A derivative is computed in another thread, which has other settings.
        self._context = current_context()
        self._decision: Any = None
        self._calls = 0

    def replay(self, *arrays: Any) -> Any:
        """The function of ``arrays``; None where it is not replayed, and the caller computes it."""
        recordings = registry.adapter(library_of(arrays[0])).recordings()
        if recordings is None or not 0 < arrays[0].numel() <= _MOST or is_wrapped() or get_settings().deterministic:
            return None
        self._calls += 1
        if not self._calls % _RECORDED_EVERY:
            recordings.forget(id(self))
        if not self._calls % _ORDINARY_EVERY:
            return None
        result = recordings.run_tracked(id(self), self, arrays)
        if result is not None:
            record(self._decision)
        return result

    def __call__(self, *arrays: Any) -> Any:
        """Compute it, to be recorded or beside a recording."""
        return contextvars.copy_context().run(self._compute, arrays)

    def _compute(self, arrays: tuple[Any, ...]) -> Any:
        adopt(self._context)
        # What is recorded is no trial of another arm.
        with config(exploration_budget=0.0), holding(self._held):
            result = self._function(*arrays)
        self._decision = current()
        return result
