"""Transfer functions: arithmetic, values, and what they are converted to."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from scipy import signal

from hpfracc import control
from hpfracc.errors import InvalidInputError, ShapeError, SolveError, UnsupportedDtypeError

s = control.s
POINTS = np.array([1j, 0.3 + 2j, 5.0, -0.2 + 0.1j])


def test_values_are_those_of_the_formula():
    plant = (s**0.5 + 2) / (s**1.5 + 0.3 * s**0.7 + 1) * control.delay(0.1)
    z = POINTS.astype(complex)
    assert np.allclose(plant(z), (z**0.5 + 2) / (z**1.5 + 0.3 * z**0.7 + 1) * np.exp(-0.1 * z), rtol=1e-14)
    assert str(plant) == "(s^0.5 + 2)/(s^1.5 + 0.3 s^0.7 + 1) e^(-0.1 s)"
    assert np.isclose(complex(plant(0.0)), 2.0)
    assert (1 / s)(0.0) == math.inf
    assert (1 / s**0.5 * (2 + 1j))(4.0) == 1 + 0.5j


def test_values_at_the_ends():
    """At infinity and where powers overflow the leading terms decide."""
    plant = (s**2 + 1) / (2 * s**2 + 3)
    assert np.allclose(plant([np.inf, 1j * np.inf, 1e300j, -1e200]), 0.5)
    assert (1 / (s + 1))(math.inf) == 0.0 and (s**0.5)(math.inf) == math.inf
    assert (s**-3 / (s**-3 + 1))(1e-300) == 1.0
    assert (control.delay(1.0) / (s + 1))(math.inf) == 0.0 and np.isnan(control.delay(1.0)(1j * math.inf))


def test_small_coefficients_stay():
    """Only what cancels is dropped: (s + 1e6)^3 keeps s^3 beside 1e18."""
    cube = (s + 1e6) ** 3
    assert len(cube.numerator) == 4 and cube(1e9) == pytest.approx((1e9 + 1e6) ** 3)
    w = np.linspace(0.1, 10.0, 9)
    assert np.abs(control.pade(1.0, 12)(1j * w) - np.exp(-1j * w)).max() < 1e-6
    assert ((s + 0.1) - s).numerator == {(0.0, 0.0): 0.1} and not ((0.1 + 0.2 - s) + (s - 0.3)).numerator


def test_thirds_are_thirds():
    """1/3 + 1/3 is 2/3, whichever sums it comes from: else two terms would be one power apart by rounding."""
    third = s ** (1 / 3)
    assert not ((third + 1) * (third - 1) - (s ** (2 / 3) - 1)).numerator
    both = 1 / ((third - 1.2) ** 2 + 3 * s ** (2 / 3))
    assert len(both.denominator) == 3 and control.is_stable(both)
    found = control.poles(both)  # 4 w^2 - 2.4 w + 1.44 with w = s^(1/3)
    np.testing.assert_allclose(found, [-0.216], atol=1e-12)
    _, _, below = both.polynomials()
    np.testing.assert_allclose(below, [4.0, -2.4, 1.44])
    edge = control.is_stable(1 / (s ** (2 / 3) - math.sqrt(3.0) * third + 1))  # roots at 30 degrees
    assert not edge and edge.criterion == "argument principle"


def test_arithmetic_is_that_of_values():
    a, b = (s**0.3 + 1) / (s + 2), 3 * control.delay(0.2) / (s**1.2 - 1)
    for one, values in (
        (a + b, a(POINTS) + b(POINTS)),
        (a - 2, a(POINTS) - 2),
        (2 - a, 2 - a(POINTS)),
        (a * b, a(POINTS) * b(POINTS)),
        (a / (1 + a), a(POINTS) / (1 + a(POINTS))),
        (a**3, a(POINTS) ** 3),
        (a**-1, 1 / a(POINTS)),
        (s**0.5 * s**-0.2, POINTS.astype(complex) ** 0.3),
        (control.feedback(a, b), a(POINTS) / (1 + a(POINTS) * b(POINTS))),
        (control.series(a, b), a(POINTS) * b(POINTS)),
        (control.parallel(a, b), a(POINTS) + b(POINTS)),
    ):
        assert np.allclose(one(POINTS), values, rtol=1e-12)
    assert a == (s**0.3 + 1) * 2 / (2 * s + 4)
    # A loop closed by hand has no factors too many.
    assert (a / (1 + a)).denominator == control.feedback(a).denominator


def test_state_space_both_ways():
    plant = (s**0.5 + 2) / (s**1.5 + 0.3 * s**0.5 + 1) + 0.5
    space = plant.to_state_space()
    assert space.order == pytest.approx(0.5)
    assert np.allclose(space.to_transfer_function()(POINTS), plant(POINTS))
    values = [space.C @ np.linalg.inv(z**0.5 * np.eye(3) - space.A) @ space.B + space.D for z in POINTS.astype(complex)]
    assert np.allclose(np.ravel(values), plant(POINTS))
    two = control.StateSpace(np.diag([-1.0, -2.0]), np.eye(2), np.eye(2), np.zeros((2, 2)), 0.5).to_transfer_function()
    assert two.shape == (2, 2)
    assert np.isclose(two[0, 0](4.0), 1 / 3)
    assert np.isclose(two[0, 1](4.0), 0.0)


def test_other_libraries():
    plant = (s + 2) / (s**2 + 0.5 * s + 3)
    found = plant.to_scipy()
    w, values = signal.freqresp(found, [0.5, 2.0])
    assert np.allclose(values, plant(1j * w))
    assert control.TransferFunction.from_polynomials(found.num, found.den) == plant


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: (s + 1) ** 0.5,
        lambda: s / 0,
        lambda: control.TransferFunction({0.0: 1.0}, {}),
        lambda: control.TransferFunction({"x": 1.0}, {0.0: 1.0}),
        lambda: control.TransferFunction({0.0: math.nan}, {0.0: 1.0}),
        lambda: control.TransferFunction([1.0], {0.0: 1.0}),
        lambda: control.delay(-1.0),
        lambda: s("x"),
        lambda: (s**0.5).to_scipy(),
        lambda: (1 / (s + control.delay(1.0))).to_state_space(),
        lambda: s.to_state_space(),
        lambda: control.StateSpace(np.eye(2), np.eye(3), np.eye(2), np.eye(2)),
        lambda: control.feedback("x"),
        lambda: control.bode([[1, "x"]]),
    ],
)
def test_bad_input(wrong):
    with pytest.raises((InvalidInputError, ShapeError, UnsupportedDtypeError)):
        wrong()


@pytest.mark.parametrize(
    "value", [10**400, np.timedelta64(3, "s"), Decimal("NaN"), np.ma.masked_array([1.0, 2.0], [0, 1])]
)
@pytest.mark.parametrize(
    "call",
    [
        control.hinf_norm,
        control.bode,
        control.is_stable,
        control.feedback,
        control.margins,
        lambda value: control.TransferFunction({0.0: value}, {0.0: 1.0}),
        lambda value: control.TransferFunction.from_polynomials(value, [1.0]),
        lambda value: control.StateSpace([[-1.0]], [[1.0]], value, [[0.0]]),
        lambda value: control.FOPID(value),
    ],
)
def test_numbers_and_arrays_that_are_none(call, value):
    """Neither raw errors, nor values that a mask hides."""
    with pytest.raises((InvalidInputError, ShapeError, UnsupportedDtypeError)):
        call(value)


def test_decimals_are_numbers():
    assert Decimal("1.5") * s == s * 1.5 == control.TransferFunction({1.0: Decimal("1.5")}, {0.0: 1})
    law = control.FOPID(Decimal(2), Ki=Decimal("0.5"))
    assert law.transfer_function() == 2.0 + 0.5 / s


def test_coefficients_that_overflow_are_refused():
    """They are no rounding of 0."""
    large = control.TransferFunction({0.5: 1e200}, {0.0: 1.0})
    with pytest.raises(InvalidInputError, match="inf"):
        large * large


def test_powers_that_are_nearly_equal():
    """Zeros of such sums may be beyond all numbers: they are counted, not returned, and margins are found."""
    system = 1 / (s ** (1.0 + 1e-5 * math.sqrt(2.0)) + 5 * s + 1 + s**0.37)
    assert control.is_stable(system)  # positive coefficients, and powers below 2
    assert not control.is_stable(1 / (s ** (1.0 + 1e-5 * math.sqrt(2.0)) - 5 * s + 1 + s**0.37))
    with pytest.raises(SolveError, match="make these powers equal"):
        control.poles(system)
    assert control.margins(control.FOPID(2.0, 3.0, 0.99999).transfer_function() * 0.5).phase > 0.0


def test_tuning_passes_over_orders_that_are_nearly_whole():
    """A plant without dynamics takes any order, and the search comes close to 1."""
    assert control.tune(0.5, horizon=0.5, rng=1).message
