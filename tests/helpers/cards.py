"""A machine without cards, for tests that count the arms there are or say which one is taken."""

from __future__ import annotations

import pytest

from hpfracc.engine.backends import registry

__all__ = ["hide_cards"]

_HOST = {"torch": ("cpu",), "jax": ("cpu",), "cupy": ()}


def hide_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on every library has the host alone, and CuPy nothing: as on a machine without a card."""
    known = registry._devices

    def devices(name: str) -> tuple[str, ...]:
        # Of a library that is not imported the machine is asked: that one has cards.
        return known(name) if registry.is_loaded(name) or name not in _HOST else _HOST[name]

    monkeypatch.setattr(registry, "_devices", devices)
    for name, places in _HOST.items():
        monkeypatch.setattr(type(registry.adapter(name)), "devices", lambda self, places=places: places)
