"""Bad input is refused with a typed error that names the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

T = np.linspace(0.0, 1.0, 11)
X = T**2

CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no order": (lambda: hf.caputo(X, T), InvalidInputError, "alpha is missing; give the order after"),
    "no order, and it stands where the points belong": (
        lambda: hf.caputo(X, 0.5),
        ShapeError,
        r"t=0.5 is a single number.*If it is the order, it comes after the points",
    ),
    "points and order swapped": (lambda: hf.caputo(X, 0.5, T), ShapeError, "it comes after the points"),
    "points and order swapped, of a function": (
        lambda: hf.caputo(np.sin, 0.5, T),
        ShapeError,
        "the arguments are swapped",
    ),
    "nan order": (lambda: hf.caputo(X, T, math.nan), InvalidInputError, "alpha=nan: give a finite number"),
    "infinite order": (lambda: hf.caputo(X, T, math.inf), InvalidInputError, "alpha=inf: give a finite number"),
    "word for an order": (lambda: hf.caputo(X, T, "half"), InvalidInputError, "'half' is not a number"),
    "complex order": (lambda: hf.caputo(X, T, 0.5j), InvalidInputError, "is not a number"),
    "two orders": (lambda: hf.caputo(X, T, np.array([0.5, 0.6])), ShapeError, r"alpha has shape \(2,\)"),
    "wrong ceiling": (lambda: hf.caputo(X, T, 0.5, ceiling=2), InvalidInputError, r"alpha=0.5 is outside \(1, 2\]"),
    "unknown method": (lambda: hf.caputo(X, T, 0.5, method="l3"), InvalidInputError, "no method 'l3'.*l1-2, l1"),
    "no grid": (lambda: hf.caputo(X, alpha=0.5), InvalidInputError, "neither t nor step"),
    "two grids": (lambda: hf.caputo(X, T, 0.5, step=0.1), InvalidInputError, "both t and step"),
    "nan in the grid": (
        lambda: hf.caputo(X, np.where(T == 0.5, np.nan, T), 0.5),
        InvalidInputError,
        r"t\[5\] is nan; every point",
    ),
    "inf in the grid": (
        lambda: hf.caputo(X, np.append(T[:-1], np.inf), 0.5),
        InvalidInputError,
        r"t\[10\] is inf; every point",
    ),
    "falling grid": (lambda: hf.caputo(X, T[::-1], 0.5), InvalidInputError, r"goes back at t\[1\]=0.9 after t\[0\]=1"),
    "repeated point": (
        lambda: hf.caputo(X, np.sort(np.append(T[:-1], 0.5)), 0.5),
        InvalidInputError,
        r"is repeated at t\[6\]=0.5.*drop repeated ones",
    ),
    "lengths": (lambda: hf.caputo(X[:-1], T, 0.5), ShapeError, "t has 11 points but f has 10 samples"),
    "grid of two axes": (lambda: hf.caputo(X, T[None], 0.5), ShapeError, r"t has shape \(1, 11\)"),
    "complex grid": (lambda: hf.caputo(X, T * 1j, 0.5), InvalidInputError, "not an array of real numbers"),
    "no samples": (lambda: hf.caputo([], [], 0.5), ShapeError, "t has no points"),
    "one sample": (lambda: hf.caputo([1.0], [0.0], 0.5), ShapeError, "needs at least 2 samples, but 1 was given"),
    "a number for samples": (lambda: hf.caputo(3.0, T, 0.5), ShapeError, "f is a single number"),
    "axis": (lambda: hf.caputo(X, T, 0.5, axis=1), ShapeError, "axis=1 is not an axis.*use -1 to 0"),
    "step of zero": (lambda: hf.caputo(X, step=0.0, alpha=0.5), InvalidInputError, "step=0.0: give a finite"),
    "nan step": (lambda: hf.caputo(X, step=math.nan, alpha=0.5), InvalidInputError, "step=nan: give a finite number"),
    "origin elsewhere": (
        lambda: hf.caputo(X, T, 0.5, origin=-1.0),
        InvalidInputError,
        r"origin=-1 but the samples start at t\[0\]=0",
    ),
    "half precision": (lambda: hf.caputo(X.astype("float16"), T, 0.5), UnsupportedDtypeError, "float16.*convert"),
    "words": (lambda: hf.caputo(np.array(["a"] * 11), T, 0.5), UnsupportedDtypeError, "are not supported"),
    "masked": (lambda: hf.caputo(np.ma.array(X), T, 0.5), InvalidInputError, "masked array.*filled"),
    "factor of samples": (lambda: hf.caputo(X, T, 0.5, factor=1.5), InvalidInputError, "factor=1.5 is for callables"),
    "rtol of samples": (lambda: hf.caputo(X, T, 0.5, rtol=1e-3), InvalidInputError, "rtol=0.001 is for callables"),
    "callable without points": (lambda: hf.caputo(np.sin, alpha=0.5), InvalidInputError, "give t, the points"),
    "callable with a step": (lambda: hf.caputo(np.sin, step=0.1, alpha=0.5), InvalidInputError, "step= is for samples"),
    "before the origin": (
        lambda: hf.caputo(np.sin, np.linspace(-1.0, 1.0, 5), 0.5),
        InvalidInputError,
        r"t\[0\]=-1 lies before the origin 0",
    ),
    "unsorted points": (lambda: hf.caputo(np.sin, [0.0, 2.0, 1.0], 0.5), InvalidInputError, r"goes back at t\[2\]=1"),
    "callable's method": (lambda: hf.caputo(np.sin, T, 0.5, method="l1"), InvalidInputError, "is for samples"),
    "scalar callable": (lambda: hf.caputo(lambda t: 1.0, T, 0.5), ShapeError, r"shape \(\) for 16 points.*vectorize"),
    "wrong shape": (lambda: hf.caputo(lambda t: t[:-1], T, 0.5), ShapeError, r"returned shape \(15,\) for 16 points"),
    "nan callable": (
        lambda: hf.caputo(lambda t: np.where(t > 0.9, np.nan, t), T, 0.5),
        InvalidInputError,
        "f is not finite at t=0.9",
    ),
    "factor too low": (
        lambda: hf.caputo(np.sin, T, 0.5, factor=-1.0),
        InvalidInputError,
        "factor=-1.0: give.*above",
    ),
    "rtol of zero": (lambda: hf.caputo(np.sin, T, 0.5, rtol=0.0), InvalidInputError, "rtol=0.0: give.*below 1"),
    "Caputo-Fabrizio above 1": (
        lambda: hf.caputo_fabrizio(X, T, 1.5),
        InvalidInputError,
        "alpha=1.5: the Caputo-Fabrizio derivative is defined for 0 < alpha < 1",
    ),
    "Atangana-Baleanu at 0": (lambda: hf.atangana_baleanu(X, T, 0.0), InvalidInputError, "alpha=0: .* 0 < alpha < 1"),
    "Atangana-Baleanu below 0": (lambda: hf.atangana_baleanu_integral(X, T, -0.5), InvalidInputError, "alpha=-0.5"),
    "normalisation": (
        lambda: hf.caputo_fabrizio(X, T, 0.5, normalisation=lambda a: -a),
        InvalidInputError,
        "normalisation=-0.5: give a finite number above 0",
    ),
    "normalisation of two numbers": (
        lambda: hf.caputo_fabrizio(X, T, 0.5, normalisation=[1.0, 2.0]),
        InvalidInputError,
        r"normalisation=\[1.0, 2.0\] is not a number",
    ),
    "normalisation by a word": (
        lambda: hf.atangana_baleanu(np.cos, T, 0.5, normalisation=lambda a: "large"),
        InvalidInputError,
        "normalisation='large' is not a number",
    ),
    "bounded memory of a pole": (
        lambda: hf.caputo_fabrizio(lambda t: t**-0.5, T[1:], 0.5, factor=-0.5),
        InvalidInputError,
        "f is infinite at the origin",
    ),
    "method of a bounded memory": (
        lambda: hf.atangana_baleanu(np.sin, T, 0.5, method="spectral"),
        InvalidInputError,
        "a callable takes 'auto' or 'quadrature'",
    ),
    "Marchaud of order 0": (lambda: hf.marchaud(X, T, 0.0), InvalidInputError, "alpha=0: the order of the Marchaud"),
    "Marchaud before": (lambda: hf.marchaud(X, T, 0.5, before="last"), InvalidInputError, "before='last' is not known"),
    "Marchaud before nan": (lambda: hf.marchaud(X, T, 0.5, before=math.nan), InvalidInputError, "before=nan: give"),
    "Marchaud with a factor": (
        lambda: hf.marchaud(np.sqrt, T, 0.5, before=1.0, factor=0.5),
        InvalidInputError,
        "factor=0.5 with before=1.0",
    ),
    "negative rate": (lambda: hf.tempered(X, T, 0.5, -1.0), InvalidInputError, "rate=-1.0: give a finite"),
    "nan rate": (lambda: hf.tempered_caputo(X, T, 0.5, math.nan), InvalidInputError, "rate=nan: give a finite"),
    "tempered of order 0": (lambda: hf.tempered(X, T, -0.5), InvalidInputError, "use tempered_integral"),
    "centred above 2": (
        lambda: hf.tempered(X, T, 2.5, centred=True),
        InvalidInputError,
        "alpha=2.5: the centred tempered derivative is defined for 0 < alpha <= 2",
    ),
    "tempered too far": (
        lambda: hf.tempered(np.sin, np.linspace(0.0, 1.0, 3000), 0.5, 1e6),
        InvalidInputError,
        "needs 3000 polynomials.*give samples",
    ),
    "orders in two intervals": (
        lambda: hf.variable_order(X, T, 0.5 + T),
        InvalidInputError,
        r"alpha runs from 0.5 to 1.5; a derivative of variable order keeps within one interval",
    ),
    "orders too few": (
        lambda: hf.variable_order(X, T, np.full(3, 0.5)),
        ShapeError,
        r"alpha has shape \(3,\); it must have one order for each of 11 samples",
    ),
    "an order that is nan": (
        lambda: hf.variable_order(X, T, lambda t: np.where(t > 0.5, np.nan, 0.5)),
        InvalidInputError,
        "alpha is nan at a point",
    ),
    "no variable order": (lambda: hf.variable_order(X, T), InvalidInputError, "alpha=None is not an order"),
    "order at nowhere": (lambda: hf.variable_order(X, T, 0.5, at="x"), InvalidInputError, "at='x': use 't'"),
    "order at s above 1": (
        lambda: hf.variable_order(X, T, 1.5, at="s"),
        InvalidInputError,
        r"takes orders in \(0, 1\]",
    ),
    "order of the lag of a callable": (
        lambda: hf.variable_order(np.sin, T, 0.5, at="t-s"),
        InvalidInputError,
        "takes samples, not a callable",
    ),
    "rule of the order at s": (
        lambda: hf.variable_order(X, T, 0.5, at="s", method="l1-2"),
        InvalidInputError,
        "method='l1-2' is for at='t'",
    ),
    "definition": (
        lambda: hf.create_fractional_derivative(0.5, "caputto"),
        InvalidInputError,
        "no derivative is defined as 'caputto'; did you mean 'caputo'",
    ),
    "option": (
        lambda: hf.create_fractional_derivative(0.5, "caputo", colour="red"),
        InvalidInputError,
        "Caputo cannot be made with",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_the_value_and_the_remedy(name: str):
    """Each mistake has its own typed error, which is a ValueError or TypeError too."""
    call, kind, words = CASES[name]
    with pytest.raises(kind, match=words) as caught:
        call()
    assert isinstance(caught.value, ValueError | TypeError)


def test_a_traced_order_of_a_callable_under_a_mittag_leffler_memory_is_refused():
    """Its kernel has no derivative in the order there; samples have."""
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match="takes a plain order.*or samples"):
        hf.atangana_baleanu(torch.sin, torch.tensor([0.5]), torch.tensor(0.5))


def test_what_a_callable_raises_is_kept_with_a_note():
    """An error inside f comes through as it is, with a note on how f was called."""
    with pytest.raises(TypeError) as caught:
        hf.caputo(math.sin, T, 0.5)
    assert "np.vectorize" in "".join(caught.value.__notes__)
    np.testing.assert_allclose(hf.caputo(np.vectorize(math.sin), T, 0.5), hf.caputo(np.sin, T, 0.5), atol=1e-13)


def test_a_traced_grid_needs_a_step():
    """Under jit the points cannot be looked at: that is said, and a step works."""
    jax = pytest.importorskip("jax")
    with pytest.raises(InvalidInputError, match="being traced by jax.*give step="):
        jax.jit(lambda x, t: hf.caputo(x, t, 0.5))(X, T)
    np.testing.assert_allclose(jax.jit(lambda x: hf.caputo(x, step=0.1, alpha=0.5))(X), hf.caputo(X, T, 0.5), rtol=1e-4)


def test_rows_of_different_lengths_are_refused():
    """A ragged list is an error of ours, with what to do."""
    with pytest.raises(ShapeError, match="rows of one length"):
        hf.caputo([[1.0, 2.0], [3.0]], step=0.1, alpha=0.5)


#: What errors call each operator, and one that has too few samples with the fewest it works with.
FEWEST = {
    "Caputo derivative": (lambda x, **grid: hf.caputo(x, alpha=0.5, **grid), 2),
    "Riemann-Liouville derivative": (lambda x, **grid: hf.riemann_liouville(x, alpha=1.5, **grid), 5),
    "Riemann-Liouville integral": (lambda x, **grid: hf.riemann_liouville_integral(x, alpha=0.5, **grid), 2),
    "tempered integral": (lambda x, **grid: hf.tempered_integral(x, alpha=0.5, **grid), 2),
    "Caputo-Fabrizio integral": (lambda x, **grid: hf.caputo_fabrizio_integral(x, alpha=0.5, **grid), 2),
    "Atangana-Baleanu integral": (lambda x, **grid: hf.atangana_baleanu_integral(x, alpha=0.5, **grid), 2),
    "Marchaud derivative": (lambda x, **grid: hf.marchaud(x, alpha=0.5, **grid), 2),
    "psi-Caputo derivative": (lambda x, **grid: hf.psi_caputo(x, alpha=0.5, psi=np.sinh, **grid), 2),
    "derivative of variable order": (lambda x, **grid: hf.variable_order(x, alpha=0.5, **grid), 2),
    "Hadamard derivative": (lambda x, **grid: hf.hadamard(x, alpha=0.5, origin=1.0, **grid), 2),
    "Hadamard integral": (lambda x, **grid: hf.hadamard_integral(x, alpha=0.5, origin=1.0, **grid), 2),
    "Caputo-Hadamard derivative": (lambda x, **grid: hf.caputo_hadamard(x, alpha=0.5, origin=1.0, **grid), 2),
    "Weyl integral": (lambda x, **grid: hf.weyl_integral(x, alpha=0.5, **grid), 1),
    "Grünwald-Letnikov derivative": (lambda x, **grid: hf.grunwald_letnikov(x, alpha=0.5, **grid), 1),
}


@pytest.mark.parametrize("name", FEWEST)
def test_too_few_samples_are_refused_with_what_this_operator_needs(name: str):
    """None, one and two samples: its own name, how many it needs by what it would take, and how many there are."""
    apply, least = FEWEST[name]
    for count in range(least):
        words = f"the {name} of order .* needs at least {least} samples?, but {count} w.* given; sample more finely"
        with pytest.raises(ShapeError, match=words):
            apply(np.ones(count), step=0.5)
    assert apply(np.ones(least), step=0.5).shape == (least,)


@pytest.mark.parametrize("operator", [hf.grunwald_letnikov, hf.riesz, hf.fractional_laplacian])
def test_one_point_does_not_tell_the_step(operator: Any):
    """One sample at one point is refused where the answer depends on the step, which used to be taken for 1."""
    with pytest.raises(ShapeError, match="needs the step, which one point does not define; give step="):
        operator(np.ones(1), np.zeros(1), 0.5)
    assert np.isfinite(operator(np.ones(1), step=0.5, alpha=0.5)).all()


def test_arrays_of_the_other_byte_order_are_what_they_hold():
    """Big-endian samples, points, orders and arguments give the answers of the machine's own."""
    t = np.linspace(0.0, 1.0, 30)
    x, swapped = np.sin(t), t.astype(">f8")
    right = hf.caputo(x, t, 0.5)
    np.testing.assert_array_equal(hf.caputo(x.astype(">f8"), swapped, 0.5), right)
    np.testing.assert_array_equal(hf.caputo(np.sin, swapped, 0.5), hf.caputo(np.sin, t, 0.5))
    assert hf.caputo(x.astype(">f4"), t, 0.5).dtype == np.float32
    np.testing.assert_allclose(hf.variable_order(x.astype(">c16"), t, (0.5 + 0 * t).astype(">f8")).real, right)
    np.testing.assert_array_equal(
        hf.fractional_difference(np.arange(9).astype(">i4"), 0.5), hf.fractional_difference(np.arange(9.0), 0.5)
    )
    np.testing.assert_array_equal(hf.mittag_leffler(-swapped, 0.5), hf.mittag_leffler(-t, 0.5))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t, gaps: hf.caputo(gaps, t, 0.5), "f.data\\[keep\\] and t\\[keep\\]"),
        (lambda t, gaps: hf.caputo(t, gaps, 0.5), "t.data\\[keep\\] and f\\[keep\\]"),
        (lambda t, gaps: hf.caputo(np.sin, gaps, 0.5), "t is a masked array"),
        (lambda t, gaps: hf.fractional_difference(gaps, 0.5), "with their times"),
        (lambda t, gaps: hf.variable_order(t, t, gaps), "alpha is a masked array"),
        (lambda t, gaps: hf.psi_caputo(t, t, 0.5, gaps), "psi is a masked array"),
    ],
)
def test_masked_arrays_are_refused_with_the_way_to_drop_their_gaps(call: Any, words: str):
    """The message names what has to lose the same entries; following it gives an answer."""
    t = np.linspace(0.0, 1.0, 12)
    gaps = np.ma.array(t, mask=t > 0.8)
    with pytest.raises(InvalidInputError, match=words):
        call(t, gaps)
    keep = ~np.ma.getmaskarray(gaps)
    assert hf.caputo(gaps.data[keep], t[keep], 0.5).shape == (keep.sum(),)


@pytest.mark.parametrize("operator", [hf.tempered, hf.tempered_caputo, hf.tempered_integral, hf.erdelyi_kober_integral])
def test_a_callable_of_a_wrong_shape_inside_another_function(operator: Callable[..., Any]):
    """Operators that multiply f by a function of t refuse it like the others."""
    with pytest.raises(ShapeError, match=r"f returned shape \(3,\) for"):
        operator(lambda t: np.ones(3), [0.5, 1.0], 0.5)


@pytest.mark.parametrize("shape", [(2,), (3, 1), (2, 60)])
def test_marchaud_before_of_a_wrong_shape(shape: tuple[int, ...]):
    """It is a number, or one for each row, with an axis of length 1 for the points."""
    f, t = np.ones((2, 60)), np.linspace(0.0, 1.0, 60)
    with pytest.raises(ShapeError, match="before has shape"):
        hf.marchaud(f, t, 0.5, before=np.ones(shape))
    assert not hf.marchaud(f, t, 0.5, before=np.ones((2, 1))).any()
    assert not hf.marchaud(f, t, 0.5, before=np.array(1.0)).any()


@pytest.mark.parametrize("operator", [hf.weyl, hf.weyl_integral, hf.riesz])
def test_periodic_callables_at_whole_numbers(operator: Callable[..., Any]):
    """Points may be integers, as for the other operators."""
    options: dict[str, Any] = {"alpha": 0.5, "period": 2.0 * np.pi}
    options |= {"method": "spectral"} if operator is hf.riesz else {}
    at = np.array([1, 2, 5])
    np.testing.assert_array_equal(operator(np.cos, at, **options), operator(np.cos, at.astype(float), **options))
