"""The worker plugin: what every worker of a cluster has to know, also one that starts later or is restarted."""

from __future__ import annotations

import contextlib
import logging
from typing import Any
from weakref import WeakKeyDictionary

from hpfracc._optional import import_optional
from hpfracc.distributed.claims import use_own_gpu
from hpfracc.distributed.learning import encode_known, merge_records, process_id, start_sharing
from hpfracc.distributed.tasks import job_of
from hpfracc.distributed.worker import adopt_limits, compare_versions, versions
from hpfracc.errors import ClusterError

__all__ = ["forget_job", "register_job", "tell_workers"]

logger = logging.getLogger("hpfracc.distributed")

_NAME = "hpfracc"
#: What the workers of a client were prepared with.
_prepared: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()


def _plugin_class() -> type:
    """The class of the plugins; made when it is first needed, since its base is Dask's."""
    global _made
    if _made is None:
        from distributed import WorkerPlugin

        class WorkerSetup(WorkerPlugin):
            """Sets the engine's cores, memory, GPU and wisdom, compares versions, and keeps a large job."""

            def __init__(self, job: str | None, payload: bytes | None, known: bytes = b"") -> None:
                self.name = _NAME if job is None else f"{_NAME}-{job}"
                self.job, self.payload = job, payload
                self.versions = versions()
                self.known = known
                self.process = process_id()

            def setup(self, worker: Any) -> None:
                _set_up(self, worker)

        _made = WorkerSetup
    return _made


_made: type | None = None


def _set_up(plugin: Any, worker: Any) -> None:
    compare_versions(plugin.versions, str(worker.address))
    use_own_gpu(worker)
    adopt_limits(worker)
    if plugin.known and start_sharing(plugin.process):
        merge_records(plugin.known)
    if plugin.payload is not None:
        job_of(plugin.job, plugin.payload)


def register_job(client: Any, name: str, payload: bytes | None) -> bool:
    """Prepare all workers, now and later; a large payload is sent to each of them once. Whether one was kept."""
    import_optional("distributed")
    known = encode_known()
    # The scheduler keeps the plugin for workers that start later; what is known changes seldom.
    plugins = [] if _prepared.get(client) == known else [_plugin_class()(None, None, known)]
    if payload is not None:
        plugins.append(_plugin_class()(name, payload))
    for plugin in plugins:
        try:
            client.register_plugin(plugin, name=plugin.name)
        except ClusterError:
            raise
        except Exception as error:
            raise ClusterError(
                f"the workers could not be prepared ({type(error).__name__}: {error}); install the same versions of "
                "hpfracc and of your own modules on all of them"
            ) from error
    _prepared[client] = known
    return payload is not None


def tell_workers(client: Any) -> None:
    """Bring what was learned meanwhile to all workers, also to those that start later."""
    known = encode_known()
    plugin = _plugin_class()(None, None, known)
    try:
        client.register_plugin(plugin, name=plugin.name)
        _prepared[client] = known
    except Exception as error:  # a worker that ends meanwhile: the sweep does not depend on it
        logger.info("what was learned could not be sent to all workers (%s: %s)", type(error).__name__, error)


def forget_job(client: Any, name: str) -> None:
    """Drop the payload of a sweep that has ended."""
    with contextlib.suppress(Exception):  # the scheduler may be gone
        client.unregister_worker_plugin(f"{_NAME}-{name}")
