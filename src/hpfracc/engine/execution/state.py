"""Reset of the engine's state in this process, for tests and for starting over."""

from __future__ import annotations

from hpfracc import _config
from hpfracc.engine import hardware, workers
from hpfracc.engine.backends import registry
from hpfracc.engine.execution import decision_log
from hpfracc.engine.execution.bind import pending_times
from hpfracc.engine.execution.operation import all_operations
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.engine.execution.pressure import monitor, pool
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.memory import budget
from hpfracc.engine.memory.buffers import host_buffers
from hpfracc.engine.memory.host import memory_spans
from hpfracc.engine.selection import knowledge, selector, wisdom
from hpfracc.engine.selection.call_memory import forecasts
from hpfracc.profiling import recorder


def reset() -> None:
    """Discard settings, plans, knowledge and failures; files and users' operations are kept."""
    _config.reset()
    for operation in all_operations().values():
        operation.reset()
    knowledge.reset()
    selector.reset()
    registry.reset()
    prepared_operands.reset()
    pending_times.reset()
    for device in budget.get_budget().caps():
        budget.get_budget().cap(device, None)
    budget.get_budget().invalidate()
    workers.limit_cores(None)
    forecasts.clear()
    monitor.reset()
    memory_spans.clear()
    ladder.reset()
    pool.reset()
    host_buffers.reset()
    hardware.reset()
    wisdom.reset_warnings()
    decision_log.forget_last()
    recorder.reset()
