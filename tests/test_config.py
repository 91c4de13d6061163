"""Settings: process-wide, scoped, checked."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import hpfracc as hf
from hpfracc._config import current_backend, get_settings
from hpfracc.errors import ConfigurationError


def test_call_applies_to_the_whole_process() -> None:
    """``config(...)`` applies from then on, in other threads too."""
    hf.config(exploration_budget=0.05)
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(get_settings().exploration_budget))
    thread.start()
    thread.join()
    assert get_settings().exploration_budget == 0.05
    assert seen == [0.05]


def test_block_applies_inside_only_and_to_this_thread_only() -> None:
    """``with config(...)`` ends with the block and is not seen by other threads."""
    seen: list[bool] = []
    with hf.config(deterministic=True):
        assert get_settings().deterministic
        thread = threading.Thread(target=lambda: seen.append(get_settings().deterministic))
        thread.start()
        thread.join()
    assert not get_settings().deterministic
    assert seen == [False]


def test_blocks_nest_and_can_be_reused() -> None:
    """The inner block wins, the outer one is restored, and an object may be entered twice."""
    inner = hf.config(performance_threshold=0.3)
    with hf.config(performance_threshold=0.2, gpu_memory_limit=0.5):
        with inner, inner:
            assert get_settings().performance_threshold == 0.3
            assert get_settings().gpu_memory_limit == 0.5
        assert get_settings().performance_threshold == 0.2
    assert get_settings().performance_threshold == 0.1


def test_use_backend_nests_and_auto_cancels_it() -> None:
    """The innermost block wins; ``auto`` returns the choice to the engine."""
    with hf.use_backend("numpy"):
        with hf.use_backend("numba"):
            assert current_backend() == "numba"
        with hf.use_backend("auto"):
            assert current_backend() is None
        assert current_backend() == "numpy"
    assert current_backend() is None


def test_backend_may_be_given_as_enum_or_in_capitals() -> None:
    """The contract's ``BackendType`` and ``"NUMPY"`` both name a backend."""
    for name in (hf.BackendType.NUMPY, "NUMPY"):
        with hf.use_backend(name):
            assert current_backend() == "numpy"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("gpu_memory_limit", 0.0),
        ("gpu_memory_limit", 2),
        ("gpu_memory_limit", float("nan")),
        ("gpu_memory_limit", "0.5"),
        ("performance_threshold", -0.1),
        ("performance_threshold", 1.0),
        ("exploration_budget", True),
        ("enable_learning", 1),
        ("deterministic", "yes"),
        ("wisdom", 3),
        ("pin", ["fft"]),
        ("pin", {"fft": "tensorflow"}),
        ("never", {"fft": ["numpy", "numba", "torch", "jax", "cupy"]}),
        ("colour", "blue"),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(setting: str, value: object) -> None:
    """The error names the setting, and the settings are unchanged."""
    before = get_settings()
    with pytest.raises(ConfigurationError, match=setting if setting != "pin" or value == ["fft"] else "tensorflow"):
        hf.config(**{setting: value})
    assert get_settings() == before


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_starts_afresh(turn: str, tmp_path: Path):
    """What the first turn leaves behind (a process-wide setting, an open ``use_backend``) the second does not find."""
    assert not get_settings().deterministic
    assert current_backend() is None
    assert {name for name in os.environ if name.startswith("HPFRACC_")} == {"HPFRACC_WISDOM"}
    assert Path(os.environ["HPFRACC_WISDOM"]).is_relative_to(tmp_path)
    hf.config(deterministic=True)
    hf.use_backend("numpy").__enter__()
    assert get_settings().deterministic
    assert current_backend() == "numpy"
