"""The scripts of the gallery: where they are, what they say about themselves, and what they draw and print."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpfracc.errors import InvalidInputError, MissingDependencyError

#: In an installed package, and in the source tree that this module runs from.
_FOLDERS = (Path(__file__).parent / "gallery", Path(__file__).resolve().parents[4] / "examples" / "gallery")
#: Optional libraries without which a script is skipped, and the extras that install them.
_EXTRAS = {"torch": "torch", "jax": "jax", "numba": "numba", "dask": "dask", "networkx": "graph"}
_FORMULA = re.compile(r"^\$\$\s*(.*?)\s*\$\$$", re.DOTALL)


@dataclass(frozen=True)
class Script:
    """A script, with the parts of its docstring.

    ``formulas`` are LaTeX, ``words`` paragraphs, and ``citation`` the last paragraph.
    """

    name: str
    section: str
    path: Path
    source: str
    title: str
    formulas: tuple[str, ...]
    words: tuple[str, ...]
    citation: str


@dataclass(frozen=True)
class ScriptRun:
    """The picture (PNG), the printed text and the time of a script, or the reason why it was skipped.

    ``error`` is the script's own measure of its error, the module-level name of that name.
    """

    script: Script
    seconds: float = 0.0
    picture: bytes = b""
    printed: str = ""
    error: float | None = None
    skipped: str = ""


def find_scripts(names: list[str] | None = None) -> list[Script]:
    """The scripts in the order of ``contents.txt``, or those of the given names.

    Raises
    ------
    InvalidInputError
        If there is no script of a given name.
    """
    folder = next((folder for folder in _FOLDERS if (folder / "contents.txt").is_file()), None)
    if folder is None:
        raise MissingDependencyError(
            f"the scripts of the gallery were not found in {_FOLDERS[0]} or {_FOLDERS[1]}; install hpfracc again"
        )
    scripts, section = [], ""
    for line in (folder / "contents.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            section = line[2:].strip()
        elif line.strip():
            scripts.append(_read(folder / f"{line.strip()}.py", section))
    known = {script.name: script for script in scripts}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise InvalidInputError(f"no script is named {unknown[0]!r}; the scripts are {', '.join(known)}")
    return [known[name] for name in names] if names else scripts


def _read(path: Path, section: str) -> Script:
    source = path.read_text(encoding="utf-8")
    title, *paragraphs = (ast.get_docstring(ast.parse(source)) or path.stem).split("\n\n")
    formulas = tuple(found[1] for text in paragraphs if (found := _FORMULA.match(text.strip())))
    words = [" ".join(text.split()) for text in paragraphs if not _FORMULA.match(text.strip())]
    return Script(path.stem, section, path, source, title.rstrip("."), formulas, tuple(words[:-1]), words[-1])


def run_script(script: Script) -> ScriptRun:
    """Run a script in this process, in the style of the gallery, without a window.

    Raises
    ------
    MissingDependencyError
        If Matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "the gallery is drawn by Matplotlib, which is not installed; install it with pip install 'hpfracc[plot]'"
        ) from None
    printed = io.StringIO()
    begin = time.perf_counter()
    with (
        mpl.rc_context(fname=script.path.with_name("gallery.mplstyle")),
        _without_windows(pyplot),
        contextlib.redirect_stdout(printed),
    ):
        try:
            names = runpy.run_path(str(script.path))
        except ModuleNotFoundError as missing:
            library = (missing.name or "").partition(".")[0]
            if library not in _EXTRAS:
                raise
            return ScriptRun(script, skipped=f"needs {library}: pip install 'hpfracc[{_EXTRAS[library]}]'")
        picture = to_png(pyplot.gcf())
    error = float(names["error"]) if "error" in names else None
    return ScriptRun(script, time.perf_counter() - begin, picture, printed.getvalue().rstrip(), error)


@contextlib.contextmanager
def _without_windows(pyplot: Any) -> Any:
    """Draw into memory, with a figure of its own, and restore the backend."""
    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
            yield
    finally:
        pyplot.close("all")
        pyplot.switch_backend(before)


def to_png(figure: Any) -> bytes:
    """The figure in at most 256 colours, which is a third of the bytes."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    reduced = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(reduced, format="png", optimize=True)
    return reduced.getvalue()
