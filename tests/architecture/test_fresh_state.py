"""Tests do not see each other's settings, nor the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import hpfracc as hf
from hpfracc._config import current_backend, get_settings


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
