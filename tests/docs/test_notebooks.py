"""Notebooks are those that the pages give, and run; the lines of the cheat sheet run too."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.test_code_blocks import find_blocks, run_blocks
from tests.docs.test_generate import load
from tests.helpers.source import REPOSITORY

FOLDER = REPOSITORY / "examples" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return load("_notebooks")


def test_there_is_one_for_each_page(made: ModuleType):
    """None is missing, and none is left over."""
    assert sorted(made.NOTEBOOKS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_that_of_its_page(made: ModuleType, name: str):
    """Up to date, small, without outputs; its code is what readers of the page see; its links lead somewhere."""
    path = FOLDER / f"{name}.ipynb"
    text = path.read_text(encoding="utf-8")
    assert text == made.notebook(made.NOTEBOOKS[name])
    assert len(text) < 20_000
    whole = json.loads(text)
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in whole["cells"]}) == len(whole["cells"])
    code = ["".join(cell["source"]) for cell in whole["cells"] if cell["cell_type"] == "code"]
    page = (REPOSITORY / "docs" / f"{made.NOTEBOOKS[name]}.md").read_text(encoding="utf-8")
    shown = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    assert code == [block.text.strip("\n") for block in find_blocks(shown) if block.language == "python"]
    words = "".join(line for cell in whole["cells"] if cell["cell_type"] == "markdown" for line in cell["source"])
    assert "<!--" not in words
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", words):
        assert "gallery" in target or (FOLDER / target).exists(), target


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "engine" else pytest.mark.slow) for name in NAMES]
)
@pytest.mark.usefixtures("tmp_folder")
def test_a_notebook_runs(name: str):
    """From top to bottom, without what the page hides from its readers."""
    pytest.importorskip("matplotlib").use("agg")
    if name in ("learning", "finance"):
        pytest.importorskip("torch")
    namespace = {"__name__": "__main__"}
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec", dont_inherit=True), namespace)


@pytest.fixture
def tmp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_line_of_the_cheat_sheet_runs(tmp_path: Path):
    """Every piece of code in its tables is an expression, or belongs to the command line."""
    path = REPOSITORY / "docs" / "reference" / "cheat-sheet.md"
    page = path.read_text(encoding="utf-8")
    names = run_blocks(find_blocks(page), tmp_path / "page.md")
    lines = [
        code for row in re.findall(r"^\| .* \| (.*) \|$", page, re.MULTILINE) for code in re.findall(r"`(.+?)`", row)
    ]
    ran = 0
    for code in lines:
        if re.match(r"(hf|control|models|noise|rough|transport|1 /)", code):
            eval(compile(ast.parse(code, mode="eval"), code, "eval"), names)
            ran += 1
    assert ran > 20 and len(lines) - ran <= 6
