"""``hpfracc demo``: run the scripts of the gallery, and write their pictures into one HTML file."""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpfracc.cli.answer import Answer, hpfracc_version, make_folder, progress_bar

if TYPE_CHECKING:
    from hpfracc.cli.demo.scripts import Script, ScriptRun

escape = html.escape

_MODULES = {"numpy": "NumPy", "scipy": "SciPy", "numba": "Numba", "torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("demo", help=summary, parents=[common], allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts to run (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="list the scripts and where they are, without running them")
    parser.add_argument(
        "--out", type=Path, default=Path("report"), metavar="FOLDER", help="folder for the report (default: report)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Run the scripts and write the page."""
    from hpfracc.cli.demo.scripts import find_scripts, run_script
    from hpfracc.cli.info import collect
    from hpfracc.profiling.document import write_text

    scripts = find_scripts(arguments.names)
    rows: list[dict[str, Any]]
    if arguments.list:
        rows = [{"name": each.name, "title": each.title, "file": str(each.path)} for each in scripts]
        return Answer({"scripts": rows}, lambda: _list(scripts))
    folder: Path = arguments.out
    make_folder(folder, "--out")  # before the work, so that a wrong name fails at once
    outcomes = []
    with progress_bar("Computing") as report:
        for number, script in enumerate(scripts):
            report(number / len(scripts), script.title)
            outcomes.append(run_script(script))
    path = write_text(folder / "index.html", iter((render(outcomes, _facts(collect()), hpfracc_version()),)))
    rows = [
        {
            "name": each.script.name,
            "title": each.script.title,
            "seconds": each.seconds,
            "error": each.error,
            "printed": each.printed.splitlines(),
            "skipped": each.skipped or None,
        }
        for each in outcomes
    ]
    return Answer({"report": str(path.resolve()), "scripts": rows}, lambda: _view(outcomes, path))


def _facts(info: dict[str, Any]) -> list[tuple[str, str]]:
    """The machine in a few lines, from the data of ``hpfracc info``."""
    machine = info["machine"]
    cpu, versions = machine["cpu"], machine["libraries"]
    present = [f"{name} {versions[key]}" for key, name in _MODULES.items() if versions.get(key)]
    return [
        ("Processor", f"{cpu['model']} ({cpu['architecture']}), {len(cpu['affinity'])} of {cpu['logical']} threads"),
        ("GPUs", ", ".join(gpu["name"] for gpu in machine["gpus"]) or "none"),
        ("System", f"{machine['system']}, Python {machine['python']}"),
        ("Libraries", ", ".join(present)),
    ]


def render(outcomes: Sequence[ScriptRun], facts: Sequence[tuple[str, str]], version: str) -> str:
    """Render the whole page.

    Parameters
    ----------
    outcomes : sequence of ScriptRun
        The scripts that were run, in order.
    facts : sequence of (str, str)
        The machine: names and values.
    version : str
        Version of the library.
    """
    from importlib import resources
    from itertools import groupby

    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    done = [each for each in outcomes if not each.skipped]
    sections = [(name, list(group)) for name, group in groupby(done, lambda each: each.script.section)]
    links = "".join(map(_link, done))
    left_out = "".join(map(_example, (each for each in outcomes if each.skipped)))
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    body = [
        '<header><p class="brand">hpfracc</p><h1>Fractional calculus in pictures</h1>',
        '<p class="lead">Equations with memory, computed on this machine and compared with exact solutions where there '
        "are any. Below each picture is the script that draws it, to read and to copy.</p>",
        f"<nav><ul>{links}</ul></nav></header><main>",
        *(f"<section><h2>{escape(name)}</h2>{''.join(map(_example, group))}</section>" for name, group in sections),
        f"<section><h2>Skipped</h2>{left_out}</section>" if left_out else "",
        f'<section id="machine"><h2>This machine</h2><dl>{rows}</dl></section></main>',
        f"<footer>Written by hpfracc {escape(version)} on {time.strftime('%Y-%m-%d %H:%M %Z')}. "
        "This page loads no other files and runs no scripts.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>hpfracc: fractional calculus in pictures</title>\n<style>{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _example(outcome: ScriptRun) -> str:
    script = outcome.script
    words = "".join(f"<p>{_words(text)}</p>" for text in script.words)
    if outcome.skipped:
        shown = f'<p class="skipped">Skipped: {escape(outcome.skipped)}</p>'
    else:
        data = base64.b64encode(outcome.picture).decode()
        printed = f"<pre>{escape(outcome.printed)}</pre>" if outcome.printed else ""
        shown = f'<img class="picture" alt="{escape(script.title)}" src="data:image/png;base64,{data}">{printed}'
    code = f"<details><summary>{escape(script.path.name)}</summary><pre>{escape(script.source)}</pre></details>"
    return (
        f'<article id="{escape(script.name)}"><h3>{escape(script.title)}</h3><div class="text">'
        f'{_formulas(script.formulas)}{words}<p class="citation">{escape(script.citation)}</p></div>'
        f"<div>{shown}</div>{code}</article>\n"
    )


def _link(outcome: ScriptRun) -> str:
    """A thumbnail that leads to the picture."""
    script = outcome.script
    small = f'<img alt="" src="data:image/png;base64,{base64.b64encode(_thumbnail(outcome.picture)).decode()}">'
    return f'<li><a href="#{escape(script.name)}">{small}<span>{escape(script.title)}</span></a></li>'


def _thumbnail(picture: bytes, width: int = 320) -> bytes:
    """A PNG made smaller by whole numbers, as the mean of its pixels."""
    from matplotlib.image import imread, imsave

    pixels = imread(io.BytesIO(picture), format="png")
    each = max(1, pixels.shape[1] // width)
    rows, columns = (size // each for size in pixels.shape[:2])
    blocks = pixels[: rows * each, : columns * each].reshape(rows, each, columns, each, -1)
    file = io.BytesIO()
    imsave(file, blocks.mean(axis=(1, 3)), format="png")
    return file.getvalue()


def _words(text: str) -> str:
    """Words, with the formulas among them as drawings."""
    return "".join(_drawn(part) if place % 2 else escape(part) for place, part in enumerate(text.split("$")))


def _formulas(formulas: Sequence[str]) -> str:
    """Formulas as drawings, in parts that break into lines on a narrow page."""
    parts = [part.strip() for formula in formulas for part in " ".join(formula.split()).split(r"\quad")]
    return f'<p class="formula">{"".join(map(_drawn, parts))}</p>' if parts else ""


def _drawn(formula: str) -> str:
    """A formula as SVG, by Matplotlib."""
    import matplotlib as mpl
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    file = io.BytesIO()
    with mpl.rc_context({"mathtext.fontset": "cm", "savefig.transparent": True, "svg.hashsalt": "hpfracc"}):
        math_to_image(f"${formula}$", file, prop=FontProperties(size=15), format="svg")
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(formula)}" src="data:image/svg+xml;base64,{data}">'


def _list(scripts: list[Script]) -> Any:
    from rich.console import Group
    from rich.text import Text

    width = max(len(script.name) for script in scripts)
    lines = [Text.assemble((f"{each.name:<{width}}", "bold"), f"  {each.title}") for each in scripts]
    return Group(*lines, Text(f"They are in {scripts[0].path.parent}", overflow="fold"))


def _view(outcomes: list[ScriptRun], path: Path) -> Any:
    from rich.console import Group
    from rich.text import Text

    from hpfracc._reading import format_seconds
    from hpfracc.profiling.formats import make_table

    table = make_table(**{"script": "word", "what it printed": "text", "time": "number"})
    for each in (each for each in outcomes if not each.skipped):
        table.add_row(Text(each.script.name, style="bold"), Text(each.printed), format_seconds(each.seconds))
    left_out = [Text(f"{each.script.name} was skipped: {each.skipped}") for each in outcomes if each.skipped]
    written = Text.assemble("Report written to ", (str(path.resolve()), "bold"), overflow="fold")
    return Group(*([table] if table.rows else []), *left_out, written)
