"""``hpfracc sweep``: resume or export a stored sweep over parameters, or show what is done."""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib
import io
import itertools
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hpfracc.cli.answer import Answer, add_action, progress_bar

if TYPE_CHECKING:
    from hpfracc.distributed import SweepProgress, SweepResult

#: Characters with which a formula of a spreadsheet begins.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command and its actions to the parser."""
    parser = commands.add_parser("sweep", help=summary, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="action", required=True)
    add = partial(add_action, actions, common)
    parser.set_defaults(choices=actions.choices)
    resume = add("resume", _resume, "run the missing items of a sweep with its function")
    status = add("status", lambda arguments: _status(arguments.store), "show what is done")
    export = add("export", lambda arguments: _export(arguments.store, arguments.file), "write the results to one file")
    for each in (resume, status, export):
        each.add_argument("store", type=Path, metavar="DIR", help="the store of the sweep")
    resume.add_argument("call", metavar="MODULE:FUNCTION", help="the function; modules are looked for here first")
    resume.add_argument("--scheduler", metavar="ADDRESS", help="a Dask scheduler, such as tcp://host:8786")
    resume.add_argument("--failed", action="store_true", help="retry failed items too")
    export.add_argument("file", type=Path, metavar="FILE", help="the file to write: .npz, .csv or .nc")


def _resume(arguments: argparse.Namespace) -> Answer:
    """Run the missing items, with the seed, output and settings of the store."""
    from hpfracc._config import config, use_backend
    from hpfracc.distributed import sweep
    from hpfracc.distributed.stores import SweepStore
    from hpfracc.errors import StoreError

    store, func = SweepStore.open(arguments.store), _import(arguments.call)
    known = {"function": {}, "settings": {}, "backend": None, "seed": None, "output": None, **store.manifest}
    if known["output"] == "function":
        raise StoreError(f"output= of the sweep in {str(store.path)!r} is a function; continue it in Python")
    output = tuple(known["output"]) if isinstance(known["output"], list) else known["output"]
    with progress_bar("Sweeping") as report, contextlib.ExitStack() as stack:
        try:
            # A store may come from anyone, and has no say in where files are written.
            settings = {name: each for name, each in known["settings"].items() if name != "wisdom" or each == "off"}
            stack.enter_context(config(**settings))
            version = known["function"].get("version")
        except (AttributeError, TypeError) as error:
            raise StoreError(f"the manifest of {str(store.path)!r} is damaged ({error}); use a new store") from error
        if known["backend"] is not None:
            stack.enter_context(use_backend(known["backend"]))

        def show(state: SweepProgress) -> None:
            told = f"{state.done:,} of {state.total:,} items, {state.rate:.3g} per second, {state.failed} failed"
            report(state.done / state.total, told)

        try:
            result = sweep(
                func, store.params, store=store.path, executor=arguments.scheduler, progress=show, on_error="keep",
                seed=known["seed"], output=output, version=version,
            )  # fmt: skip
            if arguments.failed and result.failed:
                result = result.resume(failed=True)
        except KeyboardInterrupt as interrupt:
            interrupt.__notes__ = [f"completed items are in {store.path}"]
            raise
    return _answer(result)


def _import(call: str) -> Any:
    """The function ``module:function``, with the current folder first in the search path."""
    from hpfracc._optional import is_installed
    from hpfracc.errors import InvalidInputError

    module, _, name = call.partition(":")
    if not module or not name:
        raise InvalidInputError(f"{call!r} is not of the form MODULE:FUNCTION")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        func = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(f"{call!r} cannot be imported ({error}); check the names, or set PYTHONPATH") from error
    file = getattr(sys.modules[module], "__file__", None)
    if file is not None and str(Path(file).resolve().parent) == here and is_installed("cloudpickle"):
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]

        cloudpickle.register_pickle_by_value(sys.modules[module])  # workers cannot import it
    return func


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
