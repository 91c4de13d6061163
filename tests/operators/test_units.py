"""Quantities of pint and astropy: operators keep their units, and everything else refuses them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import UnsupportedDtypeError

T = np.linspace(0.0, 2.0, 33)
X = np.linspace(0.0, 1.0, 9)
F = np.sin(T) + 1.0
#: Operators whose result is proportional to a power of time, and others.
SCALED = [
    hf.Caputo(0.5),
    hf.RiemannLiouville(1.4),
    hf.GrunwaldLetnikov(0.5),
    hf.Marchaud(0.5),
    hf.Weyl(0.5),
    hf.Riesz(1.5),
    hf.FractionalLaplacian(1.5, "periodic"),
    hf.RiemannLiouvilleIntegral(0.7),
    hf.WeylIntegral(0.7),
    hf.Hilfer(0.5, 0.5),
    hf.RieszFeller(1.5, 0.2),
]
OTHERS = [
    hf.CaputoFabrizio(0.5),
    hf.AtanganaBaleanu(0.5),
    hf.AtanganaBaleanuRiemann(0.5),
    hf.AtanganaBaleanuIntegral(0.5),
    hf.CaputoFabrizioIntegral(0.5),
    hf.TemperedCaputo(0.5, 1.0),
    hf.TemperedRiemannLiouville(0.5, 1.0),
    hf.TemperedIntegral(0.5, 1.0),
    hf.Hadamard(0.5),
    hf.CaputoHadamard(0.5),
    hf.HadamardIntegral(0.5),
    hf.PsiCaputo(0.5, np.exp),
    hf.VariableOrder(lambda t: 0.5 + 0.1 * t),
    hf.Katugampola(0.5, 2.0),
    hf.CaputoKatugampola(0.5, 2.0),
    hf.KatugampolaIntegral(0.5, 2.0),
    hf.ErdelyiKober(0.5),
    hf.ErdelyiKoberIntegral(0.5),
    hf.Prabhakar(0.5),
    hf.PrabhakarIntegral(0.5),
    hf.DistributedOrder(),
    hf.SonineDerivative(lambda t: t**-0.5),
    hf.SonineIntegral(lambda t: t**-0.5),
]


@pytest.fixture(params=["pint", "astropy"], scope="module")
def quantity(request: pytest.FixtureRequest) -> Callable[[Any, str], Any]:
    if request.param == "pint":
        made: Callable[[Any, str], Any] = pytest.importorskip("pint").UnitRegistry().Quantity
        return made
    return pytest.importorskip("astropy.units").Quantity


@pytest.fixture(autouse=True)
def no_warnings():
    """A unit that is stripped is a warning of pint."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def numbers(value: Any, unit: Any) -> Any:
    """In ``unit``, by the library of the quantity; fails if the dimensions differ."""
    return value.to(unit).magnitude if hasattr(value, "magnitude") else value.to_value(unit)


def unit_of(value: Any) -> Any:
    return value.units if hasattr(value, "units") else value.unit


@pytest.mark.parametrize("operator", SCALED, ids=lambda each: type(each).__name__)
def test_the_same_samples_in_other_units_are_the_same_result(operator, quantity):
    """Metres and seconds, centimetres and minutes: equal after the conversion of the units' library."""
    power = operator.alpha if operator.kind == "integral" else -operator.alpha
    unit = unit_of(quantity(1.0, "m") * quantity(1.0, "s") ** power)
    found = operator(quantity(F, "m"), quantity(T, "s"))
    np.testing.assert_allclose(numbers(found, unit), operator(F, T), rtol=1e-12, atol=1e-14)
    other = operator(quantity(100.0 * F, "cm"), quantity(T / 60.0, "min"))
    scale = np.abs(numbers(found, unit)[1:-1]).max()  # infinite at an end for Riemann-Liouville and Riesz-Feller
    np.testing.assert_allclose(numbers(other, unit), numbers(found, unit), rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("operator", OTHERS, ids=lambda each: type(each).__name__)
def test_operators_without_a_unit_refuse_quantities(operator, quantity):
    with pytest.raises(UnsupportedDtypeError, match="magnitude"):
        operator(F, quantity(T + 1.0, "s"))


def test_every_operator_is_in_one_of_the_lists():
    made = {type(each) for each in (*SCALED, *OTHERS)}
    public = {getattr(hf, name) for name in hf.__all__}
    wanted = {each for each in public if isinstance(each, type) and issubclass(each, hf.FractionalOperator)}
    assert wanted - {hf.FractionalOperator} == made
    assert {kind for kind in made if kind.scales} == {type(each) for each in SCALED}


def test_a_plain_number_has_no_unit(quantity):
    """Samples, points or step alone may be quantities; several rows along any axis."""
    plain = hf.caputo(F, T, 0.5)
    one = quantity(1.0, "m")
    np.testing.assert_allclose(numbers(hf.caputo(quantity(F, "m"), T, 0.5), "m"), plain, rtol=1e-12, atol=1e-14)
    step = quantity(float(T[1]), "s")
    root = unit_of(quantity(1.0, "s") ** -0.5)
    np.testing.assert_allclose(numbers(hf.caputo(F, step=step, alpha=0.5), root), plain, rtol=1e-12, atol=1e-14)
    table = hf.caputo(quantity(np.stack([F, F], axis=1), "m"), quantity(T, "s"), 0.5, axis=0)
    np.testing.assert_allclose(
        numbers(table[:, 1], unit_of(one * quantity(1.0, "s") ** -0.5)), plain, rtol=1e-12, atol=1e-14
    )


def solved(fun: Any = lambda t, y: -y, span: Any = (0.0, 1.0), y0: Any = (1.0,), **options: Any) -> Any:
    return hf.solve_fode(fun, span, y0, options.pop("alpha", 0.5), **{"step": 0.25, **options})


def evolved(u0: Any = X, span: Any = (0.0, 1.0), x: Any = X, factor: Any = 1.0, reaction: Any = None) -> Any:
    return hf.solve_fpde(reaction, span, u0, x=x, space=hf.pde.Diffusion(factor), boundary="no_flux", step=0.25)


def simulated(drift: Any = lambda t, y: -y, noise: Any = 0.1, y0: Any = (1.0,), span: Any = (0.0, 1.0)) -> Any:
    return hf.solve_fsde(drift, noise, span, y0, step=0.25, paths=2, rng=0)


#: Calls with a quantity somewhere. ``q`` makes a quantity of metres.
REFUSED: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "points of a callable": lambda q: hf.caputo(np.sin, q(T), 0.5),
    "order": lambda q: hf.caputo(F, T, q(0.5)),
    "origin": lambda q: hf.caputo(F, T, 0.5, origin=q(0.0)),
    "full output": lambda q: hf.caputo(q(F), T, 0.5, full_output=True),
    "several orders": lambda q: hf.caputo(q(F), T, np.array([0.5, 0.6])),
    "several axes": lambda q: hf.fractional_laplacian(np.outer(X, X), [q(X), q(X)], 1.5, axis=(0, 1)),
    "stream": lambda q: hf.Caputo(0.5).stream(0.1).push(q(F)),
    "difference": lambda q: hf.fractional_difference(q(F), 0.5),
    "table": lambda q: hf.FractionalDifferencer(0.5).fit_transform(q(F[:, None])),
    "smooth": lambda q: hf.smooth_derivative(q(F), T, 0.5),
    "Fourier": lambda q: hf.frft(q(F), 0.5),
    "span": lambda q: solved(span=(0.0, q(1.0))),
    "span as an array": lambda q: solved(span=q([0.0, 1.0])),
    "y0": lambda q: solved(y0=q([1.0])),
    "list of y0": lambda q: solved(y0=[q(1.0)]),
    "right-hand side": lambda q: solved(lambda t, y: q(-y)),
    "parameter": lambda q: solved(lambda t, y, k: -k * y, args=(q(1.0),)),
    "times": lambda q: solved(t_eval=q([0.5, 1.0])),
    "step": lambda q: solved(step=q(0.1)),
    "order of an equation": lambda q: solved(alpha=q(0.5)),
    "fit": lambda q: hf.fit_fode(lambda t, y, k: -k * y, T, q(F), parameters={"k": 1.0}, alpha=0.6, y0=[1.0]),
    "field": lambda q: evolved(q(X)),
    "field's span": lambda q: evolved(span=(0.0, q(1.0))),
    "grid": lambda q: evolved(x=q(X)),
    "diffusivity": lambda q: evolved(factor=q(1.0)),
    "reaction": lambda q: evolved(reaction=lambda t, u: q(-u)),
    "drift": lambda q: simulated(lambda t, y: q(-y)),
    "noise": lambda q: simulated(noise=q(0.1)),
    "start of paths": lambda q: simulated(y0=q([1.0])),
    "span of paths": lambda q: simulated(span=(0.0, q(1.0))),
    "Brownian motion": lambda q: hf.fbm(8, 0.7, T=q(1.0)),
    "Hurst": lambda q: hf.hurst(q(np.cumsum(F))),
    "Mittag-Leffler": lambda q: hf.mittag_leffler(q(-T), 0.5),
    "Mittag-Leffler of a number": lambda q: hf.mittag_leffler(q(-1.0), 0.5),
    "Mittag-Leffler of a matrix": lambda q: hf.mittag_leffler_matrix(q(np.eye(2)), 0.5),
    "gamma": lambda q: hf.gamma(q(T + 1.0)),
    "Wright": lambda q: hf.wright(q(-T), 0.5, 1.0),
    "times of a response": lambda q: hf.control.step_response(1 / (hf.control.s**0.5 + 1), q(T)),
    "frequencies": lambda q: hf.control.bode(1 / (hf.control.s**0.5 + 1), q(T + 1.0)),
    "engine": lambda q: hf.engine.causal_convolution(q(F), F),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_unit_is_lost(name, quantity):
    """The message says what to write."""
    with pytest.raises(UnsupportedDtypeError, match=r"\.magnitude|\.to_value"):
        REFUSED[name](lambda value: quantity(value, "m"))


def test_units_with_an_offset_and_masks_are_refused():
    """The product of degrees Celsius and a power of time has no meaning; a mask would be lost."""
    quantity = pytest.importorskip("pint").UnitRegistry().Quantity
    with pytest.raises(UnsupportedDtypeError, match="offset unit"):
        hf.caputo(quantity(F, "degC"), quantity(T, "s"), 0.5)
    with pytest.raises(UnsupportedDtypeError, match="MaskedArray"):
        hf.caputo(quantity(np.ma.masked_greater(F, 1.5), "m"), quantity(T, "s"), 0.5)


def test_labels_beside_units_are_refused():
    pd, quantity = pytest.importorskip("pandas"), pytest.importorskip("pint").UnitRegistry().Quantity
    with pytest.raises(UnsupportedDtypeError, match="a labelled Series"):
        hf.caputo(pd.Series(F), quantity(T, "s"), 0.5)


def test_masked_arrays_of_astropy_are_refused():
    masked = pytest.importorskip("astropy.utils.masked").Masked
    with pytest.raises(ValueError, match="mask would be lost"):
        hf.caputo(masked(F, mask=F > 1.5), T, 0.5)
