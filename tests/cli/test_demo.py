"""``hpfracc demo`` runs the scripts of the gallery and writes a self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hpfracc.cli import main
from hpfracc.cli.demo import scripts
from hpfracc.cli.demo.scripts import find_scripts, run_script
from tests.helpers.browser import find_browser, start_browser

pytest.importorskip("matplotlib")

VOID = {"meta", "br", "img"}
DRAWS = r'''r"""A line & <its> "quote".

$$ D^\alpha y(t) = -y(t), \quad y(0) \leq 1 $$

Words about it, with $\lambda = 1$.

A. Author, Journal 1 (2000) 1-2.
"""

import matplotlib.pyplot as plt

plt.plot([0, 1], [0, 1])
error = 0.25
print("largest error <0.25>")
plt.show()
'''
NEEDS = '''"""Another.

Words.

A. Author.
"""

import torch.absent_for_this_test
'''


class Page(HTMLParser):
    """Parses a page into tags, attributes and text, and checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)


@pytest.fixture
def gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A gallery of two scripts, one of which needs a module that is not there."""
    folder = tmp_path / "gallery"
    folder.mkdir()
    (folder / "contents.txt").write_text("# Equations\ndraws\n\n# Learning\nneeds\n", encoding="utf-8")
    (folder / "gallery.mplstyle").write_text("savefig.dpi: 40\n", encoding="utf-8")
    (folder / "draws.py").write_text(DRAWS, encoding="utf-8")
    (folder / "needs.py").write_text(NEEDS, encoding="utf-8")
    monkeypatch.setattr(scripts, "_FOLDERS", (tmp_path / "nothing", folder))
    monkeypatch.setitem(sys.modules, "torch.absent_for_this_test", None)
    return folder


def test_the_page_is_self_contained(gallery: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The page holds picture, formula, words, code and output, all escaped, and refers to no other file."""
    out = tmp_path / "deep" / "report"
    assert main(["demo", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert str(out / "index.html") in said.replace("\n", "")
    assert "largest error <0.25>" in said
    assert said.index("needs was skipped: needs torch") > said.index("largest error")
    assert [path.name for path in out.iterdir()] == ["index.html"]
    text = (out / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    words = "".join(page.words)
    for expected in ('A line & <its> "quote"', "Words about it, with ", "A. Author, Journal 1", "largest error <0.25>"):
        assert expected in words
    assert "plt.plot([0, 1], [0, 1])" in words
    assert "needs torch: pip install 'hpfracc[torch]'" in words
    assert words.index("Skipped") > words.index("largest error") and words.count("Another.") == 1
    assert "Learning" not in words  # a section with nothing to see
    assert "script" not in page.tags
    sources = [value or "" for name, value in page.attributes if name in ("src", "href")]
    assert all(source.startswith(("data:image/", "#")) for source in sources)
    assert sum(source.startswith("data:image/png") for source in sources) == 2  # with its thumbnail
    assert sum(source.startswith("data:image/svg") for source in sources) == 3  # two of the formula, one in the words
    assert "with $" not in text.partition("<details>")[0]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    assert f"'sha256-{base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()}'" in text


def test_json_has_every_script(gallery: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The JSON has the time, the error and the output of each script, and why one was skipped."""
    assert main(["demo", "--out", str(tmp_path / "report"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert Path(found["report"]).is_file()
    first, second = found["scripts"]
    assert (first["name"], first["error"], first["printed"]) == ("draws", 0.25, ["largest error <0.25>"])
    assert first["seconds"] > 0
    assert first["skipped"] is None
    assert "torch" in second["skipped"]


def test_some_scripts_or_a_list_of_them(gallery: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Names select scripts; ``--list`` runs none; an unknown name is an error that lists the known ones."""
    assert main(["demo", "draws", "--out", str(tmp_path / "one"), "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["scripts"]] == ["draws"]
    assert main(["demo", "--list", "--out", str(tmp_path / "none")]) == 0
    said = capsys.readouterr().out
    assert "draws" in said
    assert str(gallery) in said.replace("\n", "")
    assert not (tmp_path / "none").exists()
    assert main(["demo", "tango", "--out", str(tmp_path / "none")]) == 2
    assert "no script is named 'tango'; the scripts are draws, needs" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A folder that cannot be created is an error before any script runs."""
    (tmp_path / "taken").write_text("", encoding="utf-8")
    assert main(["demo", "--out", str(tmp_path / "taken")]) == 2
    err = capsys.readouterr().err
    assert "taken" in err
    assert "--out" in err


def test_without_matplotlib(
    gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The error says how to install it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["demo", "--out", str(tmp_path / "report")]) == 2
    assert "pip install 'hpfracc[plot]'" in capsys.readouterr().err


def test_a_script_that_fails_is_not_skipped(gallery: Path):
    """Other errors, and modules that no extra installs, are raised."""
    (gallery / "draws.py").write_text(f'"""Title.\n\nWords.\n\nCited.\n"""\nimport {"no_such_module"}\n', "utf-8")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run_script(find_scripts(["draws"])[0])


def test_thumbnails_are_means_of_pixels():
    """Twice as wide as asked, in squares of two: their means; a small picture stays as it is."""
    import numpy as np
    from matplotlib.image import imread, imsave

    from hpfracc.cli.demo import _thumbnail

    squares = np.random.default_rng(1).integers(0, 2, (3, 5, 3)) * 1.0
    file = io.BytesIO()
    imsave(file, squares.repeat(2, axis=0).repeat(2, axis=1), format="png")
    assert np.array_equal(imread(io.BytesIO(_thumbnail(file.getvalue(), width=5)))[..., :3], squares)
    assert np.array_equal(imread(io.BytesIO(_thumbnail(file.getvalue())))[::2, ::2, :3], squares)


def test_an_interrupted_script_publishes_nothing(
    gallery: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], interruptible: None
):
    """Ctrl-C in a solve of a script: status 130, and no page of what was done until then."""
    (gallery / "draws.py").write_text(
        '"""Title.\n\nWords.\n\nCited.\n"""\nimport signal\nimport hpfracc as hf\n'
        "fun = lambda t, y: -y if t < 0.5 else signal.raise_signal(signal.SIGINT)\n"
        "hf.solve_fode(fun, (0, 1), [1.0], 0.5, step=0.1)\n",
        "utf-8",
    )
    assert main(["demo", "--out", str(tmp_path / "report")]) == 130
    assert not list((tmp_path / "report").iterdir())
    assert capsys.readouterr().err.splitlines()[-1] == "hpfracc: interrupted"


def test_pictures_leave_no_trace(gallery: Path):
    """A run keeps the caller's style and backend, and leaves no figure open."""
    import matplotlib as mpl
    from matplotlib import pyplot

    before, backend = mpl.rcParams["savefig.dpi"], pyplot.get_backend()
    outcome = run_script(find_scripts(["draws"])[0])
    assert outcome.picture.startswith(b"\x89PNG")
    assert len(outcome.picture) < 20_000
    assert mpl.rcParams["savefig.dpi"] == before
    assert pyplot.get_backend() == backend
    assert pyplot.get_fignums() == []


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium with its driver")
@pytest.mark.parametrize("width", [360, 1300])
def test_the_page_fits_the_window(gallery: Path, tmp_path: Path, width: int):
    """No sideways scrolling, no message in the console, and all pictures are drawn."""
    from tests.helpers.browser import resize

    assert main(["demo", "--out", str(tmp_path / "report")]) == 0
    with start_browser(width) as driver:
        driver.get((tmp_path / "report" / "index.html").as_uri())
        resize(driver, width, 900, mobile=width < 600)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert driver.execute_script("return [...document.images].every(image => image.naturalWidth > 0)")
        assert driver.get_log("browser") == []
