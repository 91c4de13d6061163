"""How compiled steps call a compiled right-hand side: by reference, by its address, or as an argument.

Run with ``python benchmarks/compiled_calls.py``. The library's way is by reference: a structure of Numba holds the
function, which takes arrays. By address, the function takes addresses of arrays and is called through its own, by an
intrinsic. As an argument, it is passed at each call of a kernel in Numba's function type. All three run the library's
kernels in whole calls of ``hf.solve_fode``. Times are processor seconds, because others use the machine; a ratio is the
median over adjacent turns, in times of the way by address. First calls are each in a process of its own that has
imported Numba.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from _common import heading, print_table, quarter, show
from numba import types
from numba.extending import intrinsic, overload_method

import hpfracc as hf
from hpfracc.solvers.ode import compiled

compiled.require()
functions: Any = compiled.load("functions")
compiled.load("stepper")

SECONDS, FIRSTS = 3.0, 7
Array = np.ndarray[Any, Any]


@intrinsic
def call_by_address(typing: Any, address: Any, t: Any, y: Any, out: Any, parameters: Any) -> Any:
    """Call a function compiled with ``numba.cfunc`` by its address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, number = context.get_value_type(types.intp), context.get_value_type(types.float64)
        kind = type(builder.function.function_type)(context.get_value_type(types.void), (number, word, word, word))
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.intp, types.float64, types.intp, types.intp, types.intp), generate


@overload_method(types.Integer, "evaluate")
def _evaluate_address(fun: Any, t: Any, y: Any, out: Any, parameters: Any) -> Any:
    def evaluate(fun: Any, t: Any, y: Any, out: Any, parameters: Any) -> None:
        call_by_address(fun, t, y.ctypes.data, out.ctypes.data, parameters.ctypes.data)

    return evaluate


@overload_method(types.FunctionType, "evaluate")
def _evaluate_argument(fun: Any, t: Any, y: Any, out: Any, parameters: Any) -> Any:
    def evaluate(fun: Any, t: Any, y: Any, out: Any, parameters: Any) -> None:
        fun(t, y, out, parameters)

    return evaluate


def compile_to_address(source: str) -> int:
    """The address of a right-hand side that takes addresses of arrays; it stays in memory."""
    size = 3 if "y[2]" in source else 1
    lines = [
        "def call(t, y_pointer, out_pointer, parameter_pointer):",
        f"    y = carray(y_pointer, ({size},))",
        f"    out = carray(out_pointer, ({size},))",
        "    p = carray(parameter_pointer, (1,))",
        *functions.function_lines(source, ("out[:] = nan", "return")),
    ]
    scope = {**functions._SCOPE, "carray": numba.carray}
    exec(compile("\n".join(lines), "<benchmark>", "exec"), scope)
    pointer = types.CPointer(types.float64)
    signature = types.void(types.float64, pointer, pointer, pointer)
    compiled_function = numba.cfunc(signature, error_model="numpy")(scope["call"])
    _kept.append(compiled_function)
    return int(compiled_function.address)


_kept: list[Any] = []
_by_reference = functions._compile_source
#: How each way compiles a function that was read, and the functions it has compiled.
WAYS: dict[str, tuple[Callable[[str], Any], OrderedDict[Any, Any]]] = {
    "by address": (compile_to_address, OrderedDict()),
    "by reference": (_by_reference, OrderedDict()),
    "as an argument": (lambda source: _by_reference(source).function, OrderedDict()),
}


def decay(t: float, y: Array) -> Array:
    """One component."""
    return -y


def lorenz(t: float, y: Array) -> Array:
    """Three components."""
    return np.array([10.0 * (y[1] - y[0]), y[0] * (28.0 - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]])


PROBLEMS = {1: (decay, [1.0], 0.7), 3: (lorenz, [1.0, 1.0, 1.0], 0.9)}
#: Method and options by name.
METHODS: dict[str, tuple[str, dict[str, float]]] = {
    "explicit, 100 steps": ("explicit_rectangle", {"step": 1e-2}),
    "explicit, 1,000 steps": ("explicit_rectangle", {"step": 1e-3}),
    "explicit, 10,000 steps": ("explicit_rectangle", {"step": 1e-4}),
    "pece, 1,000 steps": ("pece", {"step": 1e-3}),
    "implicit, 1,000 steps": ("implicit_trapezoid", {"step": 1e-3}),
}


def solver(way: str, method: str, components: int) -> Callable[[], Any]:
    """A whole call of ``hf.solve_fode``, one way."""
    fun, y0, alpha = PROBLEMS[components]
    name, options = METHODS[method]
    compile_source, known = WAYS[way]

    def solve() -> Any:
        functions._compile_source, functions._read = compile_source, known
        return hf.solve_fode(fun, (0.0, 1.0), y0, alpha, method=name, compile=True, **options)

    return solve


def in_turns(runs: list[Callable[[], Any]]) -> tuple[list[float], list[float]]:
    """Processor seconds per call of each, and the median ratios of its turns to those of the first next to them."""
    taken: list[list[float]] = [[] for _ in runs]
    batch = max(3, int(4e-3 / max(_time(runs[0], 3), 1e-9)))
    deadline = time.process_time() + SECONDS
    while len(taken[0]) < 10 or time.process_time() < deadline:
        turns = list(enumerate(runs))
        for number, run in turns if len(taken[0]) % 2 else reversed(turns):
            run()
            taken[number].append(_time(run, batch))
    ratios = [sorted(a / b for a, b in zip(each, taken[0], strict=True)) for each in taken]
    return [quarter(each) for each in taken], [each[len(each) // 2] for each in ratios]


def _time(run: Callable[[], Any], times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - begin) / times


def warm_calls() -> None:
    """Warm calls, in turns."""
    rows = []
    for method in METHODS:
        for components in PROBLEMS:
            runs = [solver(way, method, components) for way in WAYS]
            wanted, *others = [run() for run in runs]
            for found in others:
                assert found.decision.compiled
                assert found.nfev == wanted.nfev
                np.testing.assert_allclose(found.y, wanted.y, rtol=1e-12)
            rows.append((method, components, wanted.nfev, *_figures(*in_turns(runs))))
    head = ("warm call", "components", "evaluations", "by address", "by reference", "ratio", "as an argument", "ratio")
    print_table(head, rows)


def _figures(seconds: list[float], ratios: list[float]) -> list[str]:
    first, *others = seconds
    pairs = zip(others, ratios[1:], strict=True)
    return [show(first), *(text for each, ratio in pairs for text in (show(each), f"{ratio:.3f}"))]


def first_calls(method: str, components: int) -> None:
    """The first solve in a process, with kernels on disk and without."""
    rows = []
    for kept in (True, False):
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(FIRSTS + 1 if kept else 2):
            for way in WAYS:
                with tempfile.TemporaryDirectory() as empty:
                    more = {} if kept else {"NUMBA_CACHE_DIR": empty}
                    command = [sys.executable, __file__, "--first", way, method, str(components)]
                    ran = subprocess.run(
                        command, env={**os.environ, **more}, capture_output=True, text=True, check=True
                    )
                if turn or not kept:  # the first turn fills the disk cache
                    taken[way].append(float(ran.stdout))
        seconds = [quarter(values) for values in taken.values()]
        figures = _figures(seconds, [each / seconds[0] for each in seconds])
        rows.append((f"{method}, kernels {'on disk' if kept else 'compiled too'}", components, *figures))
    print()
    print_table(("first call", "components", "by address", "by reference", "ratio", "as an argument", "ratio"), rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", nargs=3, metavar=("WAY", "METHOD", "COMPONENTS"), help="time one first call")
    arguments = parser.parse_args()
    if arguments.first:
        way, method, components = arguments.first
        print(_time(solver(way, method, int(components)), 1))
        return
    print(heading("Calls of a compiled right-hand side: whole hf.solve_fode(..., compile=True), float64"))
    warm_calls()
    first_calls("pece, 1,000 steps", 3)


if __name__ == "__main__":
    main()
