r"""Systems with several inputs and outputs: connections, state space in Caputo form, and those of other libraries.

A system with several inputs and outputs is an array of transfer functions, of shape (outputs, inputs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Self, cast

import numpy as np

from hpfracc._arrays import refuse_masked, refuse_units
from hpfracc._optional import import_optional
from hpfracc._reading import array, number, shown
from hpfracc.control.transfer import Terms, TransferFunction, _product, _sum, commensurate_order, frequencies
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

Array = np.ndarray[Any, Any]

_ONE: Terms = {(0.0, 0.0): 1.0}
#: Coefficients of a remainder that are smaller than this part of what cancelled are rounding; most terms of a quotient.
_ROUNDING, _MOST_TERMS = 1e-11, 200
#: Roots of two denominators that are this close, relatively, may be one.
_SAME = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class StateSpace:
    """``D^order x = A x + B u, y = C x + D u`` with Caputo's derivative.

    Attributes
    ----------
    A, B, C, D : array_like
        Matrices of shapes (n, n), (n, inputs), (outputs, n), (outputs, inputs).
    order : float
        The order of the derivative, above 0 and at most 2.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(control.StateSpace([[-2.0]], [[1.0]], [[3.0]], [[0.0]], 0.5).to_transfer_function())
    (3)/(s^0.5 + 2)
    """

    A: Array
    B: Array
    C: Array
    D: Array
    order: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", number("order", self.order, above=0.0, most=2.0))
        for name in "ABCD":
            found = np.asarray(array(name, getattr(self, name)))
            if not np.isfinite(found).all():
                raise InvalidInputError(f"{name}={shown(getattr(self, name))} has entries that are not finite")
            object.__setattr__(self, name, found if found.dtype.kind in "fc" else found.astype(float))
        shapes = [np.shape(getattr(self, name)) for name in "ABCD"]
        (n, other), (rows, inputs), (outputs, columns), last = (
            shape if len(shape) == 2 else (-1, -2) for shape in shapes
        )
        if not (n == other == rows == columns and last == (outputs, inputs)):
            raise ShapeError(
                f"A, B, C, D have shapes {', '.join(map(str, shapes))}; give (n, n), (n, inputs), (outputs, n) and "
                "(outputs, inputs)"
            )

    @classmethod
    def realisation(cls, systems: Any) -> Self:
        """A state space of transfer functions, each in controllable form; their powers must be commensurate.

        Parameters
        ----------
        systems : TransferFunction or array of them, shape (outputs, inputs)
            Proper systems without delays.
        """
        grid = _as_matrix(systems)
        q = commensurate_order([key[0] for each in grid.flat for key in (*each.numerator, *each.denominator)])
        if q is not None:
            q /= math.ceil(q / 2.0)  # at most 2
        a, b, c = [], [], []
        direct = np.zeros(grid.shape, float if all(each.is_real for each in grid.flat) else complex)
        for (i, j), system in np.ndenumerate(grid):
            found = None if q is None else system.polynomials(q)
            if found is None:
                raise InvalidInputError(
                    f"{shown(systems)} has delays or incommensurate powers: it has no state space of one order"
                )
            if system.relative_degree < 0.0:
                raise InvalidInputError(f"{system} is improper: it has no state space; multiply it by a filter")
            _, above, below = found
            n = len(below) - 1
            above = np.concatenate([np.zeros(n + 1 - len(above)), above]) / below[0]
            below = below / below[0]
            block = np.eye(n, k=1, dtype=below.dtype)
            block[n - 1 :, :] = -below[:0:-1]
            direct[i, j] = above[0]
            a.append(block)
            b.append(np.outer(np.arange(1, n + 1) == n, np.arange(grid.shape[1]) == j).astype(float))
            c.append(np.outer(np.arange(grid.shape[0]) == i, (above[1:] - above[0] * below[1:])[::-1]))
        from scipy.linalg import block_diag

        return cls(block_diag(*a), np.concatenate(b), np.concatenate(c, axis=1), direct, q or 1.0)

    def to_transfer_function(self) -> Any:
        """The transfer function ``C (s^order - A)^-1 B + D``, or an array of them, of shape (outputs, inputs)."""
        below, size = _characteristic(self.A)
        found = np.empty(np.shape(self.D), object)
        for i, j in np.ndindex(found.shape):
            # det(w - A + B C) - det(w - A) = C adj(w - A) B
            other, other_size = _characteristic(self.A - np.outer(self.B[:, j], self.C[i]))
            above = _without_rounding(other - below, other_size + size) + self.D[i, j] * below
            found[i, j] = TransferFunction.from_polynomials(above, _without_rounding(below, size), self.order)
        return found[0, 0] if found.size == 1 else found


def _characteristic(matrix: Array) -> tuple[Array, Array]:
    """The coefficients of the characteristic polynomial, and their sizes without cancellation."""
    if not len(matrix):
        return np.ones(1), np.ones(1)
    roots = np.linalg.eigvals(matrix)
    row = np.poly(roots)
    return (row if np.iscomplexobj(matrix) else row.real), np.poly(-np.abs(roots))


def _without_rounding(row: Array, sizes: Array) -> Array:
    return np.where(np.abs(row) > 1e-14 * len(row) * sizes, row, 0.0)


def caputo_chain(system: TransferFunction) -> tuple[Array, Array, Array, Array, float]:
    """Orders q and A, b, c, d of ``D^q_k x_k = (A x + b u)_k, y = c x + d u``, for any powers, from rest.

    The states are one variable and its derivatives of the powers of the system; the last row is the denominator.
    """
    if system.has_delay or not system.is_real:
        raise InvalidInputError(f"{system} has delays or complex coefficients; use control.pade for a delay")
    if system.relative_degree < 0.0:
        raise InvalidInputError(f"{system} is improper: its numerator has the higher power; add a filter, such as Tf")
    powers = np.unique([0.0, *(key[0] for key in (*system.numerator, *system.denominator))])
    places = [0.0]
    for low, high in pairwise(powers.tolist()):  # steps of at most 1 need no further initial values
        places += np.linspace(low, high, math.ceil(high - low - 1e-12) + 1)[1:].tolist()
    rows = np.zeros((2, len(places)))
    for row, terms in zip(rows, (system.numerator, system.denominator), strict=True):
        for (power, _), value in terms.items():
            row[int(np.argmin(np.abs(np.array(places) - power)))] = value.real
    above, below = rows / rows[1, -1]
    matrix = np.eye(len(places) - 1, k=1)
    matrix[-1:] -= below[:-1]
    inputs = (np.arange(len(matrix)) == len(matrix) - 1) / rows[1, -1]
    return np.diff(places), matrix, inputs, (above[:-1] - above[-1] * below[:-1]) * rows[1, -1], float(above[-1])


# -- reading ----------------------------------------------------------------------------------------------------------


def transfer_function(system: Any) -> Any:
    """A transfer function, or an array of them, of a system of another form or library.

    Parameters
    ----------
    system : StateSpace, scipy.signal.lti, or a continuous system of python-control
        Number, transfer function and arrays of them are returned as they are. All functions of ``hf.control`` take
        these systems too.

    Examples
    --------
    >>> from scipy import signal
    >>> from hpfracc import control
    >>> print(control.transfer_function(signal.lti([1.0], [1.0, 2.0])))
    (1)/(s + 2)
    """
    return as_systems(system)[()]


def to_control(systems: Any) -> Any:
    """A ``TransferFunction`` of python-control; powers must be integers, without delays.

    Parameters
    ----------
    systems : TransferFunction or array of them, shape (outputs, inputs)
    """
    rows = [[each.integer_polynomials("python-control") for each in row] for row in _as_matrix(systems)]
    above, below = ([[pair[k] for pair in row] for row in rows] for k in (0, 1))
    if any(np.iscomplexobj(each) for rows in (above, below) for row in rows for each in row):
        raise UnsupportedDtypeError("python-control takes real coefficients; these are complex")
    return import_optional("control").TransferFunction(above, below)


def as_systems(systems: Any, what: str = "systems") -> Array:
    """Transfer functions as an array of objects, whatever its shape."""
    refuse_units(systems, what)
    if isinstance(systems, np.ndarray):
        refuse_masked(systems, what)
    systems = _of_another(systems, what)
    given = np.empty((), object)
    given[()] = systems
    if not isinstance(systems, TransferFunction):
        try:
            given = np.asarray(systems, dtype=object)
        except ValueError:
            raise ShapeError(f"{what}={shown(systems)} has rows of different lengths") from None
    found = np.empty(given.shape, object)
    for place in np.ndindex(given.shape):
        found[place] = TransferFunction._of(given[place])
    if found.size == 0 or any(each is None for each in found.flat):
        raise InvalidInputError(
            f"{what}={shown(systems)} is no transfer function; build one from control.s, such as 1/(s**0.5 + 1)"
        )
    return found


def _as_matrix(systems: Any) -> Array:
    """Transfer functions as a matrix (outputs, inputs)."""
    found = as_systems(systems)
    if found.ndim not in (0, 2):
        raise ShapeError(f"systems has shape {found.shape}; give one system, or a matrix (outputs, inputs)")
    return found.reshape(found.shape or (1, 1))


def measured(system: Any, what: str = "systems") -> tuple[Array, Array] | None:
    """Frequencies and values of an ``FRD`` of python-control, of shape (..., n); None for other systems."""
    if _home(system) != "control" or not hasattr(system, "omega"):
        return None
    _refuse_discrete(system, what)
    values = np.asarray(system.frdata if hasattr(system, "frdata") else system.fresp, complex)
    if not np.isfinite(values).all():
        raise InvalidInputError(f"{what} has values that are not finite; drop their frequencies")
    return frequencies(system.omega), values[0, 0] if values.shape[:2] == (1, 1) else values


def _home(system: Any) -> str:
    return type(system).__module__.partition(".")[0]


def _refuse_discrete(system: Any, what: str) -> None:
    step = getattr(system, "dt", None)
    if step not in (None, 0):
        raise InvalidInputError(f"{what} is a discrete system of the step {step}; give a continuous one")


def _of_another(system: Any, what: str) -> Any:
    """Systems of scipy.signal and python-control, and state spaces, as transfer functions; others as they are."""
    home = _home(system)
    if home in ("scipy", "control"):
        _refuse_discrete(system, what)
        if hasattr(system, "omega"):
            raise InvalidInputError(
                f"{what} is data at frequencies, which bode, nyquist, nichols, margins and fit_frequency take; fit a "
                "transfer function to it with control.fit_frequency"
            )
        if hasattr(system, "A"):
            system = StateSpace(*(getattr(system, name) for name in "ABCD"))
        elif home == "scipy":
            ratio = system.to_tf()
            found = [[TransferFunction.from_polynomials(row, ratio.den)] for row in np.atleast_2d(ratio.num)]
            return found if len(found) > 1 else found[0][0]
        elif hasattr(system, "num"):
            pairs = zip(system.num, system.den, strict=True)
            rows = [list(map(TransferFunction.from_polynomials, *pair)) for pair in pairs]
            return rows[0][0] if len(rows) == len(rows[0]) == 1 else rows
    return system.to_transfer_function() if isinstance(system, StateSpace) else system


def single(system: Any, what: str = "systems") -> TransferFunction:
    """One transfer function."""
    found = as_systems(system, what)
    if found.ndim:
        raise ShapeError(f"{what} has shape {found.shape}; give one transfer function, such as G[0, 0]")
    return cast(TransferFunction, found.item())


# -- connections ------------------------------------------------------------------------------------------------------


def series(*systems: Any) -> Any:
    """The product of systems, the first one acting first; matrices of transfer functions are multiplied as such."""
    result: Array = as_systems(1.0)
    for each in map(as_systems, systems):
        result = np.asarray(each @ result if each.ndim and result.ndim else np.multiply(each, result), object)
    return result[()]


def parallel(*systems: Any) -> Any:
    """The sum of systems; those of an array are added one by one."""
    result: Array = as_systems(0.0)
    for each in map(as_systems, systems):
        result = np.asarray(np.add(result, each), object)
    return result[()]


def feedback(forward: Any, back: Any = 1.0, sign: float = -1.0) -> Any:
    r"""The closed loop ``forward / (1 - sign forward back)``; negative feedback by default.

    Parameters
    ----------
    forward : TransferFunction, or an array of shape (outputs, inputs)
        From input to output.
    back : TransferFunction, or an array of shape (inputs, outputs)
        From the output back to the input; one system for an array is that system in each channel.
    sign : float
        Factor of what comes back.

    Returns
    -------
    TransferFunction or array
        For arrays :math:`(I - \text{sign}\,G K)^{-1} G`; all entries have one denominator, the determinant. Factors
        that denominators in a row of ``forward``, or in a column of ``back``, have in common count once.

    Examples
    --------
    >>> from hpfracc import control
    >>> print(control.feedback(2 / (control.s**0.8 + 1)))
    (2)/(s^0.8 + 3)
    """
    one, other, share = as_systems(forward, "forward"), as_systems(back, "back"), number("sign", sign)
    alone = one.ndim == other.ndim == 0
    if alone:
        one, other = one.reshape(1, 1), other.reshape(1, 1)
    if other.ndim == 0 and one.ndim == 2 and one.shape[0] == one.shape[1]:
        other = as_systems(np.where(np.eye(len(one)), other, 0.0))
    if one.ndim != 2 or other.shape != one.shape[::-1]:
        raise ShapeError(
            f"forward has shape {one.shape} and back {other.shape}; give (outputs, inputs) and (inputs, outputs)"
        )
    # With G = P^-1 N and K = M Q^-1 for diagonal P and Q, the loop is Q (P Q - sign N M)^-1 N.
    rows, above = _over_shared(one)
    columns, back_above = _over_shared(other.T)
    matrix = [[_product({(0.0, 0.0): -share}, _dot(left, right)) for right in back_above] for left in above]
    for i, pair in enumerate(zip(rows, columns, strict=True)):
        matrix[i][i] = _sum(matrix[i][i], _product(*pair))
    below = _determinant(matrix)
    found = np.empty(one.shape, object)
    for i, j in np.ndindex(found.shape):  # Cramer's rule
        replaced = [[*row[:i], above[k][j], *row[i + 1 :]] for k, row in enumerate(matrix)]
        found[i, j] = TransferFunction(_product(columns[i], _determinant(replaced)), below)
    return found[0, 0] if alone else found


def _over_shared(systems: Array) -> tuple[list[Terms], list[list[Terms]]]:
    """A denominator for each row of a matrix, and the numerators over it."""
    shared, above = [], []
    for row in systems:
        parts = [each.denominator for each in row]
        below = reduce(_multiple, parts)
        lacking = [_quotient(below, each) for each in parts]
        if None in lacking:  # by rounding
            below = reduce(_product, parts)
            lacking = [reduce(_product, [*parts[:k], *parts[k + 1 :]], _ONE) for k in range(len(parts))]
        shared.append(below)
        above.append([_product(each.numerator, cast(Terms, more)) for each, more in zip(row, lacking, strict=True)])
    return shared, above


def _dot(left: list[Terms], right: list[Terms]) -> Terms:
    return reduce(_sum, map(_product, left, right))


def _determinant(rows: list[list[Terms]]) -> Terms:
    if len(rows) == 1:
        return rows[0][0]
    total: Terms = {}
    for j, each in enumerate(rows[0]):
        minor = _determinant([[*row[:j], *row[j + 1 :]] for row in rows[1:]])
        total = _sum(total, _product({(0.0, 0.0): (-1.0) ** j}, _product(each, minor)))
    return total


def _quotient(terms: Terms, by: Terms) -> Terms | None:
    """The exact quotient; None if there is none."""
    (top, lead), found, rest = next(iter(by.items())), cast(Terms, {}), terms
    sizes = {key: abs(value) for key, value in terms.items()}
    for _ in range(_MOST_TERMS):
        if not rest:
            return found
        (power, lag), value = next(iter(rest.items()))
        place = power - top[0], lag - top[1]
        if min(place) < -1e-12:
            return None
        found[place] = value / lead
        taken = _product({place: -value / lead}, by)
        sizes = {key: sizes.get(key, 0.0) + abs(taken.get(key, 0.0)) for key in {*sizes, *taken}}
        rest = {key: each for key, each in _sum(rest, taken).items() if abs(each) > _ROUNDING * sizes[key]}
    return None


def _multiple(one: Terms, other: Terms) -> Terms:
    """A common multiple: the least one where common factors are found, and divide both; else the product."""
    if _quotient(one, other) is not None:
        return one
    both = TransferFunction(one, other).polynomials()
    if both is None:
        return other if _quotient(other, one) is not None else _product(one, other)
    q, left, right = both
    shared, others = [], np.roots(left).tolist()
    for root in np.roots(right):
        near = min(others, key=lambda z: abs(z - root), default=math.inf)
        if abs(near - root) <= _SAME * abs(root):
            others.remove(near)
            shared.append(root)
    row, lowest = np.atleast_1d(np.poly(shared)).tolist(), min(key[0] for key in (*one, *other))
    factor = {(q * (len(row) - 1 - k) + lowest, 0.0): value for k, value in enumerate(row) if value}
    lacking = _quotient(other, factor)
    divides = lacking is not None and _quotient(one, factor) is not None
    return _product(one, cast(Terms, lacking) if divides else other)
