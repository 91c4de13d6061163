"""Everything the engine remembers in this process, forgotten at once: for tests, and for starting over."""

from __future__ import annotations

from hpfracc import _config
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import trail
from hpfracc.engine.execution.catalogue import all_operations
from hpfracc.engine.execution.plan import LOOK, REVIEW
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.execution.timing import pending_times
from hpfracc.engine.memory import budget
from hpfracc.engine.selection import knowledge, selector, wisdom
from hpfracc.profiling import recorder

__all__ = ["reset"]


def reset() -> None:
    """Forget settings, plans, what was learned and what failed; files and users' operations stay."""
    _config.reset()
    for operation in all_operations().values():
        operation.reset()
    knowledge.reset()
    selector.reset()
    registry.reset()
    prepared_operands.reset()
    pending_times.reset()
    LOOK.reset()
    REVIEW.reset()
    budget.get_budget().invalidate()
    hardware.reset()
    wisdom.reset_warnings()
    trail.forget_last()
    recorder.reset()
