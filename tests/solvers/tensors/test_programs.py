"""Functions on JAX arrays see what was changed around them, although their programs are compiled and kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf

pytest.importorskip("jax")
import jax.numpy as jnp

TIMES = np.linspace(0.0, 1.0, 11)
RATE = 1.0


def rated(t: Any, y: Any) -> Any:
    return -RATE * y


class Model:
    def __init__(self) -> None:
        self.rate: Any = 1.0

    def __call__(self, t: Any, y: Any) -> Any:
        return -self.rate * y


def last(fun: Any) -> Any:
    return hf.fdeint(fun, jnp.array([1.0]), TIMES, 0.5, step=0.1)[-1, 0]


def test_a_global_changed_between_calls_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The same function object twice."""
    for rate in (1.0, 3.0):
        monkeypatch.setitem(globals(), "RATE", rate)
        wanted = hf.solve_fode(rated, (0.0, 1.0), [1.0], 0.5, step=0.1, method="pece").y[0, -1]
        assert float(last(rated)) == pytest.approx(wanted, rel=1e-5)


def test_a_function_is_traced_once_where_nothing_changed():
    """The program is cached; that of an object, which may have changed, is compiled again."""
    from hpfracc.solvers.ode.tensors.on_jax.solves import _solve
    from hpfracc.solvers.tensors.programs import program_of

    def gentle(t: Any, y: Any) -> Any:
        return -RATE * jnp.sin(y)

    assert program_of(_solve, (gentle, None))[0] is program_of(_solve, (gentle, None))[0]
    model = Model()
    assert program_of(_solve, (model, None))[0] is not program_of(_solve, (model, None))[0]


def test_an_equal_lambda_is_not_compiled_again():
    """The same code that sees the same values is one program; other values are seen, and are another."""
    from hpfracc.solvers.ode.tensors.on_jax.solves import _solve
    from hpfracc.solvers.tensors.programs import program_of

    def of_rate(rate: float) -> Any:
        return lambda t, y: -rate * y

    program, fresh = program_of(_solve, (of_rate(1.0), None))
    again, found = program_of(_solve, (of_rate(1.0), None))
    assert fresh and not found and program is again
    assert program_of(_solve, (of_rate(2.0), None))[0] is not program
    values = np.array([1.0])

    def of_array() -> Any:
        return lambda t, y: -values * y

    before = program_of(_solve, (of_array(), None))[0]
    values[0] = 2.0
    assert program_of(_solve, (of_array(), None))[0] is not before


def test_a_function_compiled_at_every_call_is_told_of_once(monkeypatch: pytest.MonkeyPatch):
    """The third compilation warns, with the remedy, and no later one; parameters given as args do not."""
    import hpfracc.solvers.tensors.programs as programs
    from hpfracc.errors import RecompilationWarning

    monkeypatch.setattr(programs, "_warned", False)
    monkeypatch.setattr(programs, "_compilations", {})

    def solve(functions: Any, *given: Any) -> Any:
        return functions[0](*given)  # stands for a whole solve, which takes a second to compile

    def found(fun: Any, *args: Any) -> float:
        return float(programs.run_program(solve, (fun, None), (), (0.0, jnp.array(1.0), *args)))

    assert [found(lambda t, y, rate: -rate * y, rate) for rate in (1.0, 2.0, 3.0)] == [-1.0, -2.0, -3.0]
    model = Model()

    def solve_often() -> None:
        for rate in (1.0, 2.0, 3.0, 4.0):
            model.rate = rate
            assert found(model) == -rate

    with pytest.warns(RecompilationWarning, match=r"args=\(\.\.\.\)") as told:
        solve_often()
    assert len(told) == 1
