r"""Transfer functions in real powers of s.

.. math:: G(s) = \sum_i b_i s^{\beta_i} e^{-L_i s} \Big/ \sum_j a_j s^{\alpha_j} e^{-M_j s}

References
----------
I. Podlubny, Fractional Differential Equations, Academic Press, 1999, chapter 9; C. A. Monje et al., Fractional-order
Systems and Controls, Springer, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np

from hpfracc._optional import import_optional
from hpfracc._reading import array, number, numbers, shown
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = [
    "StateSpace",
    "Terms",
    "TransferFunction",
    "commensurate_order",
    "delay",
    "feedback",
    "parallel",
    "s",
    "series",
]

Array = np.ndarray[Any, Any]
#: Coefficients by power of s and delay.
Terms = dict[tuple[float, float], complex]

#: Powers and delays that agree to this many decimals are the same.
_DECIMALS = 12
#: The largest denominator of a power, and the largest degree in :math:`s^q`, of a commensurate function.
_MAX_DENOMINATOR, _MAX_DEGREE = 1000, 160


def _tidy(items: Iterable[tuple[tuple[float, float], complex]]) -> Terms:
    """Terms without zeros, the highest power first."""
    found: Terms = {}
    for (power, lag), value in items:
        key = round(power, _DECIMALS) + 0.0, round(lag, _DECIMALS) + 0.0
        found[key] = found.get(key, 0.0) + value
    largest = max(map(abs, found.values()), default=0.0)
    kept = {key: value for key, value in found.items() if abs(value) > 1e-15 * largest}
    return dict(sorted(kept.items(), key=lambda item: (-item[0][0], item[0][1])))


def _product(left: Terms, right: Terms) -> Terms:
    return _tidy(((p + q, k + m), a * b) for (p, k), a in left.items() for (q, m), b in right.items())


def _sum(left: Terms, right: Terms) -> Terms:
    return _tidy([*left.items(), *right.items()])


def _shift(terms: Terms, power: float, lag: float) -> Terms:
    return {(p - power, k - lag): value for (p, k), value in terms.items()}


def evaluate_terms(terms: Terms, points: Array, logarithms: Array) -> Array:
    """The value of terms at complex points, of which the logarithms are given."""
    total = np.zeros(points.shape, complex)
    for (power, lag), value in terms.items():
        if lag:
            total += value * np.exp(power * logarithms - lag * points)
        else:
            total += value * np.exp(power * logarithms) if power else value
    return total


def derivative(terms: Terms) -> Terms:
    """The derivative of terms without delays."""
    return _tidy(((p - 1.0, k), p * value) for (p, k), value in terms.items() if p)


class TransferFunction:
    r"""A ratio of sums of terms :math:`c\, s^p e^{-Ls}`.

    Build one from ``control.s``: ``G = (s**0.5 + 2) / (s**1.5 + 0.3*s**0.7 + 1) * control.delay(0.1)``. Several inputs
    and outputs are an array of transfer functions; all functions of ``hf.control`` take such arrays.

    Parameters
    ----------
    numerator, denominator : mapping
        Coefficients by power, ``{1.5: 1.0, 0.0: 2.0}``, or by (power, delay).

    Examples
    --------
    >>> from hpfracc import control
    >>> s = control.s
    >>> G = 1 / (s**0.5 + 1)
    >>> complex(G(4.0))
    (0.3333333333333333+0j)
    """

    __array_priority__ = 100.0
    __slots__ = ("denominator", "numerator")

    numerator: Terms
    denominator: Terms

    def __init__(self, numerator: Mapping[Any, Any], denominator: Mapping[Any, Any]) -> None:
        above, below = _read("numerator", numerator), _read("denominator", denominator)
        if not below:
            raise InvalidInputError("the denominator is 0; give a transfer function with a denominator that is not")
        # No power or delay that both share, and none below 0 in the denominator.
        power = min(min((key[0] for key in terms), default=math.inf) for terms in (above, below))
        lag = min(key[1] for key in below)
        self.numerator, self.denominator = _tidy(_shift(above, power, lag).items()), _shift(below, power, lag)

    @classmethod
    def _of(cls, value: Any) -> TransferFunction | None:
        """A number or a transfer function as the latter; None for anything else."""
        if isinstance(value, TransferFunction):
            return value
        if isinstance(value, str | bytes) or not np.isscalar(value):
            return None
        return cls({0.0: value}, {0.0: 1.0})

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> TransferFunction:
        right = self._of(other)
        if right is None:
            return NotImplemented
        if self.denominator == right.denominator:
            return TransferFunction(_sum(self.numerator, right.numerator), self.denominator)
        crossed = _sum(_product(self.numerator, right.denominator), _product(right.numerator, self.denominator))
        return TransferFunction(crossed, _product(self.denominator, right.denominator))

    __radd__ = __add__

    def __neg__(self) -> TransferFunction:
        return TransferFunction({key: -value for key, value in self.numerator.items()}, self.denominator)

    def __sub__(self, other: Any) -> TransferFunction:
        right = self._of(other)
        return NotImplemented if right is None else self + -right

    def __rsub__(self, other: Any) -> TransferFunction:
        return (-self).__add__(other)

    def __mul__(self, other: Any) -> TransferFunction:
        right = self._of(other)
        if right is None:
            return NotImplemented
        if self.numerator == right.denominator:
            return TransferFunction(right.numerator, self.denominator)
        if right.numerator == self.denominator:
            return TransferFunction(self.numerator, right.denominator)
        return TransferFunction(
            _product(self.numerator, right.numerator), _product(self.denominator, right.denominator)
        )

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> TransferFunction:
        right = self._of(other)
        if right is None:
            return NotImplemented
        if not right.numerator:
            raise InvalidInputError("a transfer function is divided by 0")
        return self * TransferFunction(right.denominator, right.numerator)

    def __rtruediv__(self, other: Any) -> TransferFunction:
        left = self._of(other)
        return NotImplemented if left is None else left / self

    def __pow__(self, power: Any) -> TransferFunction:
        exponent = number("power", power)
        if len(self.numerator) == len(self.denominator) == 1:
            (above,), (below,) = self.numerator.items(), self.denominator.items()
            if above[1] == below[1] == 1.0:  # a power of s, with a delay
                return TransferFunction(
                    {(above[0][0] * exponent, above[0][1] * exponent): 1.0}, {(below[0][0] * exponent, 0.0): 1.0}
                )
        if exponent != round(exponent):
            raise InvalidInputError(
                f"({self})**{exponent:g}: only s has real powers, and sums have integer ones; for a power of a sum use "
                "an approximation, such as control.oustaloup"
            )
        result = TransferFunction({0.0: 1.0}, {0.0: 1.0})
        for _ in range(abs(round(exponent))):
            result = result * self
        return 1 / result if exponent < 0 else result

    def __eq__(self, other: object) -> bool:
        right = self._of(other)
        if right is None:
            return NotImplemented
        return _product(self.numerator, right.denominator) == _product(right.numerator, self.denominator)

    __hash__ = None  # type: ignore[assignment]

    # -- what it is ---------------------------------------------------------------------------------------------------

    def __call__(self, points: Any) -> Any:
        """The value at complex numbers ``points``, of their shape; powers have their cut along the negative axis."""
        found = np.asarray(array("s", points)).astype(complex)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            value = self._ratio(found)
            at_zero = found == 0.0
            if at_zero.any():
                value[at_zero] = self._at_zero()
        return value if value.ndim else value[()]

    def _ratio(self, points: Array) -> Array:
        logarithms = np.log(points)
        return np.asarray(
            evaluate_terms(self.numerator, points, logarithms) / evaluate_terms(self.denominator, points, logarithms)
        )

    def _at_zero(self) -> complex:
        """The limit at s = 0: the ratio of the lowest powers."""
        low = [min((key[0] for key in terms), default=math.inf) for terms in (self.numerator, self.denominator)]
        if low[0] > low[1]:
            return 0.0
        if low[0] < low[1]:
            return complex(math.inf)
        sums = [
            sum(value for key, value in terms.items() if key[0] == low[0])
            for terms in (self.numerator, self.denominator)
        ]
        return complex(sums[0] / sums[1]) if sums[1] else complex(math.inf)

    @property
    def is_real(self) -> bool:
        """Whether all coefficients are real."""
        return all(complex(value).imag == 0.0 for value in (*self.numerator.values(), *self.denominator.values()))

    @property
    def relative_degree(self) -> float:
        """The highest power of the denominator minus that of the numerator; below 0 if the function is improper."""
        if not self.numerator:
            return math.inf
        return max(key[0] for key in self.denominator) - max(key[0] for key in self.numerator)

    @property
    def has_delay(self) -> bool:
        """Whether a term has a delay."""
        return any(key[1] for key in (*self.numerator, *self.denominator))

    @property
    def is_causal(self) -> bool:
        """Whether no delay is negative, and none is in all of the fastest terms of the denominator."""
        highest = max(key[0] for key in self.denominator)
        return all(key[1] >= 0.0 for key in self.numerator) and (highest, 0.0) in self.denominator

    def polynomials(self) -> tuple[float, Array, Array] | None:
        """The order q and the coefficients in s^q, the highest first; None with delays or incommensurate powers."""
        q = None if self.has_delay else commensurate_order([key[0] for key in (*self.numerator, *self.denominator)])
        if q is None:
            return None
        rows = []
        for terms in (self.numerator, self.denominator):
            degree = max((round(key[0] / q) for key in terms), default=0)
            row = np.zeros(degree + 1, float if self.is_real else complex)
            for (power, _), value in terms.items():
                row[degree - round(power / q)] = value.real if self.is_real else value
            rows.append(row)
        return q, rows[0], rows[1]

    def __repr__(self) -> str:
        lag = min((key[1] for key in self.numerator), default=0.0)
        above, below = _words(_shift(self.numerator, 0.0, lag)), _words(self.denominator)
        words = above if below == "1" else f"({above})/({below})"
        return f"{words} e^(-{lag:g} s)" if lag else words

    # -- other libraries ----------------------------------------------------------------------------------------------

    def to_scipy(self) -> Any:
        """The same function as ``scipy.signal.TransferFunction``; all powers must be integers, without delays."""
        from scipy import signal

        above, below = self._integer("scipy.signal")
        return signal.TransferFunction(above, below)

    def to_control(self) -> Any:
        """The same function as ``control.TransferFunction`` of python-control; powers must be integers, no delays."""
        above, below = self._integer("python-control")
        return import_optional("control").TransferFunction(above, below)

    def _integer(self, where: str) -> tuple[Array, Array]:
        found = self.polynomials()
        if found is None or abs(found[0] - round(found[0])) > 1e-12:
            raise InvalidInputError(
                f"{self} has delays or powers that are not integers, and {where} takes neither; approximate it first, "
                "with control.oustaloup or control.pade"
            )
        q, rows = round(found[0]), []
        for row in found[1:]:
            wide = np.zeros(q * (len(row) - 1) + 1, row.dtype)
            wide[::q] = row
            rows.append(wide)
        return rows[0], rows[1]

    @classmethod
    def from_polynomials(cls, numerator: Any, denominator: Any, order: float = 1.0) -> TransferFunction:
        """From coefficients in ``s^order``, the highest first, as in ``scipy.signal``."""
        q = number("order", order, above=0.0)
        rows = [np.atleast_1d(np.asarray(row)) for row in (numerator, denominator)]
        for name, row in zip(("numerator", "denominator"), rows, strict=True):
            if row.ndim != 1 or row.dtype.kind not in "biufc":
                raise ShapeError(f"{name} has shape {row.shape} and dtype {row.dtype}; give a sequence of numbers")
        return cls(*({q * (len(row) - 1 - k): value for k, value in enumerate(row.tolist())} for row in rows))

    def to_state_space(self) -> StateSpace:
        """A realisation ``D^q x = A x + B u, y = C x + D u`` in controllable form; powers must be commensurate."""
        found = self.polynomials()
        if found is None:
            raise InvalidInputError(f"{self} has delays or incommensurate powers: it has no state space of one order")
        if self.relative_degree < 0.0:
            raise InvalidInputError(f"{self} is improper: it has no state space; multiply it by a filter")
        q, above, below = found
        n = len(below) - 1
        above = np.concatenate([np.zeros(n + 1 - len(above)), above]) / below[0]
        below = below / below[0]
        direct = above[0]
        a = np.zeros((n, n), below.dtype)
        a[: n - 1, 1:] = np.eye(max(n - 1, 0))
        a[n - 1 :, :] = -below[:0:-1]
        b = np.zeros((n, 1), below.dtype)
        b[n - 1 :] = 1.0
        c = (above[1:] - direct * below[1:])[::-1].reshape(1, n)
        return StateSpace(a, b, c, np.array([[direct]]), q)


@dataclass(frozen=True, slots=True, eq=False)
class StateSpace:
    """``D^order x = A x + B u, y = C x + D u`` with Caputo's derivative.

    Attributes
    ----------
    A, B, C, D : numpy.ndarray
        Matrices of shapes (n, n), (n, inputs), (outputs, n), (outputs, inputs).
    order : float
        The order of the derivative, above 0 and at most 2.
    """

    A: Array
    B: Array
    C: Array
    D: Array
    order: float = 1.0

    def __post_init__(self) -> None:
        number("order", self.order, above=0.0, most=2.0)
        shapes = [np.shape(array(name, getattr(self, name))) for name in "ABCD"]
        (n, other), (rows, inputs), (outputs, columns), last = (
            shape if len(shape) == 2 else (-1, -2) for shape in shapes
        )
        if not (n == other == rows == columns and last == (outputs, inputs)):
            raise ShapeError(
                f"A, B, C, D have shapes {', '.join(map(str, shapes))}; give (n, n), (n, inputs), (outputs, n) and "
                "(outputs, inputs)"
            )

    def to_transfer_function(self) -> Any:
        """The transfer function ``C (s^order - A)^-1 B + D``, or an array of them, of shape (outputs, inputs)."""
        below = np.poly(self.A) if len(self.A) else np.ones(1)
        found = np.empty(np.shape(self.D), object)
        for i, j in np.ndindex(found.shape):
            # det(w - A + B C) - det(w - A) = C adj(w - A) B
            above = (np.poly(self.A - np.outer(self.B[:, j], self.C[i])) if len(self.A) else np.ones(1)) - below
            found[i, j] = TransferFunction.from_polynomials(above + self.D[i, j] * below, below, self.order)
        return found[0, 0] if found.size == 1 else found


def _read(name: str, given: Mapping[Any, Any]) -> Terms:
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{name}={shown(given)} is no mapping; give coefficients by power, such as {{0.5: 1.0}}"
        )
    items = []
    for key, value in given.items():
        power, lag = key if isinstance(key, tuple) and len(key) == 2 else (key, 0.0)
        if isinstance(value, str | bytes | bool) or not np.isscalar(value) or not np.isfinite(value):
            raise InvalidInputError(f"{name} has the coefficient {shown(value)}; give finite numbers")
        plain = complex(cast(complex, value))
        items.append(
            (
                (number(f"power of the {name}", power), number(f"delay of the {name}", lag)),
                plain if plain.imag else plain.real,
            )
        )
    return _tidy(items)


def _words(terms: Terms) -> str:
    parts = []
    for (power, lag), value in terms.items():
        factors = [f"s^{power:g}" if power not in (0.0, 1.0) else "s" * bool(power), f"e^(-{lag:g} s)" * bool(lag)]
        rest = " ".join(filter(None, factors))
        parts.append(rest if value == 1.0 and rest else f"{value:g} {rest}".strip())
    return " + ".join(parts).replace("+ -", "- ") or "0"


def commensurate_order(powers: Iterable[float]) -> float | None:
    """The largest q of which all ``powers`` are integer multiples; None if there is none of use."""
    sizes = sorted({abs(power) for power in powers if power})
    if not sizes:
        return 1.0
    # Multiples of the smallest power, whatever it is, or else of a fraction.
    for unit, most in ((sizes[0], 24), (1.0, _MAX_DENOMINATOR)):
        shares = [Fraction(size / unit).limit_denominator(most) for size in sizes]
        if all(
            abs(share * unit - size) <= 10.0**-_DECIMALS * max(1.0, size)
            for share, size in zip(shares, sizes, strict=True)
        ):
            # The greatest common divisor of a/b and c/d in lowest terms is gcd(a, c)/lcm(b, d).
            q = Fraction(math.gcd(*(x.numerator for x in shares)), math.lcm(*(x.denominator for x in shares)))
            if max(shares) / q <= _MAX_DEGREE:
                return float(q) * unit if unit != 1.0 else float(q)
    return None


#: The variable of Laplace's transform.
s = TransferFunction({1.0: 1.0}, {0.0: 1.0})


def delay(lag: Any) -> TransferFunction:
    """The transfer function ``exp(-lag s)`` of a delay by ``lag >= 0``."""
    return TransferFunction({(0.0, number("lag", lag, least=0.0)): 1.0}, {0.0: 1.0})


def series(*systems: Any) -> Any:
    """The product of systems, the first one acting first; arrays of transfer functions are multiplied as matrices."""
    result: Any = 1.0
    for each in systems:
        result = each @ result if np.ndim(each) and np.ndim(result) else each * result
    return result


def parallel(*systems: Any) -> Any:
    """The sum of systems."""
    return sum(systems[1:], start=systems[0])


def feedback(forward: Any, back: Any = 1.0, sign: float = -1.0) -> TransferFunction:
    """The closed loop ``forward / (1 - sign forward back)``; negative feedback by default."""
    one, other = TransferFunction._of(forward), TransferFunction._of(back)
    if one is None or other is None:
        raise InvalidInputError(
            f"feedback of {shown(forward)} and {shown(back)}: give two transfer functions or numbers"
        )
    loop = _product(one.numerator, other.numerator)
    turned = {key: -number("sign", sign) * value for key, value in loop.items()}
    return TransferFunction(
        _product(one.numerator, other.denominator), _sum(_product(one.denominator, other.denominator), turned)
    )


def as_systems(systems: Any, what: str = "systems") -> Array:
    """Transfer functions as an array of objects, whatever its shape."""
    found = np.empty((), object)
    if isinstance(systems, StateSpace):
        systems = systems.to_transfer_function()
    if isinstance(systems, TransferFunction) or np.isscalar(systems):
        found[()] = TransferFunction._of(systems)
    else:
        given = np.asarray(systems, dtype=object)
        found = np.empty(given.shape, object)
        for place in np.ndindex(given.shape):
            found[place] = TransferFunction._of(given[place])
    if found.size == 0 or any(each is None for each in found.flat):
        raise InvalidInputError(
            f"{what}={shown(systems)} is no transfer function; build one from control.s, such as 1/(s**0.5 + 1)"
        )
    return found


def single(system: Any, what: str = "systems") -> TransferFunction:
    """One transfer function."""
    found = as_systems(system, what)
    if found.ndim:
        raise ShapeError(f"{what} has shape {found.shape}; give one transfer function, such as G[0, 0]")
    only: Any = found[()]
    return cast(TransferFunction, only)


def frequencies(w: Any) -> Array:
    """Angular frequencies, positive and increasing."""
    found = np.asarray(numbers("w", w))
    if found.ndim != 1 or found.size == 0 or found[0] <= 0.0 or np.any(np.diff(found) <= 0.0):
        raise InvalidInputError(f"w={shown(w)}: give positive angular frequencies in increasing order")
    return found
