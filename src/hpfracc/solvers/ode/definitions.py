r"""Equations with other derivatives than Caputo's, as equations with Caputo's.

Caputo's derivative with respect to psi (of Hadamard's kind for psi = log) is Caputo's in x = psi(t) - psi(t0). The
tempered one is :math:`e^{-\lambda t} D^\alpha e^{\lambda t}`; adaptive steps integrate its kernel itself, and that of
a Sonine derivative. For derivatives with a bounded kernel, the equation is
:math:`y = y_0 + \frac{1-\alpha}{M} f(t, y) + \frac{\alpha}{M} I^\mu f(t, y)`, with mu = 1 for that of Caputo and
Fabrizio and mu = alpha for that of Atangana and Baleanu. With :math:`v = y - \frac{1-\alpha}{M} f(t, y)` it reads
:math:`D^\mu v = \frac{\alpha}{M} f(t, y(t, v))`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hpfracc._reading import function, number, shown
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.grids import images_of, invert, require_rising
from hpfracc.solvers.ode.adaptive.memories import Tempering
from hpfracc.solvers.ode.compilation import refuse_numba
from hpfracc.solvers.ode.multiterm import Substitution, solve_substituted
from hpfracc.solvers.ode.problem import LONGEST, Orders, Problem, RightHandSide, Term, make_newton
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.stepping.jacobian import factorise, is_sparse
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: Points at which psi is checked.
_CHECKED = 65
#: Largest exponent of the factor of a tempered equation.
_MAX_EXPONENT = 300.0
#: An estimated global error below this share of the tolerance says nothing, as in the adaptive method.
_RESOLVED = 0.05
#: Times at which the derivative of y in v is computed for the error estimate.
_GAINS = 32
#: The parameters of a definition that ``solve_fode`` takes, and whose they are.
_PARAMETERS = {
    "psi": ("psi_caputo",),
    "inverse": ("psi_caputo",),
    "rate": ("tempered_caputo",),
    "normalisation": ("caputo_fabrizio", "atangana_baleanu"),
}


def solve_defined(
    problem: Problem,
    options: Options,
    solve: Callable[[Problem, Options], FODEResult],
    given: dict[str, Any],
    adaptive: bool,
) -> FODEResult:
    """Solve an equation with one of these derivatives, by ``solve`` for Caputo's; ``given`` are their parameters.

    With ``adaptive`` steps the kernels of tempered derivatives, and of the user's own, are integrated themselves.
    """
    name = problem.derivative
    for parameter, owners in _PARAMETERS.items():
        if given[parameter] is not None and name not in owners:
            raise InvalidInputError(
                f"{parameter}={shown(given[parameter])} belongs to derivative={' or '.join(map(repr, owners))}, and "
                f"this is {name!r}; omit it"
            )
    if name in ("caputo", "riemann_liouville"):
        return solve(problem, options)
    if problem.library != "numpy" or problem.delays or problem.orders.known is None:
        taken = f"y0 of {problem.library}" if problem.library != "numpy" else "delays" if problem.delays else "alpha(t)"
        raise InvalidInputError(
            f"derivative={name!r} takes NumPy arrays, constant orders and no delays, and here is {taken}; use "
            "derivative='caputo'"
        )
    change: Substitution
    if name == "sonine":
        return _solve_sonine(problem, options, solve, adaptive)
    if name == "tempered_caputo" and adaptive:
        rate = _read_rate(given["rate"])
        direct = replace(problem, dy0=_tempered_slopes(problem, rate), derivative="caputo", memory=Tempering(rate))
        if refuse_numba(direct, options, "adaptive") is None:
            _refuse_compiling(options)
            return solve(direct, options)
    if name in ("caputo_fabrizio", "atangana_baleanu"):
        change = _Bounded(problem, options, given["normalisation"])
    elif name == "tempered_caputo":
        change = _Tempered(problem, given["rate"])
    elif name == "psi_caputo":
        change = _ByPsi(problem, options, given["psi"], given["inverse"])
    else:
        change = _Logarithmic(problem, options)
    result = solve_substituted(change, options, solve)
    if isinstance(change, _Bounded) and options.step is None and result.success and change.gain > 2.0:
        # y is that much more sensitive than the state that the tolerance holds for.
        rtol, atol = max(options.rtol / change.gain, 1e-13), np.asarray(options.atol) / change.gain
        result = solve_substituted(change, replace(options, rtol=rtol, atol=atol), solve)
    return result


def _solve_sonine(
    problem: Problem, options: Options, solve: Callable[[Problem, Options], FODEResult], adaptive: bool
) -> FODEResult:
    if problem.terms or not adaptive:
        what = "one derivative; omit terms" if problem.terms else "adaptive steps; omit step, or use method='adaptive'"
        raise InvalidInputError(f"derivative=SonineDerivative(...) takes {what}")
    _refuse_compiling(options)
    if (refusal := refuse_numba(problem, options, "adaptive")) is not None:
        raise InvalidInputError(refusal)
    problem.memory.check(options.rtol)
    result = solve(replace(problem, derivative="caputo"), options)
    # The error of the kernel changes the integral by as much.
    rise = np.abs(result.y - problem.y0[..., np.newaxis]).max(initial=0.0)
    result.error_estimate += problem.memory.error() * float(rise)
    return result


def _refuse_compiling(options: Options) -> None:
    if options.compile is True:
        raise InvalidInputError("compile=True: equations with other derivatives are not compiled; omit compile")


def _read_rate(rate: Any) -> float:
    if rate is None:
        raise InvalidInputError("derivative='tempered_caputo' needs rate=, a number of at least 0")
    return number("rate", rate, least=0.0)


def _tempered_slopes(problem: Problem, rate: float) -> tuple[Any, ...]:
    """The derivatives of exp(rate (t - t0)) y at t0."""
    values = (problem.y0, *problem.dy0)
    return tuple(
        sum(math.comb(n, k) * rate ** (n - k) * values[k] for k in range(n + 1)) for n in range(1, len(values))
    )


class _NewTime(Substitution, ABC):
    """With x = psi(t) - psi(t0)."""

    what = "equations with other derivatives"

    def __init__(self, problem: Problem, options: Options) -> None:
        self.knots = np.array([problem.t0, *options.breakpoints, problem.t1])
        self.images = self._forward(self.knots)
        if not self.images[-1] <= LONGEST:
            raise InvalidInputError(
                f"psi rises by {self.images[-1]:g} over t_span={problem.t0, problem.t1}, more than {LONGEST:g}; divide "
                "psi by a constant c, and multiply fun by c**alpha, or shorten t_span"
            )
        terms = tuple(Term(self._moved(c) if callable(c) else c, order) for c, order in problem.terms)
        jac = None if problem.jac is None else self._moved(problem.jac)
        self.problem = replace(
            problem, fun=self._moved(problem.fun), jac=jac, t0=0.0, t1=float(self.images[-1]), terms=terms,
            derivative="caputo",
        )  # fmt: skip

    @abstractmethod
    def _forward(self, t: Array) -> Array:
        """The times x."""

    @abstractmethod
    def _backward(self, x: Array) -> Array:
        """The times t, up to rounding."""

    def _moved(self, given: Callable[..., Any]) -> Callable[..., Any]:
        """A function of x from one of t."""
        return lambda x, *more: given(float(self.outside(np.array([x]))[0]), *more)

    def inside(self, t: Array) -> Array:
        return np.clip(self._forward(np.clip(t, self.knots[0], self.knots[-1])), 0.0, self.images[-1])

    def outside(self, x: Array) -> Array:
        # Rounding must not bring a time across a breakpoint or an end.
        piece = np.clip(np.searchsorted(self.images, x, side="right") - 1, 0, self.knots.size - 2)
        end = self.knots[piece + 1]
        last = np.where(x < self.images[piece + 1], np.nextafter(end, -math.inf), end)
        return np.clip(self._backward(x), self.knots[piece], last)


class _ByPsi(_NewTime):
    remark = "Times in this message are values of psi(t) - psi(t0)."

    def __init__(self, problem: Problem, options: Options, psi: Any, inverse: Any) -> None:
        if psi is None:
            raise InvalidInputError("derivative='psi_caputo' needs psi=, an increasing function such as np.log")
        self._psi = function("psi", psi, "(t), an array of times")
        self._inverse = None if inverse is None else function("inverse", inverse, "(values of psi)")
        points = np.linspace(problem.t0, problem.t1, _CHECKED)
        images = images_of(psi, points)
        require_rising(images, points)
        self._first, self._ends = float(images[0]), (problem.t0, problem.t1)
        self._last = float(images[-1] - images[0])
        back = self._backward(images - self._first)
        if back.shape != points.shape or not np.allclose(back, points, rtol=1e-9, atol=1e-9 * (points[-1] - points[0])):
            raise InvalidInputError(f"inverse(psi(t)) is {shown(back)} for t={shown(points)}; give the inverse of psi")
        super().__init__(problem, options)

    def __reduce__(self) -> Any:
        """Pickled as None, because psi may not be picklable."""
        return type(None), ()

    def _forward(self, t: Array) -> Array:
        return images_of(self._psi, t) - self._first

    def _backward(self, x: Array) -> Array:
        if self._inverse is not None or x.size != 1 or not 0.0 < x[0] < self._last:
            return invert(self._psi, self._inverse, x + self._first, *self._ends)
        from scipy.optimize import brentq  # faster than bisection, one time by one

        def apart(since: float) -> float:
            return float(self._forward(np.array([self._ends[0] + since]))[0] - x[0])

        since = brentq(apart, 0.0, self._ends[1] - self._ends[0], xtol=1e-300, rtol=4.0 * np.finfo(float).eps)
        return np.array([self._ends[0] + since])


class _Logarithmic(_NewTime):
    remark = "Times in this message are values of log(t / t0)."

    def __init__(self, problem: Problem, options: Options) -> None:
        if not problem.t0 > 0.0:
            raise InvalidInputError(
                f"t_span starts at {problem.t0:g}, and log t of the Caputo-Hadamard derivative needs t0 > 0; the usual "
                "start is 1"
            )
        super().__init__(problem, options)

    def _forward(self, t: Array) -> Array:
        first = self.knots[0]
        return np.asarray(np.log1p((t - first) / first))

    def _backward(self, x: Array) -> Array:
        first = self.knots[0]
        return np.asarray(first + first * np.expm1(x))


class _Tempered(Substitution):
    """With the state exp(rate (t - t0)) y, for equal steps."""

    what = "equations with other derivatives"

    def __init__(self, problem: Problem, rate: Any) -> None:
        self.rate, self.t0 = _read_rate(rate), problem.t0
        exponent = self.rate * (problem.t1 - problem.t0)
        if exponent > _MAX_EXPONENT:
            raise InvalidInputError(
                f"rate={self.rate:g} times the length of t_span is {exponent:g}, and exp(rate (t - t0)) has to stay "
                f"below exp({_MAX_EXPONENT:g}) for methods with equal steps; use adaptive steps, or shorten t_span to "
                f"{_MAX_EXPONENT / self.rate:g}"
            )
        fun, jac, slopes = problem.fun, problem.jac, _tempered_slopes(problem, self.rate)

        def scaled(t: float, z: Array, *args: Any) -> Any:
            factor = math.exp(self.rate * (t - self.t0))
            return factor * np.asarray(fun(t, z / factor, *args))

        def matrix(t: float, z: Array, *args: Any) -> Any:
            assert jac is not None
            return jac(t, z * math.exp(-self.rate * (t - self.t0)), *args)

        self.problem = replace(
            problem, fun=scaled, jac=None if jac is None else matrix, dy0=slopes, derivative="caputo"
        )

    def states(self, x: Array, z: Array) -> Array:
        return np.asarray(z * np.exp(-self.rate * (x - self.t0)))

    def estimate(self, result: FODEResult, y: Array, options: Options) -> None:
        """At each time the error is at most this multiple of the tolerance; that of z alone would not be small."""
        over = result.stats.get("error_over_tolerance", math.nan)
        largest = np.abs(y).max(axis=-1, initial=0.0)
        errors = max(over, _RESOLVED) * (np.broadcast_to(options.atol, largest.shape) + options.rtol * largest)
        result.error_estimate = float(errors.max()) if over == over else math.nan
        result.stats.pop("component_errors", None)
        if over != over and result.decision is not None:
            note = "no error estimate: equal steps do not say when the largest error of exp(rate t) y occurs"
            result.decision = replace(result.decision, notes=(*result.decision.notes, note))


class _Bounded(Substitution):
    """With the state v = y - (1 - alpha)/M f(t, y)."""

    what = "equations with other derivatives"

    def __init__(self, problem: Problem, options: Options, normalisation: Any) -> None:
        name, orders, shape = problem.derivative, problem.orders, problem.shape
        known = orders.known
        assert known is not None
        if problem.terms:
            raise InvalidInputError(f"derivative={name!r} takes one derivative; omit terms")
        if not np.all(known < 1.0):
            raise InvalidInputError(
                f"alpha reaches {float(known.max()):g}, and derivative={name!r} is defined for 0 < alpha < 1; order 1 "
                "is the ordinary derivative, derivative='caputo'"
            )
        scale = 1.0 if normalisation is None else normalisation(known) if callable(normalisation) else normalisation
        scales = [number("normalisation", each, above=0.0) for each in np.ravel(scale)]
        scale = np.reshape(scales, np.shape(scale))
        self._share = np.broadcast_to((1.0 - known) / scale, shape)
        factor = np.broadcast_to(known / scale, shape)
        self._y0 = problem.y0
        self._fun = RightHandSide(problem)
        self._newton = make_newton(problem, options, self._fun)
        self._last = problem.y0.reshape(-1)
        self._path: tuple[Array, Array] | None = None
        self.gain = 1.0
        self._check_start(problem, options)

        def fun(t: float, v: Array, *_: Any) -> Array:
            return np.asarray(factor * ((self._solution(t, v) - v) / self._share))

        def matrix(t: float, v: Array, *_: Any) -> Array:
            slopes, inverse = self._slopes(t, v, self._solution(t, v))
            whole = factor.reshape(-1, shape[-1], 1) * (slopes @ inverse)
            return np.asarray(whole.reshape(*shape, shape[-1]))

        order = orders if name == "atangana_baleanu" else Orders(1.0, np.array(1.0), None, 1)
        self.problem = replace(problem, fun=fun, jac=matrix, orders=order, derivative="caputo", jac_sparsity=None)

    def __reduce__(self) -> Any:
        """Pickled as None, because the right-hand side may not be picklable."""
        return type(None), ()

    def _check_start(self, problem: Problem, options: Options) -> None:
        """The derivative of any y is 0 at t0, so the right-hand side has to be 0 there.

        References
        ----------
        K. Diethelm, R. Garrappa, A. Giusti, M. Stynes, Fract. Calc. Appl. Anal. 23 (2020) 610-634.
        """
        first = self._fun(problem.t0, problem.y0)
        if not np.all(np.abs(self._share * first) <= options.atol + options.rtol * np.abs(problem.y0)):
            raise InvalidInputError(
                f"fun(t0, y0) = {shown(first)} is not 0, and derivative={problem.derivative!r}, with a bounded kernel, "
                "is 0 at t0 for every y: no solution starts at y0. Give a y0 with fun(t0, y0) = 0. (The formula y = y0 "
                "+ (1 - alpha)(f - f(t0)) + alpha I f, used by some, solves D y = f(t, y) - K(t - t0) f(t0, y0) with "
                "the kernel K, K(0) = 1; write that as fun to have it)"
            )

    def _solution(self, t: float, v: Array) -> Array:
        """The solution y of ``y - share f(t, y) = v`` next to the last one; nan if there is none."""
        flat = v.reshape(-1)
        found = self._newton.solve(t, flat, self._share.reshape(-1), self._last)
        if found is None:
            self.remark = f"At t = {t:.6g}, y - (1 - alpha) f(t, y) = {shown(v)} has no solution y near the last one."
            return np.full(v.shape, np.nan, v.dtype)
        self._last = found[0]
        return found[0].reshape(v.shape)

    def _slopes(self, t: float, v: Array, y: Array) -> tuple[Array, Array]:
        """The derivative of f in y, and that of y in v."""
        slopes = self._newton.slopes(t, y.reshape(-1), ((y - v) / self._share).reshape(-1))
        slopes = slopes.toarray()[None] if is_sparse(slopes) else slopes
        factors = factorise(slopes, self._share.reshape(-1), y.size)
        inverse = np.full(slopes.shape, np.nan) if factors is None else factors.inverse
        assert inverse is not None
        return slopes, inverse

    def states(self, x: Array, z: Array) -> Array:
        y = np.empty_like(z)
        for n, t in enumerate(x.tolist()):
            if self._path is not None:  # a guess on the same branch
                self._last = self._path[1][:, min(np.searchsorted(self._path[0], t), self._path[0].size - 1)]
            y[..., n] = self._solution(t, z[..., n])
        return y

    def options(self, options: Options) -> Options:
        self._path, self._last, self._fun.count, self.remark = None, self._y0.reshape(-1), 0, ""
        return options

    def estimate(self, result: FODEResult, y: Array, options: Options) -> None:
        """That of v times the derivative of y in v."""
        self._path = result.t, y.reshape(-1, result.t.size)
        known = result.stats.get("component_errors", result.error_estimate)
        errors, places = np.zeros(self._y0.shape), np.linspace(0, result.t.size - 1, _GAINS)
        d = errors.shape[-1]
        for n in np.unique(places.astype(int)) if result.t.size else ():
            now = y[..., n]
            v = now - self._share * self._fun(float(result.t[n]), now)
            inverse = np.abs(self._slopes(float(result.t[n]), v, now)[1])
            self.gain = max(self.gain, float(inverse.sum(axis=-1).max()))
            grown = inverse @ np.broadcast_to(known, errors.shape).reshape(-1, d, 1)
            errors = np.maximum(errors, grown.reshape(errors.shape))
        if "component_errors" in result.stats:
            result.stats["component_errors"] = errors
        result.error_estimate = float(errors.max()) if np.all(np.isfinite(known)) else math.nan
        result.nfev = self._fun.count
