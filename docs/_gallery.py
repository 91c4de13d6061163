"""Sphinx extension: runs the scripts of ``examples/gallery``, and writes a page for each and one with all pictures.

The pages are in ``docs/gallery``, which is not part of the repository. A script runs again if it or the style changed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import _figures

from hpfracc.cli.demo import scripts as demo
from hpfracc.cli.demo.scripts import Script, find_scripts, run_script

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["setup", "write_pages"]

_INDEX = """\
# Gallery

Every picture is drawn by a short script that you can read, download and change. `hpfracc demo` runs all of them on your
machine, and writes one HTML file.
"""


def write_pages(folder: Path, names: list[str] | None = None, links: Callable[[str], str] = lambda source: "") -> None:
    """Run what has changed, and write the pages of the gallery into ``folder``, with ``links(source)`` of a script."""
    folder.mkdir(exist_ok=True)
    scripts = find_scripts(names)
    for script in scripts:
        page = _page(script, _result(script, folder), links(script.source))
        (folder / f"{script.name}.md").write_text(page, encoding="utf-8")
        shutil.copyfile(script.path, folder / script.path.name)
    parts = [_INDEX]
    for section, group in groupby(scripts, lambda script: script.section):
        cards = "\n\n".join(
            f"[{_figures.image(each.title, f'{each.name}.png')} {each.title}]({each.name}.md)" for each in group
        )
        parts.append(f"## {section}\n\n```{{container}} gallery\n\n{cards}\n```\n")
    listed = "\n".join(script.name for script in scripts)
    parts.append(f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{listed}\n```\n")
    (folder / "index.md").write_text("\n".join(parts), encoding="utf-8")


def _result(script: Script, folder: Path) -> dict[str, Any]:
    """What the script printed, and its time; the picture is beside it."""
    style = script.path.with_name("gallery.mplstyle").read_text(encoding="utf-8")
    look = Path(_figures.__file__).read_text(encoding="utf-8")
    key = hashlib.sha256((script.source + style + look).encode()).hexdigest()
    picture, notes = folder / f"{script.name}.png", folder / f"{script.name}.json"
    dark = folder / f"{script.name}-dark.png"
    if picture.is_file() and dark.is_file() and notes.is_file():
        known: dict[str, Any] = json.loads(notes.read_text(encoding="utf-8"))
        if known["key"] == key:
            return known
    with mock.patch.object(demo, "to_png", lambda figure: _draw(figure, dark)):
        outcome = run_script(script)
    if outcome.skipped:
        raise RuntimeError(f"{script.path} did not run: {outcome.skipped}")
    picture.write_bytes(outcome.picture)
    found = {"key": key, "printed": outcome.printed, "seconds": outcome.seconds}
    notes.write_text(json.dumps(found), encoding="utf-8")
    return found


def _draw(figure: Any, dark: Path, to_png: Callable[[Any], bytes] = demo.to_png) -> bytes:
    """The picture for light pages; the one for dark pages is written to a file."""
    light = to_png(figure)
    _figures.darken(figure)
    dark.write_bytes(to_png(figure))
    return light


def _page(script: Script, result: dict[str, Any], links: str) -> str:
    file = script.path.name
    return "\n\n".join(
        (
            f"# {script.title}",
            *(f"$$\n{formula}\n$$" for formula in script.formulas),
            *script.words,
            _figures.image(script.title, f"{script.name}.png"),
            f"```text\n{result['printed']}\n```",
            f"```{{literalinclude}} {file}\n:language: python\n:lines: {_first_line(script)}-\n```",
            f"{{download}}`Download {file} <{file}>`",
            *([links] if links else []),
            f"{script.citation}\n",
        )
    )


def _first_line(script: Script) -> int:
    """Number of the first line of code, after the docstring that the page shows in words."""
    return ast.parse(script.source).body[1].lineno


def _build(app: Sphinx) -> None:
    import _generate  # the names of the reference need every library

    write_pages(Path(app.srcdir) / "gallery", links=_generate.related().links)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("builder-inited", _build)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
