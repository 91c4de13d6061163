"""How generic kernels are made for a library: its namespace, and what differs beyond the names of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from hpfracc._xp import namespace

Function = Callable[..., Any]


def scan_in_turn(step: Function, state: Any, inputs: tuple[Any, ...], stack: Function) -> tuple[Any, Any]:
    """``state, value = step(state, inputs[m])`` for each place m of the first axis; the values stacked along it."""
    values = []
    for now in zip(*inputs, strict=True):
        state, value = step(state, now)
        values.append(value)
    return state, None if values[0] is None else stack(values, 0)


class Library:
    """A library whose arrays can be written to and whose values must be waited for, as CuPy's.

    Each backend with generic kernels has its own ``LIBRARY`` in the file ``library.py``.
    """

    #: Weights of a block of a history sum (also in the declaration), 128 MiB, and its outputs: enough to fill a GPU.
    history_block, history_rows = 1 << 24, 2048
    #: Rounds over a lattice between two checks: a check waits for the device, a useless round costs a few passes.
    rounds = 32
    #: Options of inverse transforms.
    back_options: Mapping[str, Any] = MappingProxyType({})
    #: The library's own cosine and sine transforms and their inverses, ``transform(x, kind, axis, **options)``.
    waves: tuple[Function, Function] | None = None

    def __init__(self, name: str) -> None:
        self.xp = namespace(name)

    def finished(self, function: Function, threads: bool = False) -> Function:
        """``function`` as a kernel; with the keyword ``workers`` if the library has ``threads`` for it."""
        return function

    def unrecorded(self, prepare: Function) -> Function:
        """``prepare`` without derivatives of what it makes, which is cached."""
        return prepare

    def compiled_wide(self, function: Function, static: Sequence[str]) -> Function:
        """``function``, compiled, in double precision inside; ``static`` names arguments that are not arrays."""
        return function

    def wide(self, function: Function) -> Function:
        """``function(*arrays, **params)`` in double precision inside, now and in every derivative of it."""
        return function

    def multiply(self, product: Any, factor: Any) -> Any:
        """``product * factor``, written over ``product`` if it fits."""
        fits = np.result_type(product.dtype, factor.dtype) == product.dtype
        if not fits or np.broadcast_shapes(product.shape, factor.shape) != product.shape:
            return product * factor
        product *= factor
        return product

    def widen(self, array: Any) -> Any:
        """The precision in which a matrix product is computed, because the user may have enabled TF32."""
        return array.astype(np.result_type(array.dtype, np.float64), copy=False)

    def is_readable(self, array: Any) -> bool:
        """Whether a value can be read now, without waiting for a device."""
        return False

    def all_finite(self, array: Any) -> bool:
        """Whether all elements are finite, if they can be read; False where they would have to be waited for."""
        return False

    def only_if(self, flags: Any, function: Function, value: Any) -> Any:
        """``function(value)``, or ``value`` where it is cheap to know that no flag is set."""
        return function(value)

    def seen(self, flags: Any) -> Any:
        """Whether a flag is set at a point or before it."""
        return self.xp.cumsum(flags, -1) > 0

    def add_from(self, result: Any, place: int, values: Any) -> Any:
        """``result`` with ``values`` added from ``place`` on along the last axis; it may be written over."""
        result[..., place:] += values
        return result

    def twists(self, weights: Any) -> bool:
        """Whether a right-angle convolution with these real weights is faster than a padded one."""
        return False

    def scan(self, step: Function, state: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        """:func:`scan_in_turn`, compiled if the library has a compiler."""
        return scan_in_turn(step, state, inputs, self.xp.stack)

    def recomputed(self, function: Function, *tensors: Any) -> Function:
        """``function``, whose intermediate values are computed again for the derivative in ``tensors``, not stored."""
        return function

    def is_differentiated(self, *arrays: Any) -> bool:
        """Whether something records or transforms these arrays."""
        return False

    def part_length(self, n: int, *arrays: Any) -> int:
        """Steps of a signal of ``n`` of which the derivative stores the ends only."""
        return n

    def segments(self, n: int, states: int, array: Any) -> int:
        """Segments of ``n`` steps that advance together, each with that number of ``states``: enough to fill a GPU."""
        # At most the square root of the steps, because the states are propagated between segments.
        return max(1, min((1 << 19) // states, int(n**0.5)))

    def functions(self, names: Iterable[str]) -> Mapping[str, Function]:
        """The functions of formulae by name."""
        return {name: getattr(self.xp.module, name) for name in names}
