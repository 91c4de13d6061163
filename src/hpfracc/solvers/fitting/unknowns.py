"""The arguments of a fit: data sets, and the unknowns with their initial guesses and bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hpfracc._arrays import leaves, library_of, refuse_masked
from hpfracc._reading import array, instance, listed, numbers, shown
from hpfracc.errors import InvalidInputError, PinnedBackendError, ShapeError

Array = np.ndarray[Any, Any]

#: Minimum distance of an order from the integer below it.
_ABOVE = 0.01
#: Default guess of a free order, above the integer below it.
_FIRST_ORDER = 0.8
_ANY = (-math.inf, math.inf)


# -- data -------------------------------------------------------------------------------------------------------------


class DataSet(NamedTuple):
    """Times (N,), data (m, N) with nan where one is missing, and their standard deviations (m, N)."""

    t: Array
    data: Array
    sigma: Array


def on_host(value: Any) -> Any:
    """The value without a gradient, as a NumPy array or as given."""
    return value.detach().cpu().numpy() if library_of(value) == "torch" else value


def read_times(t: Any) -> Array:
    """Increasing times, shape (N,)."""
    refuse_masked(t, "t")
    times = numbers("t", on_host(t), ndim=1)
    if times.size < 1:
        raise ShapeError(f"t has shape {times.shape}; give times along one axis")
    if np.any(np.diff(times) <= 0.0):
        raise InvalidInputError("t has to be strictly increasing")
    return times


def read_sets(t: Any, data: Any, sigma: Any, several: bool) -> list[DataSet]:
    """The data sets; ``several`` says whether the arguments are lists with an item for each."""
    times = [read_times(each) for each in (t if several else [t])]
    given = data if several else [data]
    if not isinstance(given, list | tuple) or len(given) != len(times):
        raise ShapeError(f"t holds {len(times)} data sets; give as many in data")
    spreads = sigma if several and isinstance(sigma, list | tuple) else [sigma] * len(times)
    return [_read_set(*each) for each in zip(times, given, spreads, strict=True)]


def _read_set(times: Array, data: Any, sigma: Any) -> DataSet:
    refuse_masked(data, "data")
    table = numbers("data", on_host(data), finite=False)
    table = table[None] if table.ndim == 1 else table
    if table.ndim != 2 or table.shape[-1] != times.size:
        turned = " (transpose it)" if table.ndim == 2 and table.shape[0] == times.size else ""
        raise ShapeError(f"data has shape {table.shape}; give (m, {times.size}), times last{turned}")
    if np.any(np.isinf(table)):
        raise InvalidInputError("data holds infinite values; use nan where a datum is missing")
    return DataSet(times, table, read_sigma(sigma, table))


def read_sigma(sigma: Any, data: Array) -> Array:
    """Standard deviations of the shape of the data, positive and finite where there is a datum; 1 for None."""
    spread = numbers("sigma", 1.0 if sigma is None else on_host(sigma), finite=False)
    try:
        spread = np.broadcast_to(spread, data.shape)
    except ValueError:
        raise ShapeError(f"sigma has shape {spread.shape} and data {data.shape}; give one for each, or one") from None
    known = spread[np.isfinite(data)]
    if not ((known > 0.0) & (known < math.inf)).all():  # with infinity, a datum would count and weigh nothing
        raise InvalidInputError("sigma has to be finite and above 0 for every datum; leave the others out")
    return spread


def largest_datum(sets: list[DataSet]) -> float:
    """The largest absolute value among the data; 1 if all are 0 or missing."""
    return max(float(np.abs(each.data).max(initial=0.0, where=np.isfinite(each.data))) for each in sets) or 1.0


def read_observe(observe: Any) -> Any:
    """None, a function, or an array of components."""
    if observe is None or callable(observe):
        return observe
    chosen = np.atleast_1d(array("observe", observe))
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise InvalidInputError(f"observe={shown(observe)} has to be a component, a list of them, or a function")
    return chosen


def tensor_among(values: list[Any]) -> Any:
    """The first tensor or JAX array among the arguments and lists of them; all must be of one library."""
    found = [each for each in leaves(values) if library_of(each) in ("torch", "jax")]
    if len({library_of(each) for each in found}) > 1:
        raise PinnedBackendError("data, y0 and guesses hold tensors of PyTorch and arrays of JAX; use one library")
    return found[0] if found else None


#: Values, and which of them are free.
FreeValues = tuple[Array, Array]


# -- initial values ---------------------------------------------------------------------------------------------------


def any_free(value: Any) -> bool:
    """Whether a value, or an item of a list, is text."""
    return isinstance(value, str) or (isinstance(value, list | tuple) and any(isinstance(v, str) for v in value))


def read_states(
    y0: Any, guess: Mapping[str, Any], sets: list[DataSet], observe: Any, several: bool
) -> list[FreeValues]:
    """Initial values, and which of them are free, for each set."""
    own = several and isinstance(y0, list | tuple) and len(y0) == len(sets) and not _is_flat(y0)
    found = []
    for number, each in enumerate(sets):
        value = y0[number] if own else y0
        start: Any = guess.get("y0")
        if start is None and any_free(value):
            start = _first_data(value, each.data, observe)
        values, free = map(np.atleast_1d, _read_free("y0", value, 0.0 if start is None else start))
        if values.ndim != 1:
            raise ShapeError(f"y0 has shape {values.shape}; a fit takes states of shape (d,)")
        if isinstance(observe, np.ndarray) and not np.all((observe >= -values.size) & (observe < values.size)):
            raise InvalidInputError(f"observe={observe.tolist()} names a missing component; y0 has {values.size}")
        found.append((values, free))
    return found


def read_slopes(dy0: Any, guess: Mapping[str, Any], states: list[FreeValues]) -> list[list[FreeValues]]:
    """Initial derivatives of each set, and which of them are free: one list for all sets, as in ``solve_fode``."""
    given = [] if dy0 is None else [dy0] if isinstance(dy0, str) else listed("dy0", dy0, "dy0=[[0.0]]")
    starts = guess.get("dy0", [0.0] * len(given))
    if len(starts) != len(given):
        raise ShapeError(f"guess['dy0'] has {len(starts)} entries and dy0 {len(given)}; give one for each derivative")
    found = []
    for values, _ in states:
        rows = [_read_free("dy0", each, start) for each, start in zip(given, starts, strict=True)]
        try:
            found.append([(np.broadcast_to(a, values.shape), np.broadcast_to(b, values.shape)) for a, b in rows])
        except ValueError:
            raise ShapeError(f"dy0={shown(dy0)}: give a list of arrays of the shape {values.shape} of y0") from None
    return found


def read_terms(terms: Any, guess: Mapping[str, Any]) -> tuple[list[Any], FreeValues, FreeValues]:
    """Coefficients as given, and numbers and orders of further terms, with which of them are free."""
    rows = []
    for each in listed("terms", terms, "pairs (coefficient, order)"):
        if isinstance(each, str) or np.ndim(each) > 1 or np.size(each) != 2 or not hasattr(each, "__getitem__"):
            raise InvalidInputError(f"terms holds {shown(each)}; a term is a pair (coefficient, order)")
        rows.append(tuple(each))
    given = [coefficient for coefficient, _ in rows]
    plain = [each if isinstance(each, str) else 0.0 for each in given]
    if "free" in [order for _, order in rows] and "orders" not in guess:
        raise InvalidInputError("the order of a term is free: give guess={'orders': [...]}, one for each term")
    orders = _read_free("orders", [order for _, order in rows], guess.get("orders", 0.0))
    return given, _read_free("coefficients", plain, guess.get("coefficients", 1.0)), orders


def _is_flat(y0: Any) -> bool:
    """Whether a list has the entries of one state, not one state per set."""
    return all(np.ndim(on_host(each)) == 0 and not (isinstance(each, str) and len(y0) == 1) for each in y0)


def _first_data(value: Any, table: Array, observe: Any) -> Array:
    """A guess from the first datum of each component."""
    if callable(observe):
        raise InvalidInputError("y0 is free and observe is a function: give guess={'y0': [...]} to start from")
    firsts = np.array([row[np.isfinite(row)][0] if np.isfinite(row).any() else 0.0 for row in table])
    if observe is None:
        return firsts
    if isinstance(value, str):
        raise InvalidInputError(
            "y0='free' with components that are not observed: give guess={'y0': [...]}, one for each component"
        )
    if any(isinstance(v, str) and k not in observe % len(value) for k, v in enumerate(value)):
        raise InvalidInputError("a free initial value is not observed: give guess={'y0': [...]}")
    start = np.zeros(len(value))
    start[observe] = firsts
    return start


# -- unknowns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A parameter, the order or an initial state as an affine function of the unknowns ``x``: ``base + select @ x``.

    Attributes
    ----------
    name : str
        Name of the quantity.
    shape : tuple of int
        Shape of the value; ``()`` for a number.
    base : array, shape (size,)
        Fixed entries, and 0 for free ones.
    select : array, shape (size, p)
        1 where an entry is an unknown.
    """

    name: str
    shape: tuple[int, ...]
    base: Array
    select: Array

    @property
    def free(self) -> list[int]:
        """The indices of its unknowns in ``x``."""
        return [int(k) for k in np.flatnonzero(self.select.any(0))]

    def at(self, x: Array) -> Array:
        """The value, shape ``(..., *shape)`` for x of shape (..., p)."""
        value: Array = self.base + x @ self.select.T
        return value.reshape((*x.shape[:-1], *self.shape))

    def plain(self, x: Array) -> Any:
        """The value for x of shape (p,); a number as a float."""
        return self.at(x) if self.shape else float(self.at(x))


class Unknowns(NamedTuple):
    """The unknowns of a fit.

    Attributes
    ----------
    names : tuple of str
        One for each unknown, such as ``"k"``, ``"alpha"``, ``"y0[1]"``.
    start, lower, upper : arrays, shape (p,)
        Guess and bounds.
    parameters : list of Quantity
        The parameters in the order of the arguments of ``fun``.
    alpha : Quantity
        The order or orders.
    coefficients, orders : Quantity
        Those of further terms.
    y0 : list of Quantity
        The initial state of each data set.
    dy0 : list of list of Quantity
        The initial derivatives of each data set.
    """

    names: tuple[str, ...]
    start: Array
    lower: Array
    upper: Array
    parameters: list[Quantity]
    alpha: Quantity
    coefficients: Quantity
    orders: Quantity
    y0: list[Quantity]
    dy0: list[list[Quantity]]


def read_table(name: str, value: Any) -> dict[str, Any]:
    """A dict by the names of unknowns; empty for None."""
    return dict(instance(name, {} if value is None else value, Mapping, f"{name}={{'alpha': ...}}"))


#: Name, label, values, which of them are free, and bounds, of a quantity.
Entry = tuple[str, str, Array, Array, Array, Array]


def read_parameters(
    parameters: Mapping[str, Any], bounds: Mapping[str, Any], others: Mapping[str, Any], own: set[str]
) -> list[Entry]:
    """The parameters of a fit that has names of its ``own``; ``others`` is a further table by these names."""
    if not isinstance(parameters, Mapping):
        raise InvalidInputError(
            f"parameters={parameters!r} has to name each parameter with its guess, such as {{'k': 1.0}}"
        )
    taken = own & parameters.keys()
    if taken:
        raise InvalidInputError(f"a parameter is called {taken.pop()!r}, which is a name of the fit; rename it")
    known = {*parameters, *own}
    for what, given in (("bounds", bounds), ("guess", others)):
        if not given.keys() <= known:
            raise InvalidInputError(
                f"{what} names {sorted(given.keys() - known)}; the names are {', '.join(sorted(known))}"
            )
    entries = []
    for name, value in parameters.items():
        start = _numbers(name, value)
        entries.append((name, name, start, np.ones(start.shape, bool), *_read_bounds(name, bounds, start.shape, _ANY)))
    return entries


class Search(NamedTuple):
    """Names, guess and bounds of the unknowns, and the quantities that are made of them."""

    names: tuple[str, ...]
    start: Array
    lower: Array
    upper: Array
    quantities: list[Quantity]


def collect(entries: list[Entry], bounds: Mapping[str, Any]) -> Search:
    """The unknowns among all values."""
    nothing = "nothing is free: name parameters (in fit_fode also alpha='free', y0='free')"
    if not entries:
        raise InvalidInputError(nothing)
    labels = [
        f"{label}[{', '.join(map(str, index))}]" if index else label
        for _, label, start, *_ in entries
        for index in np.ndindex(start.shape)
    ]
    values, free, lower, upper = (np.concatenate([np.ravel(each[k]) for each in entries]) for k in range(2, 6))
    for k in np.flatnonzero(free):
        _check_guess(labels[k], values[k], lower[k], upper[k], bounds)
    if not free.any():
        raise InvalidInputError(nothing)
    cuts = np.cumsum([each[2].size for each in entries])[:-1]
    parts = np.split(np.where(free, 0.0, values), cuts), np.split(np.eye(free.size)[:, free], cuts)
    quantities = [Quantity(each[0], each[2].shape, *part) for each, *part in zip(entries, *parts, strict=True)]
    names = tuple(label for label, unknown in zip(labels, free, strict=True) if unknown)
    return Search(names, values[free], lower[free], upper[free], quantities)


def read_unknowns(
    parameters: Mapping[str, Any],
    alpha: Any,
    y0: list[FreeValues],
    dy0: list[list[FreeValues]],
    coefficients: FreeValues,
    term_orders: FreeValues,
    guess: Mapping[str, Any],
    bounds: Mapping[str, Any],
) -> Unknowns:
    """Read the arguments; ``y0`` and ``dy0`` have an entry for each data set."""
    entries = read_parameters(parameters, bounds, guess, {"alpha", "y0", "dy0", "coefficients", "orders"})
    derivatives = len(dy0[0])
    orders, free = _read_free("alpha", alpha, guess.get("alpha", derivatives + _FIRST_ORDER))
    low, high = _read_bounds("alpha", bounds, orders.shape, (derivatives + _ABOVE, derivatives + 1.0))
    top = term_orders[0].max(initial=0.0, where=~term_orders[1])
    low = np.maximum(low, np.minimum(top + _ABOVE, 0.5 * (top + high)))  # alpha is the highest order
    if "alpha" not in guess:  # a default guess is moved into the bounds
        orders = np.where(free, np.clip(orders, low, high), orders)
    entries.append(("alpha", "alpha", orders, free, low, high))
    below = np.floor(term_orders[0])  # an order stays between two integers
    between = (below + _ABOVE, np.minimum(below + 1.0, np.where(free, high, orders).min()) - _ABOVE)
    for name, pair, limits in (("coefficients", coefficients, _ANY), ("orders", term_orders, between)):
        entries.append((name, name, *pair, *_read_bounds(name, bounds, pair[0].shape, limits)))
    for number, (state, slopes) in enumerate(zip(y0, dy0, strict=True)):
        which = f" of set {number}" if len(y0) > 1 else ""
        named = [("y0", f"y0{which}", state), *(("dy0", f"dy0[{k}]{which}", row) for k, row in enumerate(slopes))]
        for name, label, (start, free) in named:
            entries.append((name, label, start, free, *_read_bounds(name, bounds, start.shape, _ANY)))
    names, first, lower, upper, quantities = collect(entries, bounds)
    mine, (order, factors, powers, *states) = quantities[: len(parameters)], quantities[len(parameters) :]
    groups = [states[k : k + derivatives + 1] for k in range(0, len(states), derivatives + 1)]
    firsts, others = [each[0] for each in groups], [each[1:] for each in groups]
    return Unknowns(names, first, lower, upper, mine, order, factors, powers, firsts, others)


def _check_guess(entry: str, value: float, low: float, high: float, bounds: Mapping[str, Any]) -> None:
    if not math.isfinite(value):
        raise InvalidInputError(f"{entry} starts at {value}; give a finite guess")
    if not low <= value <= high:
        above = entry.startswith("alpha") and "alpha" not in bounds and high < value <= 2.0
        lifted = "; dy0=[...], the initial derivatives, allows orders above 1" if above else ""
        raise InvalidInputError(f"{entry} starts at {value:g}, outside its bounds ({low:g}, {high:g}){lifted}")


def _read_bounds(
    name: str, bounds: Mapping[str, Any], shape: tuple[int, ...], limits: tuple[Any, Any]
) -> tuple[Array, Array]:
    given = bounds.get(name, limits)
    try:
        low, high = given
        lower = np.broadcast_to(np.asarray(-math.inf if low is None else low, np.float64), shape)
        upper = np.broadcast_to(np.asarray(math.inf if high is None else high, np.float64), shape)
    except (TypeError, ValueError):
        raise InvalidInputError(f"bounds[{name!r}]={given!r} has to be a pair (lower, upper)") from None
    if not np.all(lower < upper):  # also if one is nan
        raise InvalidInputError(f"bounds[{name!r}]={given!r}: the lower bound has to be below the upper one")
    if name == "alpha" and not (limits[0] <= lower.min() and upper.max() <= limits[1]):
        raise InvalidInputError(
            f"bounds['alpha']={given!r} leaves ({limits[0]:g}, {limits[1]:g}), the orders for which the initial "
            "values suffice: an order above 1 needs dy0"
        )
    return lower, upper


def _read_free(name: str, value: Any, guess: Any) -> tuple[Array, Array]:
    """Values, and which of them are free, of a number, an array, ``"free"``, or a list of numbers and ``"free"``."""
    if not any_free(value):
        fixed = _numbers(name, value)
        return fixed, np.zeros(fixed.shape, bool)
    items = [value] if isinstance(value, str) else value
    strange = [each for each in items if isinstance(each, str) and each != "free"]
    if strange:
        raise InvalidInputError(f"{name} holds {strange[0]!r}; use 'free' or a number for each component")
    start = _numbers(name, guess)
    if isinstance(value, str):
        return start, np.ones(start.shape, bool)
    free = np.array([isinstance(each, str) for each in value])
    fixed = np.array([0.0 if isinstance(each, str) else float(each) for each in value])
    return np.where(free, np.broadcast_to(start, free.shape), fixed), free


def _numbers(name: str, value: Any) -> Array:
    try:
        return np.array(on_host(value), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ShapeError(f"{name}={shown(value)} has to be a number or an array of numbers") from None
