"""``hpfracc sweep``: run, resume, show or export a sweep over parameters."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hpfracc.cli.answer import Answer, progress_bar

if TYPE_CHECKING:
    from hpfracc.distributed import SweepProgress, SweepResult

_ACTIONS = ("resume", "status", "export")
#: Characters with which a formula of a spreadsheet begins.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
#: The first line of the problem file in a store, followed by the folder of its module.
_ORIGIN = "# from the folder "


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser(
        "sweep",
        help=summary,
        parents=[common],
        allow_abbrev=False,
        usage="hpfracc sweep PROBLEM.toml --store DIR [--scheduler ADDRESS]\n"
        "       hpfracc sweep resume DIR [--trust] [--scheduler ADDRESS] [--failed]\n"
        "       hpfracc sweep status DIR\n"
        "       hpfracc sweep export DIR FILE",
    )
    parser.add_argument("what", metavar="PROBLEM.toml | resume | status | export", help="a problem file, or an action")
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="the store, and for export the file to write"
    )
    parser.add_argument("--store", type=Path, metavar="DIR", help="folder for the results of a problem file")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, such as tcp://host:8786")
    parser.add_argument("--failed", action="store_true", help="resume: retry failed items")
    parser.add_argument("--trust", action="store_true", help="resume: import the module that the store names")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Run an action, or a problem file."""
    from hpfracc.errors import InvalidInputError

    action, paths = arguments.what, arguments.paths
    wanted = {"resume": 1, "status": 1, "export": 2}.get(action, 0)
    if len(paths) != wanted:
        names = {0: "no further path", 1: "the store", 2: "the store and the file to write"}[wanted]
        raise InvalidInputError(f"hpfracc sweep {action} takes {names}; got {len(paths)} paths")
    if action in _ACTIONS:
        if arguments.store is not None:
            raise InvalidInputError(f"--store is for a problem file; write hpfracc sweep {action} {arguments.store}")
        if action == "resume":
            return _sweep(_read(paths[0] / "problem.toml"), paths[0], arguments, trust=arguments.trust)
        return _status(paths[0]) if action == "status" else _export(*paths)
    if arguments.store is None:
        raise InvalidInputError(f"hpfracc sweep {action} needs --store DIR, a folder for the results")
    return _sweep(_read(Path(action)), arguments.store, arguments)


def _read(path: Path) -> tuple[str, Path]:
    from hpfracc._files import read_plain
    from hpfracc.errors import InvalidInputError

    try:
        text, folder = read_plain(path, 1 << 20).decode(), path.resolve().parent
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the problem file {str(path)!r} cannot be read ({error}); check the path") from error
    if text.startswith(_ORIGIN):  # the copy in a store
        origin, _, text = text.removeprefix(_ORIGIN).partition("\n")
        folder = Path(origin)
    return text, folder


def _sweep(problem: tuple[str, Path], store: Path, arguments: argparse.Namespace, *, trust: bool = True) -> Answer:
    from hpfracc._files import write_whole
    from hpfracc.distributed import sweep
    from hpfracc.distributed.problems import parse_problem
    from hpfracc.distributed.stores import PROBLEM_FILE, SweepStore

    text, folder = problem
    given = parse_problem(text, folder, trust=trust)
    options = {"on_error": "keep", **given.options}
    # Before the first item, so that the sweep can be resumed after any failure.
    if SweepStore.find(store) is None:
        write_whole(store / PROBLEM_FILE, [f"{_ORIGIN}{folder}\n".encode(), text.encode()])
    with progress_bar("Sweeping") as report:

        def show(state: SweepProgress) -> None:
            told = f"{state.done:,} of {state.total:,} items, {state.rate:.3g} per second, {state.failed} failed"
            report(state.done / state.total, told)

        try:
            result = sweep(
                given.func, given.params, store=store, executor=arguments.scheduler, progress=show, **options
            )
            if arguments.failed and result.failed:
                result = result.resume(failed=True)
        except KeyboardInterrupt as interrupt:
            interrupt.__notes__ = [f"what was completed is in {store}; run the same command again to continue"]
            raise
    return _answer(result)


def _status(store: Path) -> Answer:
    from hpfracc.distributed import open_sweep

    return _answer(open_sweep(store))


def _export(store: Path, file: Path) -> Answer:
    """The results with their parameters as one ``.npz`` or ``.csv`` file, or netCDF by xarray."""
    import numpy as np
    from rich.text import Text

    from hpfracc._files import write_whole
    from hpfracc.distributed import open_sweep
    from hpfracc.errors import InvalidInputError
    from hpfracc.profiling.document import write_text

    result = open_sweep(store)
    arrays = result.arrays()
    columns = dict(result.params.columns(range(len(result))))
    if file.suffix == ".npz":
        named = {f"parameter_{name}": each for name, each in columns.items()} | arrays
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for name, each in named.items():
                with archive.open(f"{quote(name, safe='')}.npy", "w", force_zip64=True) as entry:  # a name, not a path
                    np.lib.format.write_array(entry, np.asarray(each), allow_pickle=False)
        write_whole(file, [written.getvalue()])
    elif file.suffix == ".csv":
        table = {f"parameter_{name}" if name in arrays else name: each for name, each in columns.items()}
        for name, array in arrays.items():
            flat = array.reshape(len(result), -1)
            table |= {name if flat.shape[1] == 1 else f"{name}_{at}": flat[:, at] for at in range(flat.shape[1])}
        if any(np.ndim(each) != 1 for each in table.values()):
            raise InvalidInputError("a parameter that is an array does not fit into .csv; export to .npz")
        rows = ([each[row] for each in table.values()] for row in range(len(result)))
        write_text(file, map(_csv_line, itertools.chain([list(table)], rows)))
    elif file.suffix == ".nc":
        result.to_xarray().to_netcdf(file)
    else:
        raise InvalidInputError(f"cannot export to {str(file)!r}; use a name that ends in .npz, .csv or .nc")
    data = {"file": str(file), "items": len(result), "failed": len(result.failed)}
    return Answer(data, lambda: Text(f"{len(result):,} items written to {file}"))


def _csv_line(cells: list[Any]) -> str:
    """The cells of a row; spreadsheets show text after an apostrophe, and would run it as a formula without."""
    safe = [f"'{each}" if isinstance(each, str) and each[:1] in _FORMULA else each for each in cells]
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(safe)
    return line.getvalue()


def _answer(result: SweepResult) -> Answer:
    from rich.text import Text

    cost = result.cost()
    data = {
        "items": len(result),
        "done": cost.items,
        "complete": result.complete,
        "failed": [{"index": each.index, "parameters": each.parameters, "error": each.error} for each in result.failed],
        "work_seconds": cost.work_seconds,
    }
    return Answer(data, lambda: Text(str(result)), status=0 if result.complete and not result.failed else 1)
