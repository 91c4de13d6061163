"""Every test starts from the same state: default settings, nothing learned, its own wisdom file."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpfracc import _config


def _resets() -> list[Callable[[], None]]:
    """What forgets the library's global state, from the lowest floor up."""
    found = [_config.reset]
    try:  # TEMPORARY while modules are missing
        found.append(importlib.import_module("hpfracc.engine.execution.state").reset)
    except (ImportError, AttributeError):
        pass
    return found


@pytest.fixture(autouse=True)
def fresh_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No ``HPFRACC_*`` variable of the user's reaches a test, and no test's state reaches the next."""
    for name in [name for name in os.environ if name.startswith("HPFRACC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HPFRACC_WISDOM", str(tmp_path / "wisdom"))
    resets = _resets()
    for reset in resets:
        reset()
    yield
    for reset in resets:
        reset()
