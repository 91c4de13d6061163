"""Sphinx extension: runs the Python blocks of a page, and shows what they print and draw.

The output of a block stands below it. ``<!-- picture: WORDS -->`` stands for the current figure, in the style of the
gallery, with WORDS as its description. Blocks in comments (``<!-- checked: ... -->``) are for the tests: they are not
shown and not run here, so that a page works with what its reader sees.

A page runs in a process and an empty folder of its own, and again only if its code or the style changed. Results are in
``docs/gallery/pages``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # also in a process of its own

import _figures

from hpfracc.cli.demo.scripts import find_scripts, to_png

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["fill", "setup"]

_COMMENT = re.compile(r"^<!-- (?!picture: ).*?-->$", re.MULTILINE | re.DOTALL)
#: A Python block, or the place of a picture.
_PART = re.compile(
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$|^<!-- picture: (?P<words>[^>]+?) -->$",
    re.MULTILINE | re.DOTALL,
)
#: Characters of a line of output that a page shows without scrolling.
_WIDTH = 118
#: An output that stands in the page, for those who read it in the repository.
_COPY = re.compile(r"\s*(?:<!-- no-run -->\s*)?^ *```text\n.*?^ *```$", re.MULTILINE | re.DOTALL)
#: A picture of the gallery in another page.
_PICTURE = re.compile(r"!\[([^\]]*)\]\((\.\./gallery/\w+\.png)\)")


def fill(page: str, text: str, folder: Path) -> str:
    """The page with the output of its blocks and its pictures, which are written into ``folder``."""
    hidden = [found.span() for found in _COMMENT.finditer(text)]
    parts = [part for part in _PART.finditer(text) if not any(a <= part.start() < b for a, b in hidden)]
    if not any(part["words"] or "print" in part["code"] for part in parts):
        return text
    name = page.replace("/", "-")
    outputs = _results(name, [_code(part) for part in parts], folder)
    place = f"/{folder.parent.name}/{folder.name}"
    for number, (part, output) in reversed(list(enumerate(zip(parts, outputs, strict=True)))):
        if part["words"]:
            shown = _figures.image(" ".join(part["words"].split()), f"{place}/{name}-{number}.png")
            text = text[: part.start()] + shown + text[part.end() :]
        elif output:
            lines = "".join(f"{part['indent']}{line}\n" for line in ["```text", *_wrapped(output), "```"])
            copied = _COPY.match(text, part.end())
            text = f"{text[: part.end()]}\n\n{lines.rstrip()}{text[copied.end() if copied else part.end() :]}"
    return text


def _wrapped(output: str) -> list[str]:
    """The lines of an output, long ones on several lines; tables stay as they are."""
    wrap = textwrap.TextWrapper(_WIDTH, subsequent_indent="    ", replace_whitespace=False, drop_whitespace=False)
    if "─" in output:
        return output.splitlines()
    return [piece for line in output.splitlines() for piece in (wrap.wrap(line) if len(line) > _WIDTH else [line])]


def _code(part: re.Match[str]) -> str | None:
    """The code of a block; None for a picture."""
    if part["words"]:
        return None
    return "".join(line.removeprefix(part["indent"]) for line in part["code"].splitlines(keepends=True))


def _results(name: str, blocks: list[str | None], folder: Path) -> list[str]:
    """What each block printed. Runs the page if it is not known."""
    style = find_scripts()[0].path.with_name("gallery.mplstyle")
    job = {"name": name, "blocks": blocks, "folder": str(folder), "style": str(style)}
    look = Path(_figures.__file__).read_text(encoding="utf-8") if None in blocks else ""
    key = hashlib.sha256((json.dumps(blocks) + style.read_text(encoding="utf-8") + look).encode()).hexdigest()
    notes = folder / f"{name}.json"
    if notes.is_file():
        known = json.loads(notes.read_text(encoding="utf-8"))
        if known["key"] == key:
            outputs: list[str] = known["outputs"]
            return outputs
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True, cwd=empty, check=False
        )
    if done.returncode:
        raise RuntimeError(f"the page {name} did not run:\n{done.stderr}")
    outputs = json.loads(done.stdout)
    notes.write_text(json.dumps({"key": key, "outputs": outputs}), encoding="utf-8")
    return outputs


def _run(job: dict[str, Any]) -> list[str]:
    """Run the blocks of a page in one namespace."""
    import linecache

    namespace: dict[str, Any] = {"__name__": "__page__"}
    outputs = []
    for number, code in enumerate(job["blocks"]):
        printed = io.StringIO()
        if code is None:
            from matplotlib import pyplot

            figure, path = pyplot.gcf(), Path(job["folder"]) / f"{job['name']}-{number}.png"
            path.write_bytes(to_png(figure))
            _figures.darken(figure)
            path.with_stem(f"{path.stem}-dark").write_bytes(to_png(figure))
            pyplot.close("all")
        else:
            file = f"<block {number} of {job['name']}>"
            # For inspect.getsource, which compilers of users' functions call.
            linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
            with contextlib.redirect_stdout(printed):
                exec(compile(code, file, "exec", dont_inherit=True), namespace)
        outputs.append(printed.getvalue().rstrip())
    return outputs


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if not page.startswith("gallery/"):
        text = fill(page, source[0], Path(app.srcdir) / "gallery" / "pages")
        source[0] = _PICTURE.sub(lambda found: _figures.image(" ".join(found[1].split()), found[2]), text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    import warnings

    os.environ["MPLBACKEND"] = "agg"
    warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
    work = json.load(sys.stdin)
    if any("matplotlib" in (each or "") for each in work["blocks"]):
        import matplotlib as mpl

        mpl.rc_file(work["style"])
    sys.stdout.write(json.dumps(_run(work)))
