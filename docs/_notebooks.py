"""Notebooks made from pages: a cell for each block of code, and the words between them.

``python docs/_generate.py`` writes them into ``examples/notebooks``, without outputs, so that they are small. Their
links lead to the pages of the repository.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "notebook", "write_notebooks"]

_DOCS = Path(__file__).parent
#: The page of each notebook: first steps, and one for each field that the README begins with.
NOTEBOOKS = {
    "first-steps": "tutorials/first-steps",
    "rheology": "how-to/models",
    "control": "how-to/control",
    "finance": "how-to/rough-volatility",
    "learning": "tutorials/learn-an-order",
    "engine": "how-to/choose-a-backend",
}
_PYTHON = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def notebook(page: str) -> str:
    """The notebook of a page, as JSON."""
    text = (_DOCS / f"{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"^<!--.*?-->\n*", "", text, flags=re.MULTILINE | re.DOTALL)
    folder = posixpath.dirname(page)
    parts = _PYTHON.split(_LINK.sub(lambda found: f"]({_moved(found[1], folder)})", text))
    cells = []
    for place, part in enumerate(parts):
        source = part.strip("\n")
        if place % 3 != 1 and source:  # between words and code there is an indentation
            cells.append(_cell("code" if place % 3 else "markdown", source, len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _moved(target: str, folder: str) -> str:
    """The target of a link of a page, for a notebook."""
    return "../../" + posixpath.normpath(posixpath.join("docs", folder, target))


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": source.splitlines(keepends=True)}


def write_notebooks() -> None:
    """Write all notebooks."""
    folder = _DOCS.parent / "examples" / "notebooks"
    folder.mkdir(exist_ok=True)
    for name, page in NOTEBOOKS.items():
        (folder / f"{name}.ipynb").write_text(notebook(page), encoding="utf-8")
