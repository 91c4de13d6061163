"""Sphinx extension: runs the scripts of ``examples/gallery``, and writes a page for each and one with all pictures.

The pages are in ``docs/gallery``, which is not part of the repository. A script runs again if it or the style changed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpfracc.cli.demo.scripts import Script, find_scripts, run_script

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup", "write_pages"]

_INDEX = """\
# Gallery

Every picture is drawn by a short script that you can read, download and change. `hpfracc demo` runs all of them on your
machine, and writes one HTML file.
"""


def write_pages(folder: Path, names: list[str] | None = None) -> None:
    """Run what has changed, and write the pages of the gallery into ``folder``."""
    folder.mkdir(exist_ok=True)
    scripts = find_scripts(names)
    for script in scripts:
        page = _page(script, _result(script, folder))
        (folder / f"{script.name}.md").write_text(page, encoding="utf-8")
        shutil.copyfile(script.path, folder / script.path.name)
    parts = [_INDEX]
    for section, group in groupby(scripts, lambda script: script.section):
        cards = "\n\n".join(f"[![{each.title}]({each.name}.png) {each.title}]({each.name}.md)" for each in group)
        parts.append(f"## {section}\n\n```{{container}} gallery\n\n{cards}\n```\n")
    listed = "\n".join(script.name for script in scripts)
    parts.append(f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{listed}\n```\n")
    (folder / "index.md").write_text("\n".join(parts), encoding="utf-8")


def _result(script: Script, folder: Path) -> dict[str, Any]:
    """What the script printed, and its time; the picture is beside it."""
    style = script.path.with_name("gallery.mplstyle").read_text(encoding="utf-8")
    key = hashlib.sha256((script.source + style).encode()).hexdigest()
    picture, notes = folder / f"{script.name}.png", folder / f"{script.name}.json"
    if picture.is_file() and notes.is_file():
        known: dict[str, Any] = json.loads(notes.read_text(encoding="utf-8"))
        if known["key"] == key:
            return known
    outcome = run_script(script)
    if outcome.skipped:
        raise RuntimeError(f"{script.path} did not run: {outcome.skipped}")
    picture.write_bytes(outcome.picture)
    found = {"key": key, "printed": outcome.printed, "seconds": outcome.seconds}
    notes.write_text(json.dumps(found), encoding="utf-8")
    return found


def _page(script: Script, result: dict[str, Any]) -> str:
    file = script.path.name
    return "\n\n".join(
        (
            f"# {script.title}",
            *(f"$$\n{formula}\n$$" for formula in script.formulas),
            *script.words,
            f"![{script.title}]({script.name}.png)",
            f"```text\n{result['printed']}\n```",
            f"```{{literalinclude}} {file}\n:language: python\n:lines: {_first_line(script)}-\n```",
            f"{{download}}`Download {file} <{file}>`",
            f"{script.citation}\n",
        )
    )


def _first_line(script: Script) -> int:
    """Number of the first line of code, after the docstring that the page shows in words."""
    return ast.parse(script.source).body[1].lineno


def _build(app: Sphinx) -> None:
    write_pages(Path(app.srcdir) / "gallery")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", _build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
