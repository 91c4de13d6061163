"""The vocabulary that reads arguments: what it takes, and that every refusal has the name, the value and a remedy."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from hpfracc import _reading
from hpfracc.errors import HpfraccError, InvalidInputError

#: What is wrong wherever a number, a choice or an object is wanted.
WRONG = [None, object(), b"x", {"a": 1}, {1, 2}, int, [[1, 2], [3]], np.array(["a", "b"]), np.datetime64("2020-01-01")]


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.array(1.0), np.array([1.0]), Fraction(1), Decimal(1)])
def test_numbers_of_every_kind(value):
    """Python's, NumPy's, and arrays of one element."""
    assert _reading.number("x", value) == 1.0


@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning")
@pytest.mark.parametrize(
    ("read", "values"),
    [
        (lambda value: _reading.number("x", value), [*WRONG, "1", True, 1j, math.nan, math.inf, [1.0, 2.0], 10**400]),
        (lambda value: _reading.number("x", value, above=0.0), [0.0, -1.0]),
        (lambda value: _reading.number("x", value, least=0.0, below=1.0), [-0.1, 1.0]),
        (lambda value: _reading.number("x", value, most=1.0), [1.1]),
        (lambda value: _reading.number("x", value, infinite=True), [math.nan]),
        (lambda value: _reading.whole("x", value), [*WRONG, 1.0, True, math.nan, "1"]),
        (lambda value: _reading.whole("x", value, least=1, most=3), [0, 4]),
        (lambda value: _reading.flag("x", value), [*WRONG, 0, 1, "true"]),
        (lambda value: _reading.choice("x", value, ("left", "right")), [*WRONG, "rihgt", 1]),
        (lambda value: _reading.text("x", value), [*WRONG, ""]),
        (lambda value: _reading.path("x", value), [*WRONG, "", 3]),
        (lambda value: _reading.function("x", value, "(t, y)"), [None, 3, "sin", [1]]),
        (lambda value: _reading.instance("x", value, Path, "Path('a')"), [*WRONG, Path]),
        (lambda value: _reading.numbers("x", value), [*WRONG, ["a"], [1j], [math.nan]]),
        (lambda value: _reading.numbers("x", value, ndim=1), [1.0, [[1.0]]]),
        (lambda value: _reading.numbers("x", value, least=0.0), [[-1.0, 1.0]]),
        (lambda value: _reading.pair("x", value), [*WRONG, (1,), (2, 1), (1, 1), "ab", (0, math.inf)]),
    ],
)
def test_refusals_name_the_argument_and_a_remedy(read, values):
    """Each wrong value is refused with a typed error that names the argument and ends with what to give."""
    for value in [*values, Unprintable()]:
        with pytest.raises(HpfraccError, match=r"^x\b.*(give|use|neither)"):
            read(value)


def test_a_misspelt_choice_is_guessed():
    """The closest option is named."""
    with pytest.raises(InvalidInputError, match="did you mean 'right'"):
        _reading.choice("side", "rihgt", ("left", "right"))


def test_long_values_are_cut():
    """A message has at most a line of the value."""
    with pytest.raises(InvalidInputError) as caught:
        _reading.whole("n", list(range(1000)))
    assert len(str(caught.value)) < 200
