"""Repeated work on a GPU that is replayed as one launch, for callers of several engine operations."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from hpfracc._arrays import library_of
from hpfracc._config import adopt, config, current_context, get_settings
from hpfracc._torch_transforms import is_deterministic
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.decision_log import current, record
from hpfracc.engine.execution.prepared import holding
from hpfracc.engine.execution.wrappers import calls_are_wrapped

__all__ = ["ReplayedFunction"]

#: Maximum number of elements of the first array. With more, the GPU takes longer than the host's launches.
_MAX = 2**22
#: Every 128th call runs normally, so that the engine can learn from it. Every 8192nd call drops the recording, and the
#: next one is made with the arm that the engine chooses then.
_ORDINARY_EVERY, _RECORDED_EVERY = 128, 8192


class ReplayedFunction:
    """A differentiable function of tensors, with the settings of its first caller.

    Parameters
    ----------
    function : callable
        Returns one array. It reads no values of arrays on the host, and its engine calls always have the same shapes
        and dtypes.
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
        """The function of ``arrays``; None if it is not replayed, and the caller has to compute it."""
        recordings = registry.adapter(library_of(arrays[0])).recordings()
        if (
            recordings is None
            or not 0 < arrays[0].numel() <= _MAX
            or calls_are_wrapped()
            or get_settings().deterministic
            or is_deterministic()
        ):
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
        """Compute it without replay; also called while it is recorded."""
        return contextvars.copy_context().run(self._compute, arrays)

    def _compute(self, arrays: tuple[Any, ...]) -> Any:
        adopt(self._context)
        # Do not explore while recording.
        with config(exploration_budget=0.0), holding(self._held):
            result = self._function(*arrays)
        self._decision = current()
        return result
