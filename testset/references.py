"""Closed forms at 50 digits, by mpmath: every value of the test set that has one is recomputed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath
from mpmath import mp, mpf

from testset.data import Problem
from testset.expressions import evaluate

DIGITS = 50


def mittag_leffler(z: Any, a: Any, b: Any = 1, g: Any = 1) -> Any:
    r"""``E^g_{a,b}(z)``: by its series with as many digits as cancel, or, for large negative z, on the cut."""
    z, a, b, g = mpmath.mpmathify(z), mpf(a), mpf(b), mpf(g)
    size = abs(z) ** (1 / a)
    if size > 150 and g == 1 and mpmath.im(z) == 0 and mpmath.re(z) < 0 and a < 2:
        return _on_the_cut(-mpmath.re(z), a, b)
    if size > 4000:
        raise ValueError(f"the series at z = {z}, a = {a} is too long")
    with mp.workdps(DIGITS + 10 + int(size)):
        total, k, power, last = mpf(0), 0, mpf(1), mpf(10) ** (-DIGITS - 8)
        while True:
            term = power * mpmath.rgamma(a * k + b)
            total += term
            if k > 4 + size / a and abs(term) <= last * max(abs(total), last):
                return +total
            power *= z * (g + k) / (k + 1)
            k += 1


def _on_the_cut(x: Any, a: Any, b: Any) -> Any:
    """``E_{a,b}(-x)``: the inverse Laplace transform of ``s^(a-b) / (s^a + x)`` at 1, on its cut and from its poles."""
    if b >= 1 + a:
        return (mpmath.rgamma(b - a) - _on_the_cut(x, a, b - a)) / x
    pi = mp.pi

    def integrand(u: Any) -> Any:
        # With r = exp(u); written by its parts, so that nothing overflows.
        r = mpmath.exp(u)
        p = r**a
        top = x * mpmath.sin((b - a) * pi) + p * mpmath.sin(b * pi)
        return mpmath.exp(-r) * r ** (a - b + 1) * top / (p * p + 2 * x * p * mpmath.cos(a * pi) + x * x)

    near = mpmath.log(x) / a
    low = -mpf(DIGITS + 10) * mpmath.log(10) / (a - b + 1)
    edges = sorted(
        {
            low,
            mpf(-20),
            mpf(-4),
            mpf(-1),
            mpf(0),
            mpf(1),
            mpf(2),
            mpf(3),
            mpf(4),
            mpf(5),
            mpf("5.3"),
            *([near] if low < near < 5 else []),
        }
    )
    edges = [edge for edge in edges if edge >= low]
    total = mpmath.quad(integrand, edges) / pi
    if a > 1:
        s = x ** (1 / a) * mpmath.expjpi(1 / a)
        total += 2 / a * mpmath.re(s ** (1 - b) * mpmath.exp(s))
    return total


def wright(z: Any, lam: Any, mu: Any) -> Any:
    """``sum_k z^k / (k! Gamma(lam k + mu))``."""
    z, lam, mu = mpmath.mpmathify(z), mpf(lam), mpf(mu)
    with mp.workdps(DIGITS * 3):
        total, k, power = mpf(0), 0, mpf(1)
        while True:
            term = power * mpmath.rgamma(lam * k + mu)
            total += term
            # A factor 1 / Gamma vanishes now and then: two terms have to be small.
            if k > 40 and abs(power) * (1 + abs(mpmath.rgamma(lam * k + mu))) < mpf(10) ** (-2 * DIGITS):
                return +total
            k += 1
            power *= z / k


def m_wright(x: Any, nu: Any) -> Any:
    """Mainardi's function, ``W(-x; -nu, 1 - nu)``."""
    return wright(-mpmath.mpmathify(x), -mpf(nu), 1 - mpf(nu))


def inverse_laplace(transform: Any, t: Any) -> Any:
    """By Talbot's contour, with 80 digits."""
    with mp.workdps(80):
        return +mpmath.invertlaplace(transform, mpf(t), method="talbot", degree=110)


_NAMES = """
exp log sin cos tan tanh sinh cosh sqrt gamma rgamma digamma erf erfc hyp1f1 hyp2f1 hyper airyai atan besselj re im
"""
FUNCTIONS: dict[str, Any] = {name: getattr(mpmath, name) for name in _NAMES.split()}
FUNCTIONS |= {
    "mittag_leffler": mittag_leffler,
    "wright": wright,
    "m_wright": m_wright,
    "abs": abs,
    "max": max,
    "min": min,
}


def exact(problem: Problem) -> Iterator[list[Any]]:
    """A row for each output, with the value at each point."""
    reference = problem.reference
    variables = reference.get("variables", ["t"])
    with mp.workdps(DIGITS):
        # Parameters are the decimal numbers that the file shows.
        names: dict[str, Any] = {
            name: mpf(repr(value)) if isinstance(value, int | float) else value
            for name, value in problem.parameters.items()
        }
        names = FUNCTIONS | {"pi": +mp.pi, "I": mpmath.mpc(0, 1)} | names

        def inner(names: dict[str, Any]) -> dict[str, Any]:
            def within(text: str, name: str, value: Any) -> Any:
                return evaluate(text, inner(names | {name: value}))

            return names | {
                "integral": lambda text, name, *edges: mpmath.quad(
                    lambda value: within(text, name, value), list(edges)
                ),
                "total": lambda text, name, first, last: sum(
                    (within(text, name, mpf(k)) for k in range(int(first), int(last) + 1)), mpf(0)
                ),
                "inverse_laplace": lambda text, t: inverse_laplace(lambda s: within(text, "s", s), t),
                "root": lambda text, name, guess: mpmath.findroot(lambda value: within(text, name, value), guess),
            }

        for name, text in reference.get("where", {}).items():
            names[name] = evaluate(text, inner(names))
        for text in reference["exact"]:
            row = []
            for point in reference["at"]:
                numbers = point if isinstance(point, list) else [point]
                here = names | {name: mpf(repr(float(value))) for name, value in zip(variables, numbers, strict=True)}
                row.append(evaluate(text, inner(here)))
            yield row
