"""A 4-ary heap of indices by key, in preallocated arrays; of equal keys the newest comes first."""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}


@njit(**_OPTIONS)
def push(keys, items, size, key, item):  # type: ignore[no-untyped-def]
    """Append an item after ``size`` others and move it up."""
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 2
        if keys[parent] < key:
            break
        keys[hole] = keys[parent]
        items[hole] = items[parent]
        hole = parent
    keys[hole] = key
    items[hole] = item


@njit(**_OPTIONS)
def sink(keys, items, size):  # type: ignore[no-untyped-def]
    """Remove the first item: the last one, after ``size`` others, is moved down to a new position."""
    key, item = keys[size], items[size]
    hole = 0
    while True:
        child = 4 * hole + 1
        if child >= size:
            break
        least, best = child, keys[child]
        for other in range(child + 1, min(child + 4, size)):
            if keys[other] < best:
                least, best = other, keys[other]
        if best >= key:
            break
        keys[hole] = best
        items[hole] = items[least]
        hole = least
    keys[hole] = key
    items[hole] = item
