"""The base class of primitives: contracts that the kernels of every backend satisfy.

A primitive defines shapes, dtypes, work and memory, independently of backends. These implement it, with the same
argument names, in ``engine/backends/<backend>/kernels/<primitive>.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import dtype_name
from hpfracc.engine.workload import Bucket, as_shape, bucket_of
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError

FLOATS: frozenset[str] = frozenset({"float32", "float64"})
INEXACT: frozenset[str] = FLOATS | {"complex64", "complex128"}
INTEGERS: frozenset[str] = frozenset({"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
REALS: frozenset[str] = FLOATS | INTEGERS
NUMBERS: frozenset[str] = INEXACT | INTEGERS


@cache
def itemsize(dtype: str) -> int:
    """Bytes of one element."""
    return int(np.dtype(dtype).itemsize)


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of an array that may not exist: sufficient for :meth:`Primitive.describe`."""

    shape: tuple[int, ...]
    dtype: str = "float64"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_shape(self.shape))
        try:
            name = str(np.dtype(self.dtype))
        except TypeError:
            raise UnsupportedDtypeError(f"dtype={self.dtype!r} is not a dtype; use a name such as 'float64'") from None
        object.__setattr__(self, "dtype", name)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Call:
    """The properties of a call on which its cost depends, without the data.

    Attributes
    ----------
    operation : str
        Name of the primitive.
    batch, length : int
        Independent rows, and elements of one row.
    dtype : str
        Dtype of the computation; array operands are cast to it unless the primitive specifies otherwise.
    shape : tuple of int
        Shape of the result.
    input_bytes, output_bytes : int
        Bytes of the operands and of the result, in the dtypes in which they are transferred.
    facts : Mapping[str, Any]
        Further properties for the work and memory models, such as ``taps``.
    """

    operation: str
    batch: int
    length: int
    dtype: str
    shape: tuple[int, ...]
    input_bytes: int
    output_bytes: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bucket(self) -> Bucket:
        """The size bucket of this call."""
        return bucket_of(self.batch, self.length)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in the dtype of the computation."""
        return itemsize(self.dtype)

    @property
    def wide_itemsize(self) -> int:
        """Bytes of one element in double precision."""
        return 16 if self.dtype.startswith("complex") else 8


class Transform(NamedTuple):
    """Fourier transforms of one kind: points along the transformed axes, their number, and the dtype of the signal.

    ``inverse`` means that the last transform returns to that dtype.
    """

    lengths: tuple[int, ...]
    rows: int
    dtype: str
    inverse: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the signals."""
        return math.prod(self.lengths) * self.rows * itemsize(self.dtype)


class Primitive(ABC):
    """The contract of one operation.

    Subclasses are stateless; ``engine.primitives.PRIMITIVES`` has one instance of each.
    """

    #: Its name in kernels, the CLI and the wisdom.
    name: ClassVar[str]
    #: Names of the array operands, in order; a trailing ``"*"`` means any number.
    operands: ClassVar[tuple[str, ...]]
    #: Index of the operand whose transform can be cached under a key, or None.
    prepared_operand: ClassVar[int | None] = None
    #: Whether operands are cast to ``Call.dtype`` before a kernel sees them.
    casts: ClassVar[bool] = True
    #: Indices of the operands that every piece of a call needs whole.
    whole_operands: ClassVar[tuple[int, ...]] = ()
    #: Parameters on whose value neither the cost nor a plan depends, unless a kernel is compiled for it. Kernels check
    #: them.
    free_parameters: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def describe(self, *arrays: Any, **params: Any) -> Call:
        """Check the operands (arrays or :class:`ArraySpec`) and return what the cost depends on."""

    def call(
        self,
        dtype: str,
        shape: tuple[int, ...],
        given: Iterable[tuple[int, ...]],
        /,
        *,
        batch: int | None = None,
        length: int | None = None,
        result: str | None = None,
        more_bytes: int = 0,
        **facts: Any,
    ) -> Call:
        """Describe a call with operands of the shapes ``given`` in ``dtype``, and others of ``more_bytes`` in total.

        ``shape`` is that of the result, and ``result`` its dtype if it is another one. Its last axis is the length and
        the others are the batch, unless these are given.
        """
        return Call(
            operation=self.name,
            batch=math.prod(shape[:-1]) if batch is None else batch,
            length=shape[-1] if length is None else length,
            dtype=dtype,
            shape=shape,
            input_bytes=sum(map(math.prod, given)) * itemsize(dtype) + more_bytes,
            output_bytes=math.prod(shape) * itemsize(result or dtype),
            facts=facts if result is None else {**facts, "result": result},
        )

    @abstractmethod
    def work(self, call: Call, algorithm: str) -> float:
        """Elementary steps of ``call`` by ``algorithm``: time is interpolated along it, so only its growth matters."""

    def workspace(self, call: Call, algorithm: str) -> int:
        """Bytes of the working arrays of ``algorithm``, counted once; a kernel needs a multiple of them.

        See :class:`~hpfracc.engine.backends.base.MemoryModel`.
        """
        return 0

    def block_elements(self, call: Call, algorithm: str) -> int:
        """Elements that ``algorithm`` processes in blocks of a bounded size, such as computed weights."""
        return 0

    def transform(self, call: Call, algorithm: str) -> Transform | None:
        """The largest Fourier transform of ``algorithm``: a GPU's library has a work area for it."""
        return None

    @abstractmethod
    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """Operands and parameters of a typical call whose main operand has ``shape``."""

    def typical(self, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Convert random operands to those of a typical call, if time depends on more than their shapes."""
        return arrays

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """Ways to split the call, the best first.

        By default along every axis of the result, the longest first, but those that are ``inner`` by the call's facts:
        usually the last one.
        """
        shapes = (None if index in self.whole_operands else shape_of(array) for index, array in enumerate(arrays))
        return outer_cuts(shapes, call.shape, call.facts.get("inner", (-1,)))

    def merge(self, parts: np.ndarray, sizes: tuple[int, ...], **params: Any) -> np.ndarray:
        """The result from those of the pieces, stacked along a new first axis; ``sizes`` are their lengths."""
        raise NotImplementedError(f"{self.name} has no pieces to bring together")

    def memory(self, call: Call, algorithm: str) -> int:
        """Total bytes: operands, result and one workspace."""
        return call.input_bytes + call.output_bytes + self.workspace(call, algorithm)


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape of an operand; a Python number has ``()``."""
    shape = getattr(array, "shape", None)
    if shape is not None:
        return tuple(shape)
    try:
        return np.shape(array)
    except ValueError as error:
        raise ShapeError(f"a list is not an array ({error}); make its rows equally long") from None


def dtype_of(array: Any) -> str:
    """The dtype's name of an array, an :class:`ArraySpec` or a Python number."""
    if isinstance(array, ArraySpec):
        return array.dtype
    return dtype_name(array)


# Ways to split a call. A primitive defines them along with its shapes; the engine uses them if a whole call does not
# fit into memory.


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to split a call.

    Attributes
    ----------
    axis : int
        The axis of the result that is split, counted from the last; for ``merges`` the axis of the operand.
    length : int
        Points along it.
    operands : tuple of (int or None)
        The axis along which each operand is split, counted from the last; None if every piece needs all of it.
    before : int
        Number of points before a piece that its first results need.
    merges : bool
        Whether the axis is not in the result: then the results of the pieces are combined by the primitive's
        :meth:`~hpfracc.engine.primitives.base.Primitive.merge`.
    """

    axis: int
    length: int
    operands: tuple[int | None, ...]
    before: int = 0
    merges: bool = False


def outer_cuts(
    shapes: Iterable[tuple[int, ...] | None], result: tuple[int, ...], inner: Iterable[int]
) -> Iterator[Cut]:
    """Cuts along every axis of the result but the ``inner`` ones, the longest first; axes count from the last.

    Operands have the same axes as the result, or are repeated along them; None is for one that is never split.
    """
    shapes, kept = tuple(shapes), frozenset(inner)
    axes = [axis for axis in range(-len(result), 0) if axis not in kept and result[axis] > 1]
    for axis in sorted(axes, key=lambda axis: -result[axis]):
        operands = tuple(None if shape is None else own_axis(shape, axis) for shape in shapes)
        if any(own is not None for own in operands):
            yield Cut(axis, result[axis], operands)


def own_axis(shape: tuple[int, ...], axis: int) -> int | None:
    """The axis if the operand has it and is not repeated along it."""
    return axis if -axis <= len(shape) and shape[axis] > 1 else None


# Reasons why an algorithm does not serve a call: backends declare them, before a primitive is loaded.


def several_axes(call: Call) -> str | None:
    """Reason why a direct sum does not support a call, or None."""
    count = len(call.facts["axes"])
    return None if count == 1 else f"it sums along one axis, not {count} at once; fft supports any number"


def fills_one_block(call: Call) -> str | None:
    """Reason why blocks do not pay off for a call, or None if there are at least two."""
    from hpfracc.engine.numerics.lengths import block_length

    taps: int = call.facts["taps"]
    step = block_length(taps) - taps + 1
    if call.length > step:
        return None
    return f"{call.length} points fit into one block of {step}, which fft transforms as a whole"


# Reading of operands: arrays of any library, `ArraySpec`s, Python numbers or lists. Only shape and dtype are read.

#: Cached names of dtypes, because formatting one takes a microsecond.
_NAMES: dict[Any, str] = {}
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_REAL = {"complex64": "float32", "complex128": "float64"}


def read_dtype(operation: str, name: str, array: Any, allowed: frozenset[str] = NUMBERS) -> str:
    """The dtype of an operand; raises :class:`UnsupportedDtypeError` with a remedy if it is not supported."""
    key = getattr(array, "dtype", None)
    dtype = _NAMES.get(key) if key is not None else None
    if dtype is None:
        try:
            dtype = dtype_of(array)
        except ValueError as error:
            raise ShapeError(f"{operation}: {name} is not an array ({error}); make its rows equally long") from None
        if key is not None:
            _NAMES[key] = dtype
    if dtype not in allowed:
        raise UnsupportedDtypeError(f"{operation}: {name} has dtype {dtype!r}, {_remedy(dtype, allowed)}")
    return dtype


def read_shape(operation: str, name: str, array: Any) -> tuple[int, ...]:
    """The shape of an operand with at least one axis, or :class:`ShapeError`."""
    shape = shape_of(array)
    if not shape:
        raise ShapeError(f"{operation}: {name} has shape (); it needs at least one axis")
    return shape


def signal_dtype(operation: str, signal: Any, **others: Any) -> str:
    """The dtype of a computation in the precision of the signal, complex if one of the ``others`` is."""
    dtype = inexact(read_dtype(operation, "signal", signal))
    widened = [read_dtype(operation, name, array).startswith("complex") for name, array in others.items()]
    return complex_of(dtype) if any(widened) else dtype


def _remedy(dtype: str, allowed: frozenset[str]) -> str:
    if dtype == "object":
        return "which holds Python objects; convert it to numbers first, as with numpy.asarray(x, dtype=float)"
    if dtype.startswith(("float16", "bfloat16", "float8", "float4")) and "float32" in allowed:
        return "which has too few digits; convert it to float32"
    if dtype in ("float96", "float128", "longdouble") and "float64" in allowed:
        return "which no backend supports; convert it to float64"
    if dtype in ("complex192", "complex256", "clongdouble") and "complex128" in allowed:
        return "which no backend supports; convert it to complex128"
    if dtype[0] in "<>" and dtype[1] in "fciu":
        return f"which is not in this machine's byte order; convert it with .astype({dtype[1:]!r})"
    return f"which it does not take; convert it to one of {', '.join(sorted(allowed))}"


@lru_cache(maxsize=4096)
def promoted(names: tuple[str, ...]) -> str:
    """The dtype that NumPy would give an operation over arrays of these dtypes."""
    return str(np.result_type(*names))


def complex_of(dtype: str) -> str:
    """The complex dtype of the same precision."""
    return _COMPLEX.get(dtype, dtype)


def inexact(dtype: str) -> str:
    """The dtype of a computation with numbers of ``dtype``: float64 for integers and booleans."""
    return dtype if dtype in INEXACT else "float64"


def real_of(dtype: str) -> str:
    """The real dtype of the same precision."""
    return _REAL.get(dtype, dtype)


def broadcast(operation: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that ``shapes`` broadcast to, or :class:`ShapeError`."""
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    axes = max(map(len, shapes))
    result = []
    for axis in range(-axes, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            shown = " and ".join(map(str, shapes))
            raise ShapeError(
                f"{operation}: shapes {shown} do not broadcast; axes must be equal, or 1, counted from the last"
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def normal_axis(operation: str, axis: Any, axes: int) -> int:
    """``axis`` counted from the front; raises :class:`InvalidInputError` if it does not exist."""
    number = _reading.whole(f"{operation}: axis", axis)
    if not -axes <= number < axes:
        raise InvalidInputError(
            f"{operation}: axis={number} of an array with {axes} axes; use {-axes} to {axes - 1}"
            if axes
            else f"{operation}: axis={number} of an array without axes; give it at least one, or omit axis"
        )
    return number % axes


def normal_axes(operation: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """``axes``, one or several different ones, counted from the front, in the given order."""
    chosen = tuple(axes) if isinstance(axes, Sequence) and not isinstance(axes, str) else (axes,)
    numbers = tuple(normal_axis(operation, axis, ndim) for axis in chosen)
    if len(set(numbers)) < len(numbers):
        raise InvalidInputError(f"{operation}: axes={axes!r} names an axis twice; name each once")
    return numbers
