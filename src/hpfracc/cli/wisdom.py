"""``hpfracc wisdom``: show, export, import or clear stored measurements."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpfracc.cli.answer import Answer, add_action, is_stdout, refuse_json

if TYPE_CHECKING:
    from hpfracc.engine.selection.wisdom import Wisdom


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command and its actions to the parser."""
    parser = commands.add_parser("wisdom", help=summary, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    add = partial(add_action, actions, common)
    parser.set_defaults(choices=actions.choices)
    add("show", _show, "show stored measurements by operation and backend")
    add("export", _export, "write all stored measurements to one file").add_argument(
        "file", type=Path, metavar="FILE", help="the file to write; - is stdout"
    )
    add("import", _import, "add exported measurements to the stored ones; duplicates are ignored").add_argument(
        "file", type=Path, metavar="FILE", help="a file written by `hpfracc wisdom export`"
    )
    add("clear", _clear, "delete all stored measurements").add_argument(
        "--yes", action="store_true", help="do not ask for confirmation"
    )


def _wisdom(*, needed: bool = False) -> Wisdom:
    from hpfracc._config import get_settings
    from hpfracc.engine.selection.knowledge import knowledge_for
    from hpfracc.errors import ConfigurationError

    wisdom = knowledge_for(get_settings()).wisdom
    if needed and wisdom.path is None:
        raise ConfigurationError(
            "wisdom is off: nothing can be exported, imported or cleared; set HPFRACC_WISDOM to a folder, or unset it"
        )
    return wisdom


def _show(arguments: argparse.Namespace) -> Answer:
    from hpfracc.engine.selection.wisdom_sharing import summarize

    summary = summarize(_wisdom())
    return Answer(summary, lambda: _table(summary))


def _export(arguments: argparse.Namespace) -> Answer:
    from hpfracc.engine.selection.wisdom_sharing import encode_wisdom, export_wisdom

    wisdom, file = _wisdom(needed=True), arguments.file
    if is_stdout(file):
        refuse_json(arguments, "the exported file")
        data, count = encode_wisdom(wisdom)
        return _message(f"{count} records written to stdout", data, file="-", records=count)
    count = export_wisdom(wisdom, file)
    return _message(f"{count} records written to {file}", file=str(file), records=count)


def _import(arguments: argparse.Namespace) -> Answer:
    from hpfracc.engine.selection.wisdom_sharing import import_wisdom, summarize

    wisdom = _wisdom(needed=True)
    new = import_wisdom(wisdom, arguments.file)
    total = summarize(wisdom)["records"]
    text = f"{new} new records from {arguments.file}; {total} in total"
    return _message(text, file=str(arguments.file), new=new, records=total)


def _clear(arguments: argparse.Namespace) -> Answer:
    from hpfracc.engine.selection.wisdom_sharing import clear_wisdom
    from hpfracc.errors import InvalidInputError

    wisdom = _wisdom(needed=True)
    if not arguments.yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidInputError(
                f"stdin is not a terminal, so clearing {wisdom.path} cannot be confirmed; add --yes"
            )
        print(f"Delete all measurements in {wisdom.path}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return _message("nothing was deleted", removed=0)
    removed = clear_wisdom(wisdom)
    return _message(f"{removed} files deleted from {wisdom.path}", removed=removed)


def _message(text: str, on_stdout: bytes | None = None, **data: Any) -> Answer:
    from rich.text import Text

    return Answer(data, lambda: Text(text, overflow="fold"), on_stdout=on_stdout)


def _table(summary: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    from hpfracc._reading import format_bytes
    from hpfracc.profiling.formats import make_table

    head = Text(f"{summary['path'] or 'wisdom is off'} ({summary['state']})", overflow="fold", style="bold")
    line = f"{summary['records']} records, {format_bytes(summary['bytes'])} in {len(summary['files'])} files"
    if summary["unwritten"]:
        line += f", {summary['unwritten']} not written yet"
    if summary["skipped"]:
        line += f", {summary['skipped']} damaged lines skipped"
    if not summary["rows"]:
        return Group(head, Text(f"{line}; run `hpfracc calibrate` to add some"))
    numbers = dict.fromkeys(("knots", "samples", "compiles"), "number")
    table = make_table(operation="word", backend="word", arms="text", **numbers, last="word", fingerprint="word")
    for row in summary["rows"]:
        kinds = row["kinds"]
        table.add_row(
            row["operation"],
            row["backend"] or "copies",
            ", ".join(row["arms"]),
            str(kinds.get("knot", 0)),
            str(kinds.get("sample", 0) + kinds.get("transfer", 0)),
            str(kinds.get("compile", 0)),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(row["newest"])),
            row["fingerprint"],
        )
    return Group(head, Text(line), table)
