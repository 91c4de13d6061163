"""The items of a batch: what each call gets, which of them go together, and whose random numbers they use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from hpfracc._arrays import device_of, dtype_name, library_of, tracks_gradient
from hpfracc.engine.primitives._operands import shape_of
from hpfracc.errors import BatchItemError, InvalidInputError

__all__ = ["arguments_of", "first_failing", "group_items", "item_error", "random_stream"]


def arguments_of(item: Any) -> tuple[Any, ...]:
    """What one call gets: a tuple is several arguments, anything else is one."""
    return item if isinstance(item, tuple) else (item,)


def kind_of(arguments: tuple[Any, ...]) -> Hashable:
    """What items have in common that can be stacked: library, device, shapes and dtypes."""
    return tuple(
        (library_of(value), device_of(value), shape_of(value), dtype_name(value), tracks_gradient(value))
        for value in arguments
    )


def group_items(items: Sequence[tuple[Any, ...]]) -> dict[Hashable, list[int]]:
    """Positions of items by what they have in common, in order."""
    groups: dict[Hashable, list[int]] = {}
    for index, arguments in enumerate(items):
        try:
            groups.setdefault(kind_of(arguments), []).append(index)
        except (TypeError, ValueError) as error:
            raise item_error(index, len(items), error) from error
    return groups


def random_stream(seed: Any, index: int) -> np.random.Generator:
    """The random numbers of one item: the same whatever it is batched with."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InvalidInputError(f"seed={seed!r} is not a seed; use an int of at least 0")
    return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=(index,)))


def item_error(index: int, count: int, error: BaseException) -> BatchItemError:
    """The error that names the item; raise it from ``error``."""
    text = str(error).strip().split("\n", 1)[0]
    return BatchItemError(f"item {index} of {count}: {type(error).__name__}: {text}", index)


def first_failing(call: Callable[[int], Any], indices: Sequence[int]) -> tuple[int, Exception] | None:
    """The first of these items that fails alone, and how; None where each of them goes well."""
    for index in indices:
        try:
            call(index)
        except Exception as error:
            return index, error
    return None
