"""``hpfracc demo``: run equations, convolutions, derivatives, noise and lattices, and write an HTML report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpfracc.cli.answer import Answer, progress_bar

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hpfracc.cli.demo.blocks import Chapter

__all__ = ["add_command"]


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("demo", help=summary, parents=[common], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, shorter measurements")
    parser.add_argument(
        "--out", type=Path, default=Path("report"), metavar="FOLDER", help="folder for the report (default: report)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Run all chapters and write the page."""
    from hpfracc.cli.demo.chapters import CHAPTERS, DemoContext, build
    from hpfracc.cli.demo.page import render
    from hpfracc.cli.info import collect

    folder: Path = arguments.out
    _make_folder(folder)  # before the work, so that a wrong name fails at once
    chapters = []
    with progress_bar("Measuring") as report:
        for number, name in enumerate(CHAPTERS):

            def part(share: float, text: str, number: int = number) -> None:
                report((number + share) / len(CHAPTERS), text)

            chapters.append(build(name, DemoContext(arguments.quick, part)))
    command = "hpfracc demo --quick" if arguments.quick else "hpfracc demo"
    path = folder / "index.html"
    _write(path, render(chapters, collect(), command))
    data = {"report": str(path.resolve()), "chapters": {chapter.name: dict(chapter.data) for chapter in chapters}}
    return Answer(data, lambda: _view(chapters, path))


def _make_folder(folder: Path) -> None:
    from hpfracc.errors import InvalidInputError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"folder {str(folder)!r} cannot be created ({error.strerror or error}); name another with --out"
        ) from None


def _write(path: Path, text: str) -> None:
    from hpfracc._files import write_whole
    from hpfracc.errors import InvalidInputError

    try:
        write_whole(path, [text.encode("utf-8", "backslashreplace")])
    except OSError as error:
        raise InvalidInputError(
            f"the report cannot be written to {str(path)!r} ({error.strerror or error}); name another folder with --out"
        ) from None


def _view(chapters: list[Chapter], path: Path) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from hpfracc.cli.demo.blocks import Figures, TableBlock

    parts: list[RenderableType] = []
    for chapter in chapters:
        parts.append(Text(chapter.title, style="bold"))
        parts += [block for block in chapter.blocks if isinstance(block, Figures | TableBlock)]
    parts.append(Text.assemble("Report written to ", (str(path.resolve()), "bold"), overflow="fold"))
    return Group(*parts)
