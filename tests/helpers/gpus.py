"""A machine without GPUs, for tests that count the arms there are or say which one is taken."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator

import pytest

from hpfracc._optional import is_installed
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry

__all__ = ["hide_gpus", "sees_a_gpu"]

_HOST = {"torch": ("cpu",), "jax": ("cpu",), "cupy": ()}


def sees_a_gpu(library: str) -> bool:
    """Whether a library is installed and has a device besides the host."""
    return is_installed(library) and any(device != "cpu" for device in registry.adapter(library).devices())


@contextlib.contextmanager
def hide_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside the block every library has the host alone, and CuPy nothing: as on a machine without a GPU."""
    known = registry._devices

    def devices(name: str) -> tuple[str, ...]:
        # Of a library that is not imported the machine is asked: that one has GPUs.
        return known(name) if registry.is_loaded(name) or name not in _HOST else _HOST[name]

    monkeypatch.setattr(registry, "_devices", devices)
    for name, places in _HOST.items():
        monkeypatch.setattr(type(registry.adapter(name)), "devices", lambda self, places=places: places)
    machine = hardware.machine()
    if not machine.gpus:
        yield
        return
    without = dataclasses.replace(machine, gpus=())
    monkeypatch.setattr(hardware, "machine", lambda: without)
    jax = sys.modules.get("jax")
    # Arrays of JAX would be made on the GPU.
    with contextlib.nullcontext() if jax is None else jax.default_device(jax.devices("cpu")[0]):
        yield
