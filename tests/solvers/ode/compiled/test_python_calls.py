"""A right-hand side that stays in Python, called by compiled stepping: the same answers, errors and references."""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import ShapeError, UnsupportedDtypeError
from tests.helpers.interrupts import part_of

pytest.importorskip("numba")


def solve(fun: Any, y0: Any = (1.0, 2.0), *, method: str = "pece", backend: str = "numba", **options: Any) -> Any:
    options = {"step": 0.01, **options}
    return hf.solve_fode(fun, (0.0, 1.0), np.array(y0), 0.6, method=method, compile=False, backend=backend, **options)


RETURNS = {
    "array": lambda t, y: np.array([y[1] - y[0], -y[1] * t]),
    "list": lambda t, y: [y[1] - y[0], -y[1] * t],
    "strided": lambda t, y: np.array([-y[1] * t, y[1] - y[0]])[::-1],
    "float32": lambda t, y: np.array([y[1] - y[0], -y[1] * t], np.float32),
    "swapped": lambda t, y: np.array([y[1] - y[0], -y[1] * t]).astype(">f8"),
    "its argument": lambda t, y: y,
    "integers": lambda t, y: np.array([1, 2]),
}


@pytest.mark.parametrize("kind", RETURNS)
def test_whatever_it_returns_is_read_as_numpy_reads_it(kind: str):
    """Arrays in one piece at once, everything else through NumPy: the solution is that of the NumPy stepping."""
    found, wanted = solve(RETURNS[kind]), solve(RETURNS[kind], backend="numpy")
    assert found.success and found.nfev == wanted.nfev
    np.testing.assert_allclose(found.y, wanted.y, rtol=1e-13)


@pytest.mark.parametrize(
    ("method", "y0"),
    [
        ("pece", [[1.0, 2.0], [3.0, 4.0]]),
        ("explicit_rectangle", [1.0 + 1.0j, 2.0]),
        pytest.param("implicit_trapezoid", [1.0, 2.0], marks=pytest.mark.slow),
    ],
)
def test_batches_complex_states_and_arguments(method: str, y0: Any):
    """The state comes in its own shape and kind, further arguments as they are."""

    def fun(t: float, y: Any, rate: Any, name: str) -> Any:
        assert type(t) is float and type(name) is str and y.shape == np.shape(y0)
        return -rate * y[..., ::-1] + t

    options = {"method": method, "args": (np.array([1.0, 0.5]), "a name")}
    np.testing.assert_allclose(solve(fun, y0, **options).y, solve(fun, y0, backend="numpy", **options).y, rtol=1e-12)


def test_what_the_function_keeps_stays_as_it_was():
    """Each call has an array of its own."""
    seen: list[Any] = []

    def fun(t: float, y: Any) -> Any:
        seen.append((t, y, float(y[0])))
        return -y

    solve(fun)
    assert len(seen) > 200 and len({id(y) for _, y, _ in seen}) == len(seen)
    assert all(y[0] == value for _, y, value in seen)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda y: np.zeros(3), ShapeError),
        (lambda y: np.zeros((1, 2)), ShapeError),
        (lambda y: 1.0, ShapeError),
        (lambda y: y + 1.0j, UnsupportedDtypeError),
        (lambda y: {}[0], KeyError),
        (lambda y: None, UnsupportedDtypeError),
    ],
)
def test_an_error_on_the_way_is_raised_as_it_is(wrong: Any, error: type[Exception]):
    """With its own traceback, from any call; and the next solve knows nothing of it."""

    def fun(t: float, y: Any) -> Any:
        return wrong(y) if t > 0.5 else -y

    with pytest.raises(error) as caught:
        solve(fun)
    if error is KeyError:
        assert "<lambda>" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert solve(lambda t, y: -y).success


def test_an_interrupt_returns_what_is_done():
    """Ctrl-C arrives in the right-hand side."""

    def fun(t: float, y: Any) -> Any:
        if t > 0.5:
            raise KeyboardInterrupt
        return -y

    result = part_of(lambda: solve(fun))
    assert not result.success and result.t[-1] == pytest.approx(0.5) and "Interrupted" in result.message


def test_no_reference_is_lost_or_kept():
    """After thousands of calls, some of them failing, every object has the references it had."""
    rate, name = np.array([1.0, 2.0]), object()
    buffer = np.zeros(2)
    plain = {"args": (rate, name)}

    def fun(t: float, y: Any, rate: Any, name: Any) -> Any:
        np.multiply(-rate, y, out=buffer)
        return buffer if t < 0.7 else [buffer[0], buffer[1]]

    def failing(t: float, y: Any, rate: Any, name: Any) -> Any:
        if t > 0.9:
            raise KeyError(t)
        return -rate * y

    def count() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (rate, name, buffer, fun, failing, np.ndarray, rate.dtype, None)]

    def work() -> None:
        solve(fun, step=0.001, **plain)
        with pytest.raises(KeyError):
            solve(failing, **plain)

    work()
    before = count()
    work()
    after = count()
    # What everybody refers to may move a little; each call by one would be a thousand.
    assert after[:5] == before[:5]
    assert all(abs(one - other) < 200 for one, other in zip(after[5:], before[5:], strict=True))
