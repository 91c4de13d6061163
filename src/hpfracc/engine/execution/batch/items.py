"""The items of a batch: the arguments of each call, their grouping, and how they are stacked into one call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import all_alike, device_of, dtype_name, library_of, tracks_gradient
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives.base import Primitive, shape_of
from hpfracc.errors import BatchItemError, InvalidInputError

Shape = tuple[int, ...]


def kind_of(arguments: tuple[Any, ...]) -> Hashable:
    """The properties that stackable items have in common: library, device, shapes and dtypes.

    Masked arrays form a separate group: stacked with others they would lose their masks.
    """
    return tuple(
        (
            library_of(value),
            device_of(value),
            shape_of(value),
            dtype_name(value),
            tracks_gradient(value),
            isinstance(value, np.ma.MaskedArray),
        )
        for value in arguments
    )


class Calls(Sequence[tuple[Any, ...]]):
    """The arguments of each call of a batch, by position: they are grouped, compared and stacked by column.

    Parameters
    ----------
    columns : sequence of sequence
        The arguments of all calls at each position; an array's rows need no copying. Empty if their number differs.
    calls : list of tuple, optional
        The arguments of each call, if they are listed.
    """

    def __init__(self, columns: Sequence[Any], calls: list[tuple[Any, ...]] | None = None) -> None:
        self._columns = columns
        self._calls = calls

    @property
    def listed(self) -> bool:
        """Whether the items are listed: otherwise they are the rows of an array."""
        return self._calls is not None

    def __len__(self) -> int:
        return len(self._columns[-1]) if self._calls is None else len(self._calls)

    def __getitem__(self, index: Any) -> Any:
        return tuple(column[index] for column in self._columns) if self._calls is None else self._calls[index]

    def groups(self) -> Iterable[Sequence[int]]:
        """Positions of items that can be stacked, in order.

        Usually all items are of one kind, which a single pass over each column detects.
        """
        if self._calls is None:
            return [range(len(self))] if len(self) else []
        alike = bool(self._columns) and all(map(all_alike, self._columns))
        groups: dict[Hashable, list[int]] = {}
        for index, arguments in enumerate(self._calls[:1] if alike else self._calls):
            try:
                groups.setdefault(kind_of(arguments), []).append(index)
            except (TypeError, ValueError) as error:
                raise item_error(index, len(self), error) from error
        return [range(len(self))] if alike else groups.values()

    def shared(self, indices: Sequence[int]) -> tuple[bool, ...]:
        """Which operands are the same object in every item."""
        columns = [self.operand(number, indices) for number in range(len(self[indices[0]]))]
        # Usually the last differs from the first, which settles it.
        return tuple(column[-1] is column[0] and len(set(map(id, column))) == 1 for column in columns)

    def operand(self, number: int, part: Sequence[int]) -> Any:
        """One operand of these items: a list or tuple of values, or an array of adjacent rows."""
        if self._columns and isinstance(part, range) and part.step == 1:
            return self._columns[number][part.start : part.stop]
        if self._calls is None:
            return self._columns[number][part[0] : part[-1] + 1]
        return [self._calls[index][number] for index in part]


def calls_of(items: Any, common: tuple[Any, ...] = ()) -> Calls:
    """The arguments of each call: rows of an array, or items of an iterable, after the common arguments."""
    if library_of(items) != "python" and shape_of(items):
        return Calls([*([value] * len(items) for value in common), items])
    calls = _reading.listed("items", items, "the arguments of each call")
    if common or any(type(item) is not tuple for item in calls):
        calls = [(*common, *(item if isinstance(item, tuple) else (item,))) for item in calls]
    regular = bool(calls) and len(set(map(len, calls))) == 1
    return Calls(list(zip(*calls, strict=True)) if regular else [], calls)


@dataclass(frozen=True, slots=True)
class PieceSeed:
    """The seed of a batch for some of its items, the first of which is item ``first`` of the batch."""

    seed: Any
    first: int


def random_stream(seed: Any, index: int) -> np.random.Generator:
    """The random generator of one item, independent of how items are batched."""
    if isinstance(seed, PieceSeed):
        seed, index = seed.seed, seed.first + index
    number = _reading.whole("seed", seed, least=0, most=None)
    return np.random.default_rng(np.random.SeedSequence(number, spawn_key=(index,)))


def item_error(index: int, count: int, error: BaseException) -> BatchItemError:
    """An error that names the item; to be raised from ``error``."""
    return BatchItemError(f"item {index} of {count}: {registry.describe_failure(error)}", index)


def by_name(
    operation: Any, items: Iterable[Any], common: tuple[Any, ...], params: Mapping[str, Any]
) -> tuple[Any, list[tuple[Any, ...]], dict[str, Any]]:
    """Operation, items and parameters of a batch of expressions, whose items contain variables by name."""
    params = dict(params)
    expression = common[0] if len(common) == 1 else params.pop("expression", None)
    if not isinstance(expression, str) or len(common) > 1:
        raise InvalidInputError(
            f"a batch of expressions needs one for all items; got {expression!r}: use expression='x + y', and give "
            "items such as {'x': array, 'y': array}"
        )
    given = list(items)
    for index, item in enumerate(given):
        if not isinstance(item, Mapping) or set(item) != set(given[0]):
            wrong = InvalidInputError(f"{type(item).__name__} does not give the variables of the first item by name")
            raise item_error(index, len(given), wrong) from wrong
    names = tuple(given[0]) if given else ()
    calls = [(*params.values(), *(item[name] for name in names)) for item in given]
    return operation, calls, {"expression": expression, "names": (*params, *names)}


# Stacking: many calls of one operation become one.


@dataclass(frozen=True, slots=True)
class Stacking:
    """How calls of one kind are stacked into one.

    Attributes
    ----------
    shapes : tuple of tuple of int
        The shape of each operand before it is stacked along a new first axis.
    params : Mapping
        The parameters of the stacked call.
    drops : tuple of int
        Axes of the stacked result, counted from the last, that single results do not have.
    """

    shapes: tuple[Shape, ...]
    params: Mapping[str, Any]
    drops: tuple[int, ...] = ()


#: Operations whose calls can be stacked, with the number of last axes of each operand that do not broadcast.
STACKED_AXES = {
    "elementwise": 0,
    "bitwise_xor": 0,
    "mittag_leffler": 0,
    "fft": 0,
    "reduction": 0,
    "spectral_multiply": 0,
    "toeplitz_apply": 0,
    "causal_convolution": 1,
    "chirp_transform": 1,
    "matmul": 2,
}
#: The parameter that chooses axes of the last operand, and its default; None means all of them.
_CHOSEN_AXES = {
    "fft": ("axis", -1),
    "reduction": ("axis", None),
    "spectral_multiply": ("axes", -1),
    "toeplitz_apply": ("axes", -1),
}


def stacking_of(primitive: Primitive, shapes: Sequence[Shape], params: Mapping[str, Any]) -> Stacking | None:
    """How calls of ``primitive`` with operands of these shapes are stacked, or None if they cannot be."""
    if getattr(primitive, "batchable", False):
        return Stacking(tuple(shapes), params)
    core = STACKED_AXES.get(primitive.name)
    # The third operand of a convolution has its own axes, which do not broadcast.
    if core is None or (core and not all(shapes)) or (core == 1 and len(shapes) > 2):
        return None
    drops: tuple[int, ...] = ()
    if core == 2:
        left, right = shapes
        drops = ((-2,) if len(left) == 1 else ()) + ((-1,) if len(right) == 1 else ())
        shapes = ((1, *left) if len(left) == 1 else left, (*right, 1) if len(right) == 1 else right)
    option, default = _CHOSEN_AXES.get(primitive.name, (None, None))
    if option is not None:
        axes = len(shapes[-1])
        given = params.get(option, default)
        chosen = range(axes) if given is None else given if isinstance(given, tuple | list) else (given,)
        if not axes or not all(isinstance(axis, int) and -axes <= axis < axes for axis in chosen):
            return None  # the call itself reports the error
        counted = tuple(axis % axes - axes for axis in chosen)
        params = {**params, option: counted[0] if isinstance(given, int) else counted}
    # Padded to the same number of axes, so that broadcasting does not reach the new first axis.
    most = max(len(shape) for shape in shapes)
    return Stacking(tuple((1,) * (most - len(shape)) + shape for shape in shapes), params, drops)


def rows_of(stacked: Any, count: int) -> list[Any]:
    """The results of single items, as views of the stacked ones."""
    library, rows = library_of(stacked), []
    if library == "python" or (stacked.shape and stacked.shape[0] == count):
        if library == "torch" and not tracks_gradient(stacked):
            # All views in one call; autograd would forbid writing to them, so with gradients each is made separately.
            rows = list(stacked.unbind(0))
        else:
            rows = list(stacked) if library in ("python", "numpy") else [stacked[index] for index in range(count)]
    if len(rows) != count:
        raise InvalidInputError(
            f"a batched function returned a result of shape {shape_of(stacked)} for {count} items; "
            "the first axis of its result is that of the items"
        )
    return rows


def stack(values: Any) -> Any:
    """Stack the values of one operand."""
    if not isinstance(values, list | tuple):
        return values  # rows of an array
    library = library_of(values[0])
    if library not in ("numpy", "python"):
        return registry.adapter(library).stack(values)
    # np.stack would drop the masks.
    return np.ma.stack(values) if isinstance(values[0], np.ma.MaskedArray) else np.stack(values)
