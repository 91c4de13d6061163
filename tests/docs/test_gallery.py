"""The gallery of the documentation: a page for each script, and one with all pictures."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from hpfracc.cli.demo import scripts
from tests.helpers.source import REPOSITORY

pytest.importorskip("matplotlib")

SCRIPT = '''r"""{title}.

$$ y = {number} $$

Words.

A. Author (2000).
"""

import matplotlib.pyplot as plt

plt.plot([0, {number}])
print("printed {number}")
'''


@pytest.fixture
def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_gallery", REPOSITORY / "docs" / "_gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_written_and_only_changed_scripts_run(
    tmp_path: Path, gallery: ModuleType, monkeypatch: pytest.MonkeyPatch
):
    """Each page has formula, picture, output, code and download; the index links to all; results are kept."""
    source, folder, ran = tmp_path / "source", tmp_path / "pages", []
    source.mkdir()
    (source / "contents.txt").write_text("# One\nfirst\n# Two\nsecond\n", encoding="utf-8")
    (source / "gallery.mplstyle").write_text("savefig.dpi: 30\n", encoding="utf-8")
    for number, name in enumerate(("first", "second")):
        (source / f"{name}.py").write_text(SCRIPT.format(title=name, number=number), encoding="utf-8")
    monkeypatch.setattr(scripts, "_FOLDERS", (source,))
    run = gallery.run_script
    monkeypatch.setattr(gallery, "run_script", lambda script: ran.append(script.name) or run(script))
    gallery.write_pages(folder)
    page = (folder / "second.md").read_text(encoding="utf-8")
    for part in ("# second\n", "$$\ny = 1\n$$", "![second](second.png)", "printed 1", ":lines: 10-", "<second.py>"):
        assert part in page
    assert (folder / "second.py").read_text(encoding="utf-8") == (source / "second.py").read_text(encoding="utf-8")
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert index.index("## One") < index.index("(first.md)") < index.index("## Two") < index.index("(second.md)")
    (source / "second.py").write_text(SCRIPT.format(title="second", number=7), encoding="utf-8")
    gallery.write_pages(folder)
    assert ran == ["first", "second", "second"]
    assert "printed 7" in (folder / "second.md").read_text(encoding="utf-8")
