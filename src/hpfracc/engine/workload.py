"""Workloads: the kind and size of a computation, and its size bucket."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hpfracc import _reading
from hpfracc.errors import InvalidInputError

#: (log2 of the batch, log2 of the length), both rounded: workloads in one bucket cost about the same.
Bucket = tuple[int, int]

#: The operation type of unregistered names.
OTHER = "other"

#: The public operation types, and the primitive of each. None: the choice is between backends, by the times reported to
#: ``record_performance``.
OPERATION_PRIMITIVES: dict[str, str | None] = {
    "matmul": "matmul",
    "conv": "causal_convolution",
    "fft": "fft",
    "derivative": "causal_convolution",
    "fractional_derivative": "causal_convolution",
    "caputo_derivative": "causal_convolution",
    "element_wise": "elementwise",
    "reduction": "reduction",
    "transform": "fft",
    "random": None,
    "graph": None,
    "neural_network": None,
    "ode_solve": None,
    "iterative": None,
    OTHER: None,
}


def bucket_of(batch: int, length: int) -> Bucket:
    """The bucket of ``batch`` rows of ``length`` elements; 0 counts as 1."""
    return round(math.log2(max(batch, 1))), round(math.log2(max(length, 1)))


class WorkloadCharacteristics:
    """A computation, described without its data.

    Parameters
    ----------
    operation_type : str
        One of :data:`OPERATION_PRIMITIVES`, a registered operation's name, or anything else (counted as ``"other"``).
    data_size : int
        Number of elements; may differ from the product of the shape.
    data_shape : tuple of int
        Shape of the main operand; leading axes are a batch.
    dtype_size : int
        Bytes of one element.
    is_iterative, requires_gradient : bool
        Whether the work is iterative, and whether it must be differentiable.
    **features
        Further properties, stored in ``features``.
    """

    def __init__(
        self,
        operation_type: str,
        data_size: int,
        data_shape: Iterable[int],
        dtype_size: int = 8,
        is_iterative: bool = False,
        requires_gradient: bool = False,
        **features: Any,
    ) -> None:
        self.operation_type = _reading.text("operation_type", operation_type)
        self.data_size = as_count("data_size", data_size)
        self.data_shape = as_shape(data_shape)
        self.dtype_size = as_count("dtype_size", dtype_size)
        if self.dtype_size == 0:
            raise InvalidInputError("dtype_size=0 is not the size of an element; use its bytes, such as 8")
        self.is_iterative = bool(is_iterative)
        self.requires_gradient = bool(requires_gradient)
        self.features: dict[str, Any] = dict(features)

    @property
    def batch(self) -> int:
        """Number of rows: the product of all axes but the last."""
        return math.prod(self.data_shape[:-1])

    @property
    def length(self) -> int:
        """Elements of one row; from ``data_size`` if it disagrees with the shape."""
        if not self.data_shape:
            return self.data_size
        if math.prod(self.data_shape) != self.data_size:
            return max(1, self.data_size // max(1, self.batch))
        return self.data_shape[-1]

    @property
    def bucket(self) -> Bucket:
        """The size bucket of this workload."""
        return bucket_of(self.batch, self.length)

    @property
    def bucket_of_size(self) -> Bucket:
        """The bucket of the size alone, because reported times do not include the batch shape."""
        return bucket_of(1, self.data_size)

    @property
    def nbytes(self) -> int:
        """Bytes of the operand."""
        return self.data_size * self.dtype_size

    def __repr__(self) -> str:
        more = "".join(f", {key}={value!r}" for key, value in self.features.items())
        return (
            f"{type(self).__name__}({self.operation_type!r}, data_size={self.data_size}, "
            f"data_shape={self.data_shape}, dtype_size={self.dtype_size}, is_iterative={self.is_iterative}, "
            f"requires_gradient={self.requires_gradient}{more})"
        )


def as_count(name: str, value: Any) -> int:
    """``value`` as an int of at least 0; accepts integral floats such as 1e6."""
    return _reading.whole(name, int(value) if isinstance(value, float) and value.is_integer() else value, least=0)


def as_shape(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple of ints of at least 0; raises :class:`InvalidInputError` otherwise. An int is one axis."""
    if isinstance(shape, int | float):
        shape = (shape,)
    try:
        axes = tuple(shape)
    except TypeError:
        raise InvalidInputError(f"shape={shape!r} is not a shape; use a tuple of ints such as (32, 1000)") from None
    return tuple(as_count(f"shape[{axis}]", size) for axis, size in enumerate(axes))
