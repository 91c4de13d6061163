"""Where wisdom is kept, and which files there are whose."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpfracc._files import temporary
from hpfracc.engine.selection.knowledge import resolve_path
from hpfracc.engine.selection.wisdom import WisdomLayout, reset_warnings
from hpfracc.errors import ConfigurationError, WisdomWarning


@pytest.mark.parametrize("setting", ["off", "OFF", " off "])
def test_off(setting):
    """Off keeps nothing."""
    assert resolve_path(setting) is None


@pytest.mark.parametrize("setting", [None, "", "  "])
def test_the_default_is_in_the_user_s_cache(setting, monkeypatch, tmp_path):
    """Without a setting it is the cache folder that the platform names."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = resolve_path(setting)
    assert path is not None
    assert path.name == "wisdom"
    assert "hpfracc" in path.parts
    assert path.is_relative_to(tmp_path)


def test_a_path_is_made_absolute(monkeypatch, tmp_path):
    """Changing the working directory later does not move it; ~ is the user's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert resolve_path("lab") == tmp_path / "lab"
    assert resolve_path("lab/h200.json") == tmp_path / "lab/h200.json"
    assert resolve_path("~/lab") == tmp_path / "home/lab"


def test_an_account_without_a_home(monkeypatch):
    """No home is no error: one warning, once, and nothing is kept. A path that needs one is refused."""
    reset_warnings()
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.warns(WisdomWarning, match="no home"):
        assert resolve_path(None) is None
    assert resolve_path(None) is None
    with pytest.raises(ConfigurationError, match="~nobody"):
        resolve_path("~nobody/lab")


def test_every_name_is_recognised_and_no_other():
    """Each kind of file is told by its name, in its own place only: two merged files may share a folder."""
    ours, theirs = WisdomLayout(Path("x")), WisdomLayout(Path("x"), "lab")
    for layout, other in ((ours, theirs), (theirs, ours)):
        names = {
            "merged": layout.merged.name,
            "generation": layout.new_generation().name,
            "journal": layout.new_journal().name,
            "leftover": temporary(layout.new_generation()).name,
            "damaged": f"{layout.merged.name}.damaged-20260101T000000-abcd",
        }
        assert {kind: layout.kind_of(name) for kind, name in names.items()} == {kind: kind for kind in names}
        assert {other.kind_of(name) for name in names.values()} == {None}
        assert layout.kind_of(temporary(layout.merged).name) == "leftover"
    for name in ("notes.txt", "wisdom.json.bak", "wisdom-2024.json", "journal.jsonl", "wisdom", ""):
        assert ours.kind_of(name) is None
