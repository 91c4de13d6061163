"""The worker plugin, which prepares every worker of a cluster, including those that start later or are restarted."""

from __future__ import annotations

import functools
import logging
import sys
import zlib
from typing import Any
from weakref import WeakKeyDictionary, ref

from hpfracc._config import Settings, get_settings
from hpfracc._optional import import_optional
from hpfracc.distributed import worker as workers
from hpfracc.distributed.tasks import job_of
from hpfracc.errors import ClusterError, HpfraccError

__all__ = ["current_client", "forget_job", "prepare_workers", "register_job", "send_records", "tell_workers"]

logger = logging.getLogger("hpfracc.distributed")

_NAME = "hpfracc"
#: The records with which the workers of a client were prepared.
_prepared: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
#: The settings with which a client adds the records of tasks that it did not submit one by one.
_listening: WeakKeyDictionary[Any, Settings] = WeakKeyDictionary()
#: Topic of the cluster events that carry records.
_TOPIC = "hpfracc-learned"
#: Whether this worker sends its records.
_sends = False


@functools.cache
def _plugin_class() -> type:
    """The class of the plugins; created on first use, because its base class is Dask's."""
    from distributed import WorkerPlugin

    class WorkerSetup(WorkerPlugin):
        """Sets the engine's cores, memory, GPU and wisdom, compares versions, and caches a large job."""

        def __init__(self, job: str | None, payload: bytes | None, known: bytes = b"") -> None:
            self.name = _NAME if job is None else f"{_NAME}-{job}"
            self.job, self.payload, self.known = job, payload, known
            self.versions, self.process = workers.versions(), workers.process_id()

        def setup(self, worker: Any) -> None:
            _set_up(self, worker)

    return WorkerSetup


def _set_up(plugin: Any, worker: Any) -> None:
    workers.compare_versions(plugin.versions, str(worker.address))
    workers.use_own_gpu(worker)
    workers.adopt_limits(worker)
    global _sends
    _sends = workers.start_sharing(plugin.process)
    if plugin.known and _sends:
        workers.merge_records(plugin.known)
    if plugin.payload is not None:
        job_of(plugin.job, plugin.payload)


def current_client() -> Any:
    """The default Dask client of this process, or None; never an asynchronous one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:  # none
        return None
    return None if client.asynchronous or client.status != "running" else client


def prepare_workers() -> None:
    """Prepare the workers of the default client, once, for tasks of Dask arrays, which it does not submit itself."""
    client = current_client()
    if client is None or workers.dask_worker() is not None:
        return
    if client not in _prepared:
        register_job(client, "", None)
    _listen(client)


def _listen(client: Any) -> None:
    """Receive the records of tasks of Dask arrays, as cluster events."""
    known = client in _listening
    _listening[client] = get_settings()
    if not known and not client.asynchronous:
        client.subscribe_topic(_TOPIC, functools.partial(_take, ref(client)))


def _take(client: Any, event: Any) -> None:
    """Handle an event, i.e. its time and its message. Called in the thread of the client's event loop."""
    settings = _listening.get(client())
    try:
        if settings is not None:
            workers.merge_records(bytes(event[1]), settings)
    except (HpfraccError, OSError, ValueError, TypeError, zlib.error) as error:
        logger.info("what workers learned could not be added (%s: %s)", type(error).__name__, error)


def send_records() -> None:
    """In a task of a Dask array: send the records of the engine to the clients of the cluster."""
    worker = workers.dask_worker() if _sends else None
    message = b"" if worker is None else workers.take_records()
    if worker is not None and message:
        worker.log_event(_TOPIC, message)


def register_job(client: Any, name: str, payload: bytes | None) -> bool:
    """Prepare all workers, present and future; a large payload is sent to each once. Returns whether it was cached."""
    import_optional("distributed")
    try:
        tell_workers(client)
        if payload is not None:
            _register(client, name, payload)
    except ClusterError:
        raise
    except Exception as error:
        raise ClusterError(
            f"the workers could not be prepared ({type(error).__name__}: {error}); install the same versions of "
            "hpfracc and of your own modules on all of them"
        ) from error
    _listen(client)
    return payload is not None


def tell_workers(client: Any) -> None:
    """Send what is known to all workers, present and future, unless they have it already: it changes rarely."""
    known = workers.encode_known()
    if _prepared.get(client) != known:
        _register(client, None, None, known)
        _prepared[client] = known


def _register(client: Any, *given: Any) -> None:
    plugin = _plugin_class()(*given)
    client.register_plugin(plugin, name=plugin.name)


def forget_job(client: Any, name: str) -> None:
    """Drop the payload of a sweep that has ended."""
    try:
        client.unregister_worker_plugin(f"{_NAME}-{name}")
    except Exception:  # the scheduler may be gone, and the sweep has ended
        logger.debug("the payload of sweep %s could not be dropped", name, exc_info=True)
