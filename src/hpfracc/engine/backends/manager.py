"""What there is to run on, in the few words that users' code already asks for."""

from __future__ import annotations

from hpfracc._config import check_backend, current_backend, get_settings
from hpfracc._environment import BACKENDS
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.registry import BackendType

__all__ = ["BackendManager", "get_backend"]


class BackendManager:
    """The backends and GPUs of this machine, as the engine sees them."""

    @property
    def available_backends(self) -> list[BackendType]:
        """The backends that can be used: installed, importable, not disabled."""
        disabled = get_settings().disabled
        return [BackendType(n) for n in BACKENDS if n not in disabled and registry.unavailable(n) is None]

    @property
    def gpu_count(self) -> int:
        """How many GPUs this process may use."""
        return len(hardware.machine().gpus)

    def has_gpu(self) -> bool:
        """Whether there is a GPU that this process may use."""
        return self.gpu_count > 0

    def is_available(self, backend: str | BackendType) -> bool:
        """Whether one backend can be used."""
        return BackendType(check_backend(backend)) in self.available_backends


def get_backend() -> BackendType:
    """The backend in force here: of ``use_backend``, else ``HPFRACC_FORCE_*``, else ``AUTO``."""
    return BackendType(current_backend() or get_settings().force or "auto")
