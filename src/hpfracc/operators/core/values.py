"""Samples in the caller's own library: reading them, and the few operations on them that operators need."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import (
    device_of,
    dtype_name,
    is_chunked,
    library_of,
    refuse_masked,
)
from hpfracc._frames import has_labels, open_samples, refuse_tables
from hpfracc._plugs import cluster_support
from hpfracc._xp import NUMPY, Namespace, array_namespace, namespace_of, of_variables
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order

_SERVED = ("float32", "float64", "complex64", "complex128")
#: The last step of a rule, ``finish(result, values)``, from the result of its sum, which may be written over, and the
#: samples.
Finish = Callable[[Any, Any], Any]


class RecordedSum(NamedTuple):
    """A recorded causal convolution with named weights: its operands, its options and its result."""

    weights: Any
    signal: Any
    starts: tuple[Any, ...]
    key: Hashable
    options: dict[str, Any]
    finish: Finish | None
    result: Any


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of a function along the last axis, on a grid.

    Attributes
    ----------
    values : array
        Shape ``(..., n)``, floating or complex, of the caller's library.
    grid : Grid
        The points of the samples.
    backend : str or None
        Passed to every engine call.
    rtol : float or None
        Relative tolerance of an approximated memory, if the caller gave one.
    recorded : list or None
        Records causal convolutions with named weights, if given.
    """

    values: Any
    grid: Grid
    backend: Any = None
    rtol: float | None = None
    recorded: list[RecordedSum] | None = None

    @property
    def n(self) -> int:
        """Number of points."""
        return self.grid.n

    def convolve(
        self,
        weights: Any,
        signal: Any,
        key: Hashable = None,
        starts: Any = None,
        finish: Finish | None = None,
        **options: Any,
    ) -> Any:
        """``y[..., n] = sum_k weights[k] signal[..., n - k]``; ``key`` names weights whose transform is cached.

        ``starts`` and ``options`` are those of the primitive. ``finish`` makes the value out of the sum.
        """
        after = () if starts is None else (starts,)
        result = causal_convolution(weights, signal, *after, backend=self.backend, weights_key=key, **options)
        if finish is not None:
            result = finish(result, self.values)
        if self.recorded is not None and key is not None:
            self.recorded.append(RecordedSum(weights, signal, after, key, options, finish, result))
        return result

    def scale(self, exponent: Any) -> Any:
        """``step ** exponent``, as a factor for the values."""
        step = self.grid.step
        if library_of(step) in ("numpy", "python") and library_of(exponent) in ("numpy", "python"):
            return step_power(step, exponent, self.values)
        return scalar(step, self.values) ** scalar(exponent, self.values)


def step_power(step: Any, exponent: Any, like: Any) -> float:
    """``step ** exponent`` of plain numbers; raises an error if that leaves the range of the samples' dtype."""
    limits = np.finfo(real_dtype(like))
    try:
        power = math.pow(float(step), float(exponent))
    except OverflowError:
        power = math.inf
    if not float(limits.tiny) <= power <= float(limits.max):
        raise InvalidInputError(
            f"step={float(step):g} to the power {float(exponent):g} is outside the range of {real_dtype(like)}, and so "
            "are the results; measure t in other units, in which the step is nearer to 1"
        )
    return power


def as_values(f: Any, *others: Any) -> Any:
    """``f`` as a floating or complex array of the library that it, or one of ``others``, belongs to.

    Integers are promoted to float64, never truncated. If an order or a step belongs to PyTorch or JAX, NumPy samples
    are converted to that library.
    """
    refuse_masked(f, "f", "t")
    owners = {library_of(value) for value in (f, *others)} - {"numpy", "python"}
    if len(owners) > 1:
        raise InvalidInputError(f"arrays of {' and '.join(sorted(owners))} in one call; convert them to one library")
    if library_of(f) == "python":
        refuse_tables("this call", f)
        try:
            f = np.asarray(f)
        except ValueError as error:  # rows of different lengths
            raise ShapeError(f"f is not an array of samples ({error}); give rows of one length") from None
    if isinstance(f, np.ndarray) and not f.dtype.isnative:
        f = f.astype(f.dtype.newbyteorder("="))
    name = dtype_name(f)
    if name not in _SERVED:
        if not name.startswith(("int", "uint", "bool")):
            raise UnsupportedDtypeError(
                f"samples of dtype {name} are not supported; convert them to one of {', '.join(_SERVED)}"
            )
        f = array_namespace(f).astype(f, float)  # JAX's widest float is float32 without x64
    if owners and library_of(f) == "numpy":
        f = _bring(f, next(value for value in others if library_of(value) in owners))
    return f


def _bring(f: np.ndarray[Any, Any], like: Any) -> Any:
    """NumPy samples in the library of ``like``, on its device, in their own precision."""
    xp = array_namespace(like)
    with xp.scope():
        return xp.asarray(f, like)


def points_like(points: np.ndarray[Any, Any], like: Any) -> Any:
    """Points for a callable, in the library and precision of the caller's points."""
    return points if library_of(like) == "numpy" else _bring(points.astype(real_dtype(like), copy=False), like)


def real_dtype(values: Any) -> str:
    """The name of the real dtype with the precision of ``values``."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype_name(values), dtype_name(values))


def constant(array: Any, like: Any, key: Hashable = None) -> Any:
    """A real array of coefficients in the precision and library of ``like``.

    NumPy coefficients are moved to the device of ``like``; with a ``key`` the copy there is cached.
    """
    name = real_dtype(like)
    own = array_namespace(array)
    if own is not NUMPY:
        with own.scope():
            return own.astype(array, name, like)
    xp = array_namespace(like)
    if key is None or not xp.can_cache(like):
        return xp.coefficients(array, name, like)
    place = (key, "constant", xp.library, name, device_of(like))
    return prepared_operands.get(place, partial(xp.cacheable, array, name, like))


def scalar(value: Any, like: Any) -> Any:
    """A factor for ``like`` that does not change its dtype: a float, or a scalar array in its precision."""
    if library_of(value) in ("numpy", "python"):
        return float(value)
    return constant(value, like)


def namespace_among(*values: Any) -> Namespace:
    """The namespace of the first of ``values`` that is not NumPy's; NumPy's if there is none."""
    return next((space for space in map(namespace_of, values) if space is not NUMPY), NUMPY)


def zeros(like: Any, count: int) -> Any:
    """``count`` zeros along the last axis, otherwise with the shape, dtype and device of ``like``."""
    return array_namespace(like).zeros((*like.shape[:-1], count), like.dtype, like)


def add_from(value: Any, start: int, change: Any) -> Any:
    """``value`` with ``change`` added from point ``start`` on."""
    return value + change if start == 0 else join([value[..., :start], value[..., start:] + change])


def largest(values: Any) -> Any:
    """The largest finite absolute value along the last axis, which is kept."""
    size, xp = abs(values), array_namespace(values)
    with np.errstate(invalid="ignore"):
        size = xp.where(size - size == 0, size, zeros(size, size.shape[-1]))
    return xp.amax(size, -1, keepdims=True)


def real_product(x: Any, table: Any) -> Any:
    """``x[..., :count] @ table.T`` with a real table of any axes, the last of length count; the others come last."""
    xp = array_namespace(x)
    flat = constant(table.reshape(-1, table.shape[-1]), x)
    flat = xp.astype(flat, x.dtype) if xp.is_complex(x) else flat
    return xp.matmul(x, flat.T).reshape(*x.shape[:-1], *table.shape[:-1])


def join(parts: Sequence[Any]) -> Any:
    """Concatenate arrays along the last axis."""
    return array_namespace(parts[0]).concatenate(parts, -1)


def move_axis(values: Any, source: int, target: int) -> Any:
    """``values`` with one axis moved; ``values`` itself if the axis is in its place."""
    return values if source == target else array_namespace(values).moveaxis(values, source, target)


def flip(values: Any) -> Any:
    """The points along the last axis in the opposite order, without negative strides, which PyTorch does not accept."""
    xp = array_namespace(values)
    return xp.contiguous(xp.flip(values))


def apply_over_points(
    function: Callable[[Any], Any],
    x: Any,
    axis: int | None,
    dim: Any,
    *,
    like: Any = None,
    dtype: Any = None,
    count: int | None = None,
    **labels: Any,
) -> Any:
    """``function(values)`` of samples with their points along the last axis, put back along ``axis``.

    Parameters
    ----------
    function : functools.partial
        Of a function of this library, which names it in the errors of a cluster.
    x : array_like
        May be labelled, then ``labels`` are the options of :meth:`Opened.close`; or chunked, then ``dtype`` and
        ``count`` are the dtype and the points of the result if they are not those of ``x``.
    axis, dim
        The axis of the points, or its name.
    like : array, optional
        Whose library the samples are brought to, as for :func:`as_values`.
    """
    if is_chunked(x) and dim is None:
        call = partial(_apply_to_block, function, axis, like)
        name = function.func.__name__.strip("_")  # type: ignore[attr-defined]
        return cluster_support().apply_function(name, call, x, axis, dtype=dtype, points=count)
    if dim is not None or has_labels(x):
        opened = open_samples(x, axis=axis, dim=dim, by_row=True, chunked=True)
        found = apply_over_points(function, opened.values, opened.axis, None, like=like, dtype=dtype, count=count)
        return opened.close(found, **labels)
    values = as_values(x, like)
    axis = check_axis(-1 if axis is None else axis, values.ndim)
    return move_axis(function(move_axis(values, axis, -1)), -1, axis)


def _apply_to_block(function: Callable[[Any], Any], axis: int | None, like: Any, block: Any) -> Any:
    return apply_over_points(function, block, axis, None, like=like)


def check_axis(axis: Any, ndim: int) -> int:
    """``axis`` counted from the end, as a negative number; the error lists the valid ones."""
    if ndim == 0:
        raise ShapeError("f is a single number; give its samples along an axis, or f as a callable")
    return _reading.axis(axis, ndim) - ndim


def weights_key(scheme: Hashable, order: Order, n: int) -> Hashable:
    """The cache key of the weights of ``scheme`` for ``n`` points; None if the order is not a plain number."""
    return (scheme, order.value, n) if order.plain else None


def scaled_weights(
    scheme: Hashable,
    make: Callable[[Namespace, Any, Any], tuple[Any, ...]],
    order: Order,
    samples: Samples,
    sign: int,
    *,
    whole: int = 0,
    few: bool = False,
    strict: bool = False,
    points: int | None = None,
) -> tuple[tuple[Any, ...], Hashable, Any]:
    """The weights of a rule times ``step ** (sign (alpha + whole))``, the key of the first of them, and a factor.

    For a plain step and order the power is folded into the cached weights, and the returned factor is None. It is also
    folded into weights from a table, for a PyTorch order, which have the precision of the samples. Otherwise the factor
    is the power, and the caller multiplies by it.

    ``few`` as for :func:`weights_of`. With ``strict`` the first array is nan where a traced order is outside its
    interval. ``points`` is the number passed to ``make``, by default that of the samples.
    """
    n, step = samples.n if points is None else points, samples.grid.step
    plain_step = library_of(step) in ("numpy", "python")
    if not order.plain and order.xp.library == "torch" and plain_step and float(step) > 0.0:
        from hpfracc.operators.core.order_tables import tabulated_weights

        rate = sign * math.log(float(step))
        made = tabulated_weights(
            scheme, make, order, n, few, rate=rate, shift=whole * rate, strict=strict, dtype=real_dtype(samples.values)
        )
        if made is not None:
            return made, None, None
    exponent = sign * (order.value + whole) if whole else order.value if sign > 0 else -order.value
    if not order.plain or not plain_step:
        made = weights_of(scheme, make, order, n, few=few)
        if strict:
            with order.xp.scope():
                made = order.guard(made[0]), *made[1:]
        return made, weights_key(scheme, order, n), samples.scale(exponent)
    factor = step_power(step, exponent, samples.values)
    name = (scheme, factor)
    made = weights_of(name, lambda xp, a, n: tuple(array * factor for array in make(xp, a, n)), order, n)
    return made, weights_key(name, order, n), None


def weights_of(
    scheme: Hashable, make: Callable[[Namespace, Any, Any], tuple[Any, ...]], order: Order, n: int, *, few: bool = False
) -> tuple[Any, ...]:
    """``make(xp, alpha, n)``, a tuple of float64 arrays; cached, and read-only, for a plain order.

    With ``few`` it can also be called for selected :class:`Lags`, of which a table is cached for learned orders.
    """
    if not order.plain:
        from hpfracc.operators.core.order_tables import tabulated_weights

        tabulated = tabulated_weights(scheme, make, order, n, few)
        if tabulated is not None:
            return tabulated
        with order.xp.scope():
            found: tuple[Any, ...] = of_variables(order.xp, lambda alpha: make(order.xp, alpha, n))(order.value)
            return found

    def make_constant() -> tuple[np.ndarray[Any, Any], ...]:
        arrays = make(order.xp, order.value, n)
        for array in arrays:
            array.setflags(write=False)
        return arrays

    kept: tuple[Any, ...] = prepared_operands.get(("weights", scheme, order.value, n), make_constant)
    return kept
