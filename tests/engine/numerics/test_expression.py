"""Formulae: what is read, what it means, and that nothing else gets through."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpfracc.engine.numerics.expression import FUNCTIONS, parse_expression
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

NAMES = ("x", "y")
X, Y = np.array([0.3, -0.7, 0.0]), np.array([1.2, 0.4, -0.9])


def value(expression: str) -> np.ndarray:
    return np.asarray(parse_expression(expression, NAMES).compile_for(vars(np))(X, Y))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x*y + sin(x)", X * Y + np.sin(X)),
        ("-x**2 + +y", -(X**2) + Y),
        ("2*pi*x - e*y", 2 * math.pi * X - math.e * Y),
        ("x/(y + 3) // 0.1 % 0.7", X / (Y + 3) // 0.1 % 0.7),
        ("2**-1*x + y**3", 0.5 * X + Y**3),
        ("where(x > 0, x, y)", np.where(X > 0, X, Y)),
        ("where(x, 1, y)", np.where(X != 0, 1, Y)),
        ("(x > 0)*y", np.where(X > 0, Y, 0)),
        ("(x > 0) + (y > 0)", np.where(X > 0, 1, 0) + np.where(Y > 0, 1, 0)),
        ("x >= y", X >= Y),
        ("minimum(x, 0.1) + maximum(y, sqrt(4))", np.minimum(X, 0.1) + 2),
        ("x*y + 1e999", np.full(3, np.inf)),
        ("x*y - 9**9**9", np.full(3, -np.inf)),
        ("x + y + sqrt(0 - 1)", np.full(3, np.nan)),
    ],
)
def test_means_what_it_says(expression: str, expected: np.ndarray) -> None:
    """Precedence, constants and folding follow Python and NumPy; a comparison counts as 1 or 0."""
    np.testing.assert_allclose(value(expression), expected, rtol=1e-15)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_numpy_s(name: str) -> None:
    """By the name that NumPy uses, with as many arguments."""
    arguments = ["x > y", "x", "y"][-FUNCTIONS[name] :]
    operands = [X > Y, X, Y][-FUNCTIONS[name] :]
    expression = f"{name}({', '.join(arguments)})" + (" + 0*x" if len(arguments) == 1 else "")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(value(expression), getattr(np, name)(*operands))


@pytest.mark.parametrize(
    "expression",
    [
        "x.real + y",
        "__import__('os').system('true')",
        "(lambda: x)() + y",
        "[x, y]",
        "x[0] + y",
        "x if y else x",
        "x and y",
        "not x",
        "x & y",
        "x @ y",
        "0 < x < y",
        "x is y",
        "x in y",
        "f'{x}{y}'",
        "'x' + y",
        "1j*x + y",
        "True + x + y",
        "(x := y) + x",
        "sin(x, y)",
        "sin(*x) + y",
        "where(x, y)",
        "maximum(x, y, x)",
        "sin + x + y",
        "gamma(x) + y",
        "np.sin(x) + y",
        "x + z",
        "x + (y",
        "",
        "x; y",
        "x = y",
        "where(1, x, y)",
        "where(1 < 2, x, y)",
        "x",
        "1 + 2",
        "x\x00y",
        "x + y + 1" + "0" * 400,
        "+".join(["x*y"] * 5000),
        "(" * 300 + "x*y" + ")" * 300,
        "-" * 500 + "x*y",
        "sin(" * 150 + "x*y" + ")" * 150,
    ],
)
def test_refuses_everything_else(expression: str) -> None:
    """Attributes, calls of anything else, other operators, unknown names, unused arrays, monsters: an error each."""
    with pytest.raises(InvalidInputError):
        parse_expression(expression, NAMES)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.text(max_size=60) | st.text(alphabet="xy0123.+-*/() ", max_size=12))
@example("x*y + 1")
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever is typed, it is a formula whose own text gives the same tree, or the one error."""
    try:
        found = parse_expression(text, NAMES)
    except InvalidInputError:
        return
    assert parse_expression(found.source, NAMES).tree == found.tree
    assert found.names == NAMES


@pytest.mark.parametrize(
    ("expression", "real", "complex_"),
    [
        ("x*y", "real", "complex"),
        ("abs(x) + abs(y)", "real", "real"),
        ("abs(x) < abs(y)", "bool", "bool"),
        ("x == y", "bool", "bool"),
        ("abs(x)*y", "real", "complex"),
        ("floor(abs(x)) + abs(y)", "real", "real"),
    ],
)
def test_tells_what_it_gives(expression: str, real: str, complex_: str) -> None:
    """Truth values, real or complex numbers, known before anything is computed."""
    formula = parse_expression(expression, NAMES)
    assert formula.result(complex_operands=False) == real
    assert formula.result(complex_operands=True) == complex_


@pytest.mark.parametrize("expression", ["x > y", "minimum(x, y)", "x % y", "floor(x) + y", "sign(x)*y", "log2(x) + y"])
def test_refuses_what_complex_numbers_do_not_have(expression: str) -> None:
    """Order, and what rests on it, is refused for complex operands and fine for real ones."""
    formula = parse_expression(expression, NAMES)
    formula.result(complex_operands=False)
    with pytest.raises(UnsupportedDtypeError):
        formula.result(complex_operands=True)


def test_single_precision_stays_single() -> None:
    """No number in a formula widens float32, not even a choice between two numbers."""
    x = np.ones(3, np.float32)
    for expression in ("0.1*x + y", "where(x > y, 0.1, 0.2)", "(x > 0)*0.3 + y", "minimum(x, pi) + y**2"):
        result = parse_expression(expression, NAMES).compile_for(vars(np))(x, x)
        assert result.dtype == np.float32, expression
