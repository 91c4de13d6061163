r"""Transfer functions in real powers of s.

.. math:: G(s) = \sum_i b_i s^{\beta_i} e^{-L_i s} \Big/ \sum_j a_j s^{\alpha_j} e^{-M_j s}

References
----------
I. Podlubny, Fractional Differential Equations, Academic Press, 1999, chapter 9; C. A. Monje et al., Fractional-order
Systems and Controls, Springer, 2010.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from hpfracc._reading import array, number, numbers, shown
from hpfracc._results import as_html
from hpfracc.errors import InvalidInputError, ShapeError

Array = np.ndarray[Any, Any]
_T = TypeVar("_T")
#: Coefficients by power of s and delay.
Terms = dict[tuple[float, float], complex]

#: Powers and delays that agree to this many decimals are the same.
_DECIMALS = 12
#: The largest denominator of a power, and the largest degree in :math:`s^q`, of a commensurate function.
_MAX_DENOMINATOR, _MAX_DEGREE = 1000, 160
#: An exponent in words, for LaTeX.
_EXPONENT = re.compile(r"\^(\(.*?\)|-?[\d.]+(?:e[+-]\d+)?)")


@functools.lru_cache(maxsize=4096)
def _settled(value: float) -> float:
    """A power or a delay without the rounding of sums: the fraction that it is, so that 1/3 + 1/3 is 2/3."""
    found = float(Fraction(value).limit_denominator(_MAX_DENOMINATOR))
    near = abs(found - value) <= 10.0**-_DECIMALS * max(1.0, abs(value))
    return found if near else round(value, _DECIMALS)


def _tidy(items: Iterable[tuple[tuple[float, float], complex]]) -> Terms:
    """Terms without zeros, the highest power first; what cancels to rounding is zero."""
    found: Terms = {}
    sizes: dict[tuple[float, float], float] = {}
    for (power, lag), value in items:
        key = _settled(power), _settled(lag)
        found[key] = found.get(key, 0.0) + value
        sizes[key] = sizes.get(key, 0.0) + abs(value)
    kept = {key: value for key, value in found.items() if abs(value) > 1e-15 * sizes[key] or sizes[key] == math.inf}
    return dict(sorted(kept.items(), key=lambda item: (-item[0][0], item[0][1])))


def _product(left: Terms, right: Terms) -> Terms:
    return _tidy(((p + q, k + m), a * b) for (p, k), a in left.items() for (q, m), b in right.items())


def _sum(left: Terms, right: Terms) -> Terms:
    return _tidy([*left.items(), *right.items()])


def _shift(terms: Terms, power: float, lag: float) -> Terms:
    return {(_settled(p - power), _settled(k - lag)): value for (p, k), value in terms.items()}


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


def _with_other(method: Callable[[Any, Any], _T]) -> Callable[[Any, Any], _T]:
    """A method for a second operand that is a number or a transfer function; Python asks the others themselves."""

    @functools.wraps(method)
    def of_two(self: TransferFunction, other: Any) -> _T:
        read = self._of(other)
        return NotImplemented if read is None else method(self, read)

    return of_two


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
        if not above:
            below = {(0.0, 0.0): 1.0}
        # No power or delay that both share, and none below 0 in the denominator.
        power = min(min((key[0] for key in terms), default=math.inf) for terms in (above, below))
        lag = min(key[1] for key in below)
        self.numerator, self.denominator = _tidy(_shift(above, power, lag).items()), _shift(below, power, lag)

    @classmethod
    def _of(cls, value: Any) -> TransferFunction | None:
        """A number or a transfer function as the latter; None for anything else."""
        if isinstance(value, TransferFunction):
            return value
        if isinstance(value, str | bytes | np.datetime64 | np.timedelta64) or not np.isscalar(value):
            return None
        return cls({0.0: value}, {0.0: 1.0})

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    @_with_other
    def __add__(self, right: TransferFunction) -> TransferFunction:
        if self.denominator == right.denominator:
            return TransferFunction(_sum(self.numerator, right.numerator), self.denominator)
        crossed = _sum(_product(self.numerator, right.denominator), _product(right.numerator, self.denominator))
        return TransferFunction(crossed, _product(self.denominator, right.denominator))

    __radd__ = __add__

    def __neg__(self) -> TransferFunction:
        return TransferFunction({key: -value for key, value in self.numerator.items()}, self.denominator)

    @_with_other
    def __sub__(self, right: TransferFunction) -> TransferFunction:
        return self + -right

    @_with_other
    def __rsub__(self, left: TransferFunction) -> TransferFunction:
        return left + -self

    @_with_other
    def __mul__(self, right: TransferFunction) -> TransferFunction:
        if self.numerator == right.denominator:
            return TransferFunction(right.numerator, self.denominator)
        if right.numerator == self.denominator:
            return TransferFunction(self.numerator, right.denominator)
        above, below = _product(self.numerator, right.numerator), _product(self.denominator, right.denominator)
        return TransferFunction(above, below)

    __rmul__ = __mul__

    @_with_other
    def __truediv__(self, right: TransferFunction) -> TransferFunction:
        if not right.numerator:
            raise InvalidInputError("a transfer function is divided by 0")
        return self * TransferFunction(right.denominator, right.numerator)

    @_with_other
    def __rtruediv__(self, left: TransferFunction) -> TransferFunction:
        return left / self

    def __pow__(self, power: Any) -> TransferFunction:
        exponent = number("power", power)
        if len(self.numerator) == len(self.denominator) == 1:
            (((p, lag), up),), (((q, _), down),) = self.numerator.items(), self.denominator.items()
            if up == down == 1.0:  # a power of s, with a delay
                return TransferFunction({(p * exponent, lag * exponent): 1.0}, {q * exponent: 1.0})
        if exponent != round(exponent):
            raise InvalidInputError(
                f"({self})**{exponent:g}: only s has real powers, and sums have integer ones; for a power of a sum use "
                "an approximation, such as control.oustaloup"
            )
        result = TransferFunction({0.0: 1.0}, {0.0: 1.0})
        for _ in range(abs(round(exponent))):
            result = result * self
        return 1 / result if exponent < 0 else result

    @_with_other
    def __eq__(self, right: Any) -> bool:
        return _product(self.numerator, right.denominator) == _product(right.numerator, self.denominator)

    __hash__ = None  # type: ignore[assignment]

    # -- what it is ---------------------------------------------------------------------------------------------------

    def __call__(self, points: Any) -> Any:
        """The value at complex numbers ``points``, of their shape; powers have their cut along the negative axis."""
        found = np.asarray(array("s", points)).astype(complex)
        with np.errstate(all="ignore"):
            logs = np.log(found)
            above, below = (evaluate_terms(terms, found, logs) for terms in (self.numerator, self.denominator))
            value = np.asarray(above / below)
            for place in np.argwhere(~np.isfinite(value)):
                value[tuple(place)] = self._value(complex(found[tuple(place)]))
        return value if value.ndim else value[()]

    def _value(self, point: complex) -> complex:
        """The value, or the limit, where powers of ``point`` overflow: by powers over the outermost one."""
        edge = max if abs(point) >= 1.0 else min
        if not self.numerator:
            return 0j
        outer = [edge(key[0] for key in terms) for terms in (self.numerator, self.denominator)]
        log = np.log(np.array([point], complex))
        if point and abs(point) < math.inf:
            above, below = (
                evaluate_terms(_shift(terms, power, 0.0), np.array([point]), log)
                for terms, power in zip((self.numerator, self.denominator), outer, strict=True)
            )
            return complex((above / below * np.exp((outer[0] - outer[1]) * log))[0])
        # The power that is left grows, or vanishes, and wins.
        rate = outer[0] - outer[1] if point else outer[1] - outer[0]
        leading = [
            {key[1]: v for key, v in terms.items() if key[0] == power}
            for terms, power in zip((self.numerator, self.denominator), outer, strict=True)
        ]
        top, bottom = (sum(each.values()) for each in leading)
        if math.isnan(abs(point)) or (point and rate >= 0.0 and any(any(each) for each in leading)):
            return complex(math.nan, math.nan)
        if rate == 0.0 and bottom:
            return complex(top / bottom)
        return complex(math.inf) if rate > 0.0 or not bottom else 0j

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

    def polynomials(self, order: float | None = None) -> tuple[float, Array, Array] | None:
        """The order q and the coefficients in s^q, the highest first; None with delays or incommensurate powers."""
        powers = [key[0] for key in (*self.numerator, *self.denominator)]
        q = None if self.has_delay else order or commensurate_order(powers)
        if q is None:
            return None
        rows = []
        for terms in (self.numerator, self.denominator):
            places = [round(key[0] / q) for key in terms]
            row = np.zeros(max(places, default=0) + 1, complex)
            np.add.at(row, places, list(terms.values()))
            rows.append(row[::-1].real if self.is_real else row[::-1])
        return q, rows[0], rows[1]

    def __repr__(self) -> str:
        lag = min((key[1] for key in self.numerator), default=0.0)
        above, below = _words(_shift(self.numerator, 0.0, lag)), _words(self.denominator)
        words = above if below == "1" else f"({above})/({below})"
        return f"{words} e^({-lag:g} s)" if lag else words

    def _repr_html_(self) -> str:
        above, below = (re.sub(_EXPONENT, r"^{\1}", _words(each)) for each in (self.numerator, self.denominator))
        formula = above if below == "1" else rf"\frac{{{above}}}{{{below}}}"
        return as_html(type(self).__name__, {"G(s)": f"${formula}$", "relative degree": self.relative_degree})

    # -- other libraries ----------------------------------------------------------------------------------------------

    def to_scipy(self) -> Any:
        """The same function as ``scipy.signal.TransferFunction``; all powers must be integers, without delays."""
        from scipy import signal

        above, below = self.integer_polynomials("scipy.signal")
        return signal.TransferFunction(above, below)

    def to_control(self) -> Any:
        """The same function as ``control.TransferFunction`` of python-control; powers must be integers, no delays."""
        from hpfracc import control

        return control.to_control(self)

    def integer_polynomials(self, where: str) -> tuple[Array, Array]:
        """Numerator and denominator in s, the highest power first, for a library that takes integer powers only."""
        found = self.polynomials()
        if found is None or abs(found[0] - round(found[0])) > 1e-12:
            raise InvalidInputError(
                f"{self} has delays or powers that are not integers, and {where} takes neither; approximate it first, "
                "with control.oustaloup or control.pade"
            )
        wide = [np.zeros(round(found[0]) * (len(row) - 1) + 1, row.dtype) for row in found[1:]]
        for each, row in zip(wide, found[1:], strict=True):
            each[:: round(found[0])] = row
        return wide[0], wide[1]

    @classmethod
    def from_polynomials(cls, numerator: Any, denominator: Any, order: float = 1.0) -> TransferFunction:
        """From coefficients in ``s^order``, the highest first, as in ``scipy.signal``."""
        q = number("order", order, above=0.0)
        given = {"numerator": numerator, "denominator": denominator}
        rows = [np.atleast_1d(np.asarray(array(name, row))) for name, row in given.items()]
        for name, row in zip(given, rows, strict=True):
            if row.ndim != 1:
                raise ShapeError(f"{name} has shape {row.shape}; give a sequence of numbers")
        return cls(*({q * (len(row) - 1 - k): value for k, value in enumerate(row.tolist())} for row in rows))

    def to_state_space(self) -> Any:
        """A :class:`StateSpace` of this function; powers must be commensurate, without delays."""
        from hpfracc import control

        return control.StateSpace.realisation(self)


def _read(name: str, given: Mapping[Any, Any]) -> Terms:
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"{name}={shown(given)} is no mapping; give coefficients by power, such as {{0.5: 1.0}}"
        )
    items = []
    for key, value in given.items():
        power, lag = key if isinstance(key, tuple) and len(key) == 2 else (key, 0.0)
        if isinstance(value, complex | np.complexfloating):
            plain = complex(number(f"coefficient of the {name}", value.real), number("imaginary part", value.imag))
        else:
            plain = complex(number(f"coefficient of the {name}", value))
        place = number(f"power of the {name}", power), number(f"delay of the {name}", lag)
        items.append((place, plain if plain.imag else plain.real))
    return _tidy(items)


def _words(terms: Terms) -> str:
    parts = []
    for (power, lag), value in terms.items():
        factors = [f"s^{power:g}" if power not in (0.0, 1.0) else "s" * bool(power), f"e^({-lag:g} s)" * bool(lag)]
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
        apart = [abs(share * unit - size) / max(1.0, size) for share, size in zip(shares, sizes, strict=True)]
        if max(apart) <= 10.0**-_DECIMALS:
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


def frequencies(w: Any) -> Array:
    """Angular frequencies, positive and increasing."""
    found = np.asarray(numbers("w", w))
    if found.ndim != 1 or found.size == 0 or found[0] <= 0.0 or np.any(np.diff(found) <= 0.0):
        raise InvalidInputError(f"w={shown(w)}: give positive angular frequencies in increasing order")
    return found
