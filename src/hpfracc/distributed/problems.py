"""Problem files: a sweep described in TOML, checked before anything runs."""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._optional import is_installed
from hpfracc.distributed.items import SweepParameters, grid, points
from hpfracc.distributed.sweeps import check_options
from hpfracc.errors import InvalidInputError, SolveError
from hpfracc.solvers.ode import FODEResult, problems, solve_fode

_TABLES = ("function", "grid", "points", "sweep")
_FUNCTION = ("equation", "call", "options")
_SWEEP = ("output", "seed", "on_error", "retries", "timeout", "batch", "version")
_RANGE = ("start", "stop", "count", "log")
#: Most values of a range, which are kept in memory.
_MAX_COUNT = 10_000_000


@dataclass(frozen=True, slots=True)
class EquationCall:
    """Solves an equation of :mod:`hpfracc.solvers.ode.problems` and returns the last state.

    Parameters
    ----------
    equation : str
        Name of the equation.
    options : mapping
        Options of :func:`hpfracc.solve_fode`, such as ``step``.
    whole : bool
        Whether the whole solution is returned, for use with ``output``.
    """

    equation: str
    options: Mapping[str, Any]
    whole: bool = False

    @property
    def __name__(self) -> str:
        """The name of the equation, for messages."""
        return self.equation

    def __call__(self, **parameters: Any) -> Any:
        """Solve the equation with these parameters."""
        made = getattr(problems, self.equation)(**parameters)
        given: dict[str, Any] = {"dy0": list(made.dy0)} if made.dy0 else {}
        solution = solve_fode(made.fun, made.t_span, made.y0, made.alpha, **given, **self.options)
        if not solution.success:
            raise SolveError(solution.message)
        if self.whole:
            return solution
        return np.asarray(solution.y[..., -1])


@dataclass(frozen=True, slots=True)
class SweepProblem:
    """A problem file: the function, its parameters, and the options of :func:`hpfracc.sweep`."""

    func: Callable[..., Any]
    params: SweepParameters
    options: Mapping[str, Any]


def parse_problem(text: str, folder: Path | None = None, *, trust: bool = True) -> SweepProblem:
    """Read a problem file.

    Parameters
    ----------
    text : str
        TOML with the tables ``[function]``, ``[grid]`` or ``[points]``, and ``[sweep]``.
    folder : Path, optional
        Searched first for the modules of ``call = "module:function"``.
    trust : bool
        Whether modules may be imported, which runs their code.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"the problem file is not valid TOML ({error}); correct that line") from error
    _require_known("the problem file", tables, _TABLES)
    func = _function(tables.get("function"), folder, trust)
    named = [name for name in ("grid", "points") if name in tables]
    if len(named) != 1:
        raise InvalidInputError("the problem file needs one table of parameters, [grid] or [points]")
    make = grid if named[0] == "grid" else points
    params = make(**{name: _values(name, given) for name, given in tables[named[0]].items()})
    options = tables.get("sweep", {})
    _require_known("[sweep]", options, _SWEEP)
    check_options(**options)
    if isinstance(func, EquationCall) and "output" in options:
        outputs = [options["output"]] if isinstance(options["output"], str) else options["output"]
        for name in outputs:
            _require_known("output", {name: None}, tuple(each.name for each in fields(FODEResult)))
        func = replace(func, whole=True)
    _require_binding(func, params, "rng" if "seed" in options else None)
    return SweepProblem(func, params, options)


def _require_known(where: str, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{where} is not a table; write it as [name] with lines name = value")
    for name in given:
        _reading.choice(f"the name in {where}", name, known)


def _function(table: Any, folder: Path | None, trust: bool) -> Callable[..., Any]:
    if table is None:
        raise InvalidInputError("the problem file has no table [function]; add one with equation= or call=")
    _require_known("[function]", table, _FUNCTION)
    if ("equation" in table) == ("call" in table):
        raise InvalidInputError("[function] needs either equation = 'relaxation' or call = 'module:function'")
    options = table.get("options", {})
    if "equation" in table:
        known = [name for name in problems.__all__ if name.islower() and name != "stored_reference"]
        _reading.choice("equation", table["equation"], sorted(known))
        _require_known("[function.options]", options, tuple(inspect.signature(solve_fode).parameters)[4:])
        return EquationCall(table["equation"], options)
    if options:
        raise InvalidInputError("[function.options] are for equations; give a function its parameters in [grid]")
    if not trust:
        raise InvalidInputError(
            f"this would import and run call={table['call']!r} from {str(folder)!r}, which the store names; add "
            "--trust if you trust it, or give the problem file again: hpfracc sweep PROBLEM.toml --store DIR"
        )
    return _import(table["call"], folder)


def _import(call: Any, folder: Path | None) -> Callable[..., Any]:
    module, _, name = str(call).partition(":")
    if not module or not name:
        raise InvalidInputError(f"call={call!r} is not of the form 'module:function'")
    for each in (Path.cwd(), folder):
        if each is not None and str(each) not in sys.path:
            sys.path.insert(0, str(each))
    try:
        func = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"call={call!r} cannot be imported ({error}); check the names, or set PYTHONPATH"
        ) from error
    file = getattr(sys.modules[module], "__file__", None)
    if file is not None and Path(file).resolve().parent in (Path.cwd(), folder) and is_installed("cloudpickle"):
        import cloudpickle  # type: ignore[import-not-found, unused-ignore]

        # Workers cannot import a module beside the problem file: it is sent with its functions.
        cloudpickle.register_pickle_by_value(sys.modules[module])
    return _reading.function("call", func, "the parameters of an item")


def _values(name: str, given: Any) -> Any:
    """A list of values, or a range: ``{start = 0, stop = 1, count = 11}``; geometric with ``log = true``."""
    if not isinstance(given, Mapping):
        return given
    _require_known(f"the range of {name}", given, _RANGE)
    missing = [each for each in _RANGE[:3] if each not in given]
    if missing:
        raise InvalidInputError(
            f"the range of {name} has no {missing[0]}; write {{start = 0.1, stop = 0.9, count = 9}}"
        )
    log = _reading.flag(f"{name}.log", given.get("log", False))
    count = _reading.whole(f"{name}.count", given["count"], least=1, most=_MAX_COUNT)
    least = 0.0 if log else None
    start, stop = (_reading.number(f"{name}.{each}", given[each], above=least) for each in ("start", "stop"))
    return np.geomspace(start, stop, count) if log else np.linspace(start, stop, count)


def _require_binding(func: Callable[..., Any], params: SweepParameters, extra: str | None) -> None:
    """Raise an error if the function does not take these parameters."""
    target = getattr(problems, func.equation) if isinstance(func, EquationCall) else func
    names = dict.fromkeys([*params.values, *([extra] if extra else [])])
    try:
        inspect.signature(target).bind(**names)
    except TypeError as error:
        raise InvalidInputError(
            f"{getattr(target, '__name__', target)}{inspect.signature(target)} does not take the parameters "
            f"{', '.join(names)} ({error})"
        ) from None
    except ValueError:  # a C function without a signature
        return
