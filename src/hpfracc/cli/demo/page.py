"""The report: one self-contained HTML file without scripts."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from importlib import resources
from typing import Any

from hpfracc.cli.demo.blocks import Chapter, Code, escape, inline_html
from hpfracc.profiling.formats import format_bytes

__all__ = ["render"]

_MODULES = {"numpy": "NumPy", "scipy": "SciPy", "numba": "Numba", "torch": "PyTorch", "jax": "JAX", "cupy": "CuPy"}


def render(chapters: Sequence[Chapter], info: dict[str, Any], command: str) -> str:
    """Render the whole page.

    Parameters
    ----------
    chapters : sequence of Chapter
        The chapters to show.
    info : dict
        The data of ``hpfracc info``.
    command : str
        The command that produces the page.
    """
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    parts = [
        _header(info),
        "<main>",
        *map(_chapter, chapters),
        _machine(info),
        _reproduce(command),
        "</main>",
        _footer(info),
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">\n"
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>hpfracc on this machine</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _header(info: dict[str, Any]) -> str:
    machine = info["machine"]
    gpus = " and ".join(gpu["name"] for gpu in machine["gpus"])
    where = f"{machine['cpu']['model']}{f' with {gpus}' if gpus else ''}"
    return (
        '<header><p class="brand">hpfracc</p>'
        "<h1>The fastest algorithm, selected by measurement</h1>"
        '<p class="lead">For each call the library selects the fastest algorithm, backend and device on this machine: '
        f"{escape(where)}.</p></header>"
    )


def _chapter(chapter: Chapter) -> str:
    blocks = "\n".join(block.to_html() for block in chapter.blocks)
    return f'<section id="{escape(chapter.name)}"><h2>{inline_html(chapter.title)}</h2>\n{blocks}</section>'


def _machine(info: dict[str, Any]) -> str:
    machine, host = info["machine"], info["memory"]["host"]
    cpu = machine["cpu"]
    versions = machine["libraries"]
    present = [f"{name} {versions[key]}" for key, name in _MODULES.items() if versions.get(key)]
    facts = [
        ("Processor", f"{cpu['model']} ({cpu['architecture']})"),
        ("Threads", f"{len(cpu['affinity'])} of {cpu['logical']}"),
        ("Memory", f"{format_bytes(host['free'])} free of {format_bytes(host['limit'])}"),
    ]
    for gpu in machine["gpus"]:
        size = f", {format_bytes(gpu['memory'])}" if gpu["memory"] is not None else ""
        facts.append((gpu["device"], f"{gpu['name']}{size}, driver {gpu['driver']}"))
    if not machine["gpus"]:
        facts.append(("GPUs", "none"))
    facts += [("System", f"{machine['system']}, Python {machine['python']}"), ("Libraries", ", ".join(present))]
    absent = [f"{_MODULES[row['name']]} ({row['why_not']})" for row in info["backends"] if not row["available"]]
    if absent:
        facts.append(("Not available", "; ".join(absent)))
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<section id="machine"><h2>This machine</h2><dl class="facts">{rows}</dl></section>'


def _reproduce(command: str) -> str:
    lines = (
        f"{command}\n"
        "hpfracc explain --op causal_convolution --shape 1000   # explain a choice without running it\n"
        "hpfracc calibrate                                      # time every operation, in 10 s\n"
        "hpfracc wisdom show                                    # show the stored measurements"
    )
    return (
        '<section id="again"><h2>Reproduce it</h2><p>Times are the 25th percentile of repeated calls in one process, '
        "after a warm-up. Data and random seeds are fixed, so every run computes the same results. Other programs that "
        f"run at the same time affect the times.</p>{Code(lines).to_html()}</section>"
    )


def _footer(info: dict[str, Any]) -> str:
    date = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime())
    text = f"Written by hpfracc {escape(info['hpfracc'])} on {escape(date)}."
    return f"<footer>{text} This page loads no other files and runs no scripts.</footer>"
