"""Operations that users register, with kernels for one or more backends, and the memory of users' functions."""

from __future__ import annotations

import gc
import logging
import math
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, overload

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc._config import check_backend
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Compiles, Kernel, KernelSpec
from hpfracc.engine.execution.operation import Operation, register
from hpfracc.engine.primitives.base import NUMBERS, ArraySpec, Call, Cut, Primitive, itemsize, read_dtype
from hpfracc.engine.selection.call_memory import NEGLIGIBLE_BYTES
from hpfracc.errors import InvalidInputError

logger = logging.getLogger("hpfracc.memory")

T = TypeVar("T")
Model = Callable[..., float]

#: What a library compiles for by default.
_COMPILES: dict[str, Compiles] = {"numba": "signature", "jax": "shape"}
_DIFFERENTIABLE = ("torch", "jax")


class OwnPrimitive(Primitive):
    """The contract of a user's operation: any arrays, with the user's models of work and memory."""

    casts = False

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        work: Model | None,
        memory: Model | Literal["probe"] | None,
        batchable: bool = False,
    ) -> None:
        self.name = name  # type: ignore[misc]  # a class variable of the built-in ones
        self.operands = ("*",)  # type: ignore[misc]
        self._function = function
        self._work = work
        self._memory = None if memory == "probe" else memory
        self._probe = Probe(function) if memory == "probe" else None
        #: Whether rows along a first axis are independent of each other.
        self.batchable = batchable
        #: Whether another operation was defined under this name since; the kernels now belong to that one.
        self.replaced = False

    def check_current(self) -> None:
        """Raise an error if another operation has taken the name."""
        if self.replaced:
            raise InvalidInputError(
                f"operation {self.name!r} was defined again; use the later one, or rename one of them"
            )

    def describe(self, *arrays: Any, **params: Any) -> Call:
        """Describe the call by its largest operand; its last axis is the length, the others are the batch."""
        self.check_current()
        if not arrays:
            raise InvalidInputError(f"{self.name}: called without an array; pass the arrays first, by position")
        operands = [self._spec(array) for array in arrays]
        main = max(operands, key=lambda operand: operand.size)
        shape, size = main.shape, main.size
        dtype = str(np.result_type(*(operand.dtype for operand in operands)))
        facts: dict[str, Any] = {"work": self._model("work", self._work, operands, params, float(max(1, size)))}
        input_bytes = sum(operand.size * itemsize(operand.dtype) for operand in operands)
        if self._memory is not None:
            facts["memory"] = self._model("memory", self._memory, operands, params, 0.0)
        elif self._probe is not None and input_bytes >= NEGLIGIBLE_BYTES:
            found = self._probe.bytes_for(operands, params)
            if found is not None:
                facts["memory"] = found
        length = shape[-1] if shape else 1
        batch = size // length if length else 0
        return self.call(dtype, shape, (), batch=batch, length=length, more_bytes=input_bytes, **facts)

    def _spec(self, array: Any) -> ArraySpec:
        """Shape and dtype, the only inputs of a model, for arrays of any library."""
        made = array if isinstance(array, ArraySpec) or library_of(array) != "python" else np.asarray(array)
        return ArraySpec(tuple(made.shape), read_dtype(self.name, "an array", made))

    def _model(self, name: str, model: Model | None, operands: list[ArraySpec], params: Any, default: float) -> float:
        if model is None:
            return default
        value = float(model(*operands, **params))
        if not (math.isfinite(value) and value >= 0.0):
            raise InvalidInputError(
                f"{self.name}: its {name} model returned {value!r}; it must return a finite number of at least 0"
            )
        return value

    def work(self, call: Call, algorithm: str) -> float:
        """The user's model, or the number of elements."""
        return max(1.0, float(call.facts["work"]))

    def workspace(self, call: Call, algorithm: str) -> int:
        """The user's model, or the size of the operands."""
        if "memory" in call.facts:
            return max(0, int(call.facts["memory"]) - call.input_bytes - call.output_bytes)
        return call.input_bytes

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """The first axis, if its rows are independent, of every operand with that number of rows."""
        shapes = [self._spec(array).shape for array in arrays]
        rows = max((shape[0] for shape in shapes if shape), default=0)
        if self.batchable and rows > 1 and call.shape and call.shape[0] == rows:
            axes = tuple(-len(shape) if shape and shape[0] == rows else None for shape in shapes)
            yield Cut(-len(call.shape), rows, axes)

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """One operand of that shape."""
        return (ArraySpec(shape, dtype),), {}


class OwnOperation(Operation):
    """A registered operation. Call it, add kernels, or explain it (``hf.explain(op, ...)``)."""

    def __init__(self, primitive: OwnPrimitive, function: Callable[..., Any]) -> None:
        super().__init__(primitive)
        self._own = primitive
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        del self.__signature__  # the one of the function is shown

    def __reduce__(self) -> str:
        """Pickle by name and module, like a function."""
        return getattr(self.__wrapped__, "__qualname__", self.name)

    def kernel(
        self,
        backend: str,
        *,
        algorithm: str = "default",
        dtypes: Iterable[str] | None = None,
        compiles: Compiles | None = None,
        differentiable: bool | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the decorated function as this operation's kernel on ``backend``.

        Parameters
        ----------
        backend : str
            ``"numpy"``, ``"numba"``, ``"torch"``, ``"jax"`` or ``"cupy"``: the library of its arguments and results.
        algorithm : str
            Name of the algorithm, if a backend has several kernels.
        dtypes : iterable of str, optional
            Supported dtypes; all by default.
        compiles : {"never", "signature", "shape"}, optional
            What it compiles for; by default as usual for the backend. A first call then counts as compilation.
        differentiable : bool, optional
            Whether it is differentiable by its library; by default True for torch and jax.
        """
        name = check_backend(backend)
        compiles = _COMPILES.get(name, "never") if compiles is None else compiles
        _reading.choice("compiles", compiles, get_args(Compiles))
        spec = KernelSpec(
            primitive=self.name,
            algorithm=algorithm,
            dtypes=frozenset(_reading.choice("dtypes", each, sorted(NUMBERS)) for each in dtypes or NUMBERS),
            compiles=compiles,
            differentiable=name in _DIFFERENTIABLE if differentiable is None else differentiable,
        )

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            _reading.function(f"{self.name}: kernel", function, "the arrays of a call")
            self._own.check_current()
            registry.register_kernel(self.name, name, spec, Kernel(function))
            self.reset_plans()
            return function

        return add


@overload
def operation(function: Callable[..., Any], /) -> OwnOperation: ...


@overload
def operation(
    *,
    name: str | None = None,
    work: Model | None = None,
    memory: Model | Literal["probe"] | None = None,
    batchable: bool = False,
) -> Callable[[Callable[..., Any]], OwnOperation]: ...


def operation(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    work: Model | None = None,
    memory: Model | Literal["probe"] | None = None,
    batchable: bool = False,
) -> OwnOperation | Callable[[Callable[..., Any]], OwnOperation]:
    """Register your own operation, with selection, learning, fallback and explanations.

    The decorated function takes and returns NumPy arrays; every call can fall back to it. Add other kernels with
    ``@op.kernel("torch")`` and so on; all must compute the same. Arrays are passed by position, everything else by
    keyword.

    Parameters
    ----------
    name : str, optional
        Name of the operation; by default that of the function. It must not be the name of a built-in operation.
    work : callable, optional
        ``work(*arrays, **params)`` returns the number of elementary steps (only its growth matters) from shapes and
        dtypes. By default the number of elements.
    memory : callable or "probe", optional
        ``memory(*arrays, **params)`` returns the total bytes of a call, including operands and result. ``"probe"``
        measures it by two small calls of the decorated function, with arrays of ones whose longest axis is truncated,
        before the first large call. By default a call needs the size of the operands in addition to them.
    batchable : bool
        Whether rows along the first axis are independent, in operands and result. Such calls are split if they do not
        fit into memory, and stacked by :func:`hpfracc.batch.run`.

    See Also
    --------
    explain, hpfracc.engine.Operation

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> @hf.operation(work=lambda x: x.size)
    ... def root_mean_square(x):
    ...     return np.sqrt(np.mean(x * x, axis=-1))
    >>> @root_mean_square.kernel("torch")
    ... def _(x):
    ...     return (x * x).mean(-1).sqrt()
    >>> float(root_mean_square(np.array([3.0, 4.0, 0.0, 0.0])))
    2.5
    """

    def decorate(function: Callable[..., Any]) -> OwnOperation:
        if not callable(function):
            raise InvalidInputError(f"{function!r} is not callable; decorate a function")
        chosen = name or getattr(function, "__name__", "")
        if not chosen or not chosen.replace(".", "_").isidentifier():
            raise InvalidInputError(f"operation name {chosen!r} is not a name; give one with @operation(name=...)")
        if memory is not None and memory != "probe" and not callable(memory):
            raise InvalidInputError(f"memory={memory!r} is not a model; give a function, 'probe' or nothing")
        made = OwnOperation(OwnPrimitive(chosen, function, work, memory, batchable), function)
        before = register(made)
        if isinstance(before, OwnOperation):
            before._own.replaced = True
            before.reset_plans()
        registry.remove_operation(chosen)  # kernels of the earlier definition must not remain
        made.kernel("numpy")(function)
        return made

    return decorate if function is None else decorate(function)


# The memory of a function, measured by calls of it.

#: Elements of the largest operand in the two trials: enough to dominate constant overheads.
_SMALL, _LARGE = 2**14, 2**15
#: Number of calls of each size.
_TRIALS = 3
#: Number of kinds of call whose memory is remembered.
_MAX_LINES = 256


def measure_peak(run: Callable[[], T], device: str = "cpu", library: str = "numpy") -> tuple[T, int | None]:
    """The result of ``run()``, and the peak memory it allocated, with its result; None if it cannot be measured.

    On the host the allocations of Python and NumPy, without a library's own buffers; on a device the peak of the
    library's pool, whose high-water mark is reset.
    """
    if device != "cpu":
        adapter = registry.adapter(library)
        adapter.synchronize(device)
        adapter.reset_peak(device)
        before, result, after = adapter.memory(device), run(), adapter.memory(device)
        peak = None if before is None or after is None or after[1] is None else after[1] - before[0]
        return result, peak if peak is not None and peak > 0 else None
    nested = tracemalloc.is_tracing()
    gc.collect()
    if nested:
        tracemalloc.reset_peak()
    else:
        tracemalloc.start()
    try:
        begin = tracemalloc.get_traced_memory()[0]
        result = run()
        peak = max(0, tracemalloc.get_traced_memory()[1] - begin)
        # Another library's allocations are not seen.
        return result, None if library_of(result) in ("torch", "jax") else peak
    finally:
        if not nested:
            tracemalloc.stop()


class Probe:
    """The memory of a user's operation, from two small calls of it: linear in the size of its operands.

    Parameters
    ----------
    function : callable
        Takes and returns NumPy arrays.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        #: Bytes as ``base + slope * size``, by kind of call.
        self._lines: dict[Any, tuple[float, float] | None] = {}

    def bytes_for(self, operands: Sequence[ArraySpec], params: Mapping[str, Any]) -> float | None:
        """Total bytes that a call takes; None if the trials failed or are inconclusive."""
        size = float(sum(operand.size * np.dtype(operand.dtype).itemsize for operand in operands))
        kinds = tuple((len(operand.shape), operand.dtype) for operand in operands)
        key = (kinds, tuple(sorted(map(repr, params.items()))))
        if key not in self._lines:
            if len(self._lines) >= _MAX_LINES:
                self._lines.clear()
            self._lines[key] = self._try(operands, params)
        line = self._lines[key]
        return None if line is None else size + max(0.0, line[0] + line[1] * size)

    def _try(self, operands: Sequence[ArraySpec], params: Mapping[str, Any]) -> tuple[float, float] | None:
        try:
            (small, low), (large, high) = (self._measure(operands, params, elements) for elements in (_SMALL, _LARGE))
        except Exception as error:  # ones may be invalid arguments, or related axes were cut differently
            logger.debug("a memory probe failed: %s", registry.describe_failure(error))
            return None
        if not (large > small and high >= low):  # disturbed, or nan: not measured
            return None
        slope = (high - low) / (large - small)
        return low - slope * small, slope

    def _measure(self, operands: Sequence[ArraySpec], params: Mapping[str, Any], elements: int) -> tuple[float, float]:
        """Bytes of the operands, and the peak; nan if it cannot be measured."""
        shapes = _cut(operands, elements)
        arrays = [np.ones(shape, operand.dtype) for operand, shape in zip(operands, shapes, strict=True)]
        self._function(*arrays, **params)  # a first call may cache things that are not counted
        # Allocations of other threads are counted too: the smallest of a few calls is closest to this function's.
        peaks = [measure_peak(lambda: self._function(*arrays, **params))[1] for _ in range(_TRIALS)]
        size = float(sum(array.nbytes for array in arrays))
        return size, min((float(peak) for peak in peaks if peak is not None), default=math.nan)


def _cut(operands: Sequence[ArraySpec], elements: int) -> list[tuple[int, ...]]:
    """Shapes with the longest axis of the largest operand cut, wherever it occurs, to leave ``elements`` elements."""
    largest = max(operands, key=lambda operand: operand.size)
    longest = max(largest.shape)
    times = largest.shape.count(longest)
    others = largest.size / longest**times
    length = max(1, min(longest, round((elements / others) ** (1 / times))))
    return [tuple(length if size == longest else size for size in operand.shape) for operand in operands]
