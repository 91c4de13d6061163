"""``hpfracc profile``: profile a script, render a profile as a page, or compare profiles."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpfracc.cli.answer import Answer, add_action, is_stdout, make_folder, refuse_json

if TYPE_CHECKING:
    from hpfracc.profiling.profiler import Profiler

#: Exit status of a comparison that found a regression.
_REGRESSION = 1


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command and its actions to the parser."""
    usage = "hpfracc profile [run] SCRIPT ...\n       hpfracc profile page ...\n       hpfracc profile compare ..."
    parser = commands.add_parser("profile", help=summary, allow_abbrev=False, usage=usage)
    actions = parser.add_subparsers(dest="action", metavar="SCRIPT | action", required=True, prog="hpfracc profile")
    add = partial(add_action, actions, common)
    parser.set_defaults(choices=actions.choices)
    script = add("run", _run, "run a script and write its profile as a page; short form: `hpfracc profile script.py`")
    script.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: the script's name with .html)"
    )
    script.add_argument("--json-out", type=Path, metavar="FILE", help="also write the profile as JSON")
    script.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="add the JSON profile to this folder, for compare, and write no page",
    )
    script.add_argument(
        "--capacity", type=int, metavar="SPANS", help="maximum number of spans; older ones are dropped and counted"
    )
    script.add_argument("--no-memory", action="store_true", help="do not measure memory around every span")
    script.add_argument("script", type=Path, help="the Python script")
    script.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")

    page = add("page", _page, "render a profile as a page; without a file, an empty page to drop a profile on")
    page.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a JSON profile")
    page.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="the page (default: the profile's name with .html)"
    )

    compare = add("compare", _compare, "compare two profiles, or two folders of profiles, span by span")
    compare.add_argument("before", type=Path, metavar="BEFORE", help="a JSON profile, or a folder of them")
    compare.add_argument("after", type=Path, metavar="AFTER", help="a JSON profile, or a folder of them")
    compare.add_argument("--fail-on-regression", action="store_true", help="exit with status 1 if a span is slower")

    names = frozenset(actions.choices)
    parse = parser.parse_known_args

    def parse_known_args(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
        # `hpfracc profile script.py` means `run`: the first argument is neither an action nor a request for help.
        given = list(args or ())
        if given and given[0] not in names and given[0] not in ("-h", "--help"):
            given.insert(0, "run")
        return parse(given, namespace)

    parser.parse_known_args = parse_known_args


def _run(arguments: argparse.Namespace) -> Answer:
    from hpfracc.errors import InvalidInputError
    from hpfracc.profiling.profiler import get_profiler

    script: Path = arguments.script
    if not script.is_file():
        raise InvalidInputError(f"script {str(script)!r} is not a file; name the Python script to run")
    for out in (arguments.out, arguments.json_out):
        if out is not None and is_stdout(out):
            raise InvalidInputError(f"{str(out)!r} is stdout, which the script uses; name a file")
    profiler = get_profiler(enabled=True)
    profiler.reset()
    profiler.configure(capacity=arguments.capacity, memory=not arguments.no_memory)
    status, failure = _execute(script, arguments.arguments, profiler)
    profiler.disable()
    data: dict[str, Any] = {"status": status, "error": failure}
    if arguments.keep is not None:
        data["profile"] = str(_keep(profiler, arguments.keep))
    else:
        page = profiler.report(
            arguments.out or Path(script.with_suffix(".html").name), " ".join((script.name, *arguments.arguments))
        )
        data["page"] = str(page.resolve())
    if arguments.json_out is not None:
        data["json"] = str(profiler.export_json(arguments.json_out).resolve())
    document = profiler.document()
    header = document.header()
    data |= {key: header[key] for key in ("recorded", "dropped", "breakdown", "bottlenecks", "advice")}
    return Answer(data, lambda: _view(document, data), status)


def _keep(profiler: Profiler, folder: Path) -> Path:
    import os
    import time

    make_folder(folder, "--keep")
    return profiler.export_json(
        folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}-{os.getpid()}.json"
    )


def _execute(script: Path, arguments: Sequence[str], profiler: Profiler) -> tuple[int, str | None]:
    """Run the script as ``python`` would; returns its exit status and its error, if any."""
    import runpy
    import traceback

    before_argv, before_path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with profiler.profile(script.name):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, None
        print(end.code, file=sys.stderr)
        return 1, str(end.code)
    except Exception as error:  # of the script: shown as Python does, and the profile so far is still written
        # Drop our own frames, so that the traceback is the one of `python script.py`.
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_code.co_filename != str(script):
            frame = frame.tb_next
        traceback.print_exception(type(error), error, frame or error.__traceback__)
        return 1, f"{type(error).__name__}: {error}"
    finally:
        sys.argv, sys.path[:] = before_argv, before_path
    return 0, None


def _view(document: Any, data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.text import Text

    from hpfracc.profiling.exports import bottleneck_table, summary_table

    where = data.get("page") or data.get("profile")
    kind = "Page" if "page" in data else "Profile"
    path = Text.assemble(f"{kind} written to ", (str(where), "bold"), overflow="fold")
    return Group(summary_table(document, 15), bottleneck_table(document, 5), path)


def _page(arguments: argparse.Namespace) -> Answer:
    from rich.text import Text

    from hpfracc.profiling.document import load_profile, write_text
    from hpfracc.profiling.exports import render_page

    file: Path | None = arguments.file
    document = None if file is None else load_profile(file)
    out = arguments.out or Path("profile.html" if file is None else file.with_suffix(".html").name)
    spans = 0 if document is None else len(document["spans"])
    if is_stdout(out):
        refuse_json(arguments, "the page")
        text = render_page(document).encode("utf-8", "backslashreplace")
        return Answer({"page": "-", "spans": spans}, lambda: Text("Page written to stdout"), on_stdout=text)
    page = write_text(out, iter((render_page(document),)))
    return Answer(
        {"page": str(page.resolve()), "spans": spans},
        lambda: Text.assemble("Page written to ", (str(page.resolve()), "bold"), overflow="fold"),
    )


def _compare(arguments: argparse.Namespace) -> Answer:
    from hpfracc.profiling.comparison import compare_profiles

    found = compare_profiles(arguments.before, arguments.after)
    slower = arguments.fail_on_regression and bool(found.of("slower"))
    return Answer(found.to_dict(), lambda: found, _REGRESSION if slower else 0)
