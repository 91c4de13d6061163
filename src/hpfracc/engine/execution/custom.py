"""Users' own work: an operation of theirs, with a kernel for each backend they care about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, overload

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._config import check_backend
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Compiles, Kernel, KernelSpec
from hpfracc.engine.execution.batch.probing import Probe
from hpfracc.engine.execution.operation import Operation, register
from hpfracc.engine.primitives.base import INEXACT, INTEGERS, ArraySpec, Call, Case, Primitive, dtype_of
from hpfracc.engine.primitives.cuts import Cut
from hpfracc.engine.selection.candidates import NEGLIGIBLE_BYTES
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

__all__ = ["OwnOperation", "operation"]

Model = Callable[..., float]

#: What a library compiles for, unless the user says otherwise.
_COMPILES: dict[str, Compiles] = {"numba": "signature", "jax": "shape"}
_DIFFERENTIABLE = ("torch", "jax")


class OwnPrimitive(Primitive):
    """The contract of an operation that a user registered: any arrays, with the user's models of work and memory."""

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
        #: Whether another operation was defined under this name since: the kernels under it are that one's.
        self.replaced = False

    def check_current(self) -> None:
        """Refuse to go on once another operation has taken the name."""
        if self.replaced:
            raise InvalidInputError(
                f"operation {self.name!r} was defined again since; use the later one, or give one of them another name"
            )

    def describe(self, *arrays: Any, **params: Any) -> Call:
        """Take the largest operand as the measure of the call; its last axis is the length, the others the batch."""
        self.check_current()
        if not arrays:
            raise InvalidInputError(f"{self.name}: called without an array; pass the arrays first, by position")
        operands = [self._spec(array) for array in arrays]
        main = max(operands, key=lambda operand: operand.size)
        shape, size = main.shape, main.size
        dtype = str(np.result_type(*(operand.dtype for operand in operands)))
        facts = {"work": self._model("work", self._work, operands, params, float(max(1, size)))}
        input_bytes = sum(operand.size * np.dtype(operand.dtype).itemsize for operand in operands)
        if self._memory is not None:
            facts["memory"] = self._model("memory", self._memory, operands, params, 0.0)
        elif self._probe is not None and input_bytes >= NEGLIGIBLE_BYTES:
            found = self._probe.bytes_for(operands, params)
            if found is not None:
                facts["memory"] = found
        length = shape[-1] if shape else 1
        return Call(
            operation=self.name,
            batch=size // length if length else 0,
            length=length,
            dtype=dtype,
            shape=shape,
            input_bytes=input_bytes,
            output_bytes=size * np.dtype(dtype).itemsize,
            facts=facts,
        )

    def _spec(self, array: Any) -> ArraySpec:
        """Shape and dtype, which are all that a model may depend on: the same for every library's arrays."""
        made = array if isinstance(array, ArraySpec) or library_of(array) != "python" else np.asarray(array)
        if dtype_of(made) not in INEXACT | INTEGERS:
            raise UnsupportedDtypeError(
                f"{self.name}: dtype {dtype_of(made)!r} is not a number's; convert the array first"
            )
        return ArraySpec(tuple(made.shape), dtype_of(made))

    def _model(self, name: str, model: Model | None, operands: list[ArraySpec], params: Any, default: float) -> float:
        if model is None:
            return default
        value = float(model(*operands, **params))
        if not (math.isfinite(value) and value >= 0.0):
            raise InvalidInputError(
                f"{self.name}: its {name} model gave {value!r}; it must give a finite number of at least 0"
            )
        return value

    def work(self, call: Call, algorithm: str) -> float:
        """What the user's model says, or the number of elements."""
        return max(1.0, float(call.facts["work"]))

    def workspace(self, call: Call, algorithm: str) -> int:
        """What the user's model says, or as much as the operands again."""
        if "memory" in call.facts:
            return max(0, int(call.facts["memory"]) - call.input_bytes - call.output_bytes)
        return call.input_bytes

    def cuts(self, call: Call, *arrays: Any, **params: Any) -> Iterator[Cut]:
        """The first axis, where its rows are independent: of every operand that has as many of them."""
        shapes = [self._spec(array).shape for array in arrays]
        rows = max((shape[0] for shape in shapes if shape), default=0)
        if self.batchable and rows > 1 and call.shape and call.shape[0] == rows:
            yield Cut(
                -len(call.shape), rows, tuple(-len(shape) if shape and shape[0] == rows else None for shape in shapes)
            )

    def example(self, shape: tuple[int, ...], dtype: str) -> tuple[tuple[ArraySpec, ...], dict[str, Any]]:
        """One operand of that shape: all that can be known of a user's operation."""
        return (ArraySpec(shape, dtype),), {}

    def reference(self, *arrays: np.ndarray, **params: Any) -> np.ndarray:
        """The function that was decorated."""
        return np.asarray(self._function(*arrays, **params))

    def cases(self, dtype: str) -> Iterator[Case]:
        """None: only the user knows what arguments make sense."""
        return iter(())


class OwnOperation(Operation):
    """A registered operation: call it, give it kernels, ask it why (``hf.explain(op, ...)``)."""

    def __init__(self, primitive: OwnPrimitive, function: Callable[..., Any]) -> None:
        super().__init__(primitive)
        self._own = primitive
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        del self.__signature__  # that of the function is shown

    def __reduce__(self) -> str:
        """Pickled as functions are: by the name under which its module has it."""
        return getattr(self.__wrapped__, "__qualname__", self.name)

    def retire(self) -> None:
        """Another operation has taken the name: compute nothing any more, rather than what that one computes."""
        self._own.replaced = True
        self.reset_plans()

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
            ``"numpy"``, ``"numba"``, ``"torch"``, ``"jax"`` or ``"cupy"``: whose arrays the function takes and returns.
        algorithm : str
            A name, where one backend has several kernels.
        dtypes : iterable of str, optional
            The dtypes it serves; all of them by default.
        compiles : {"never", "signature", "shape"}, optional
            What it compiles for; by default what is usual for the backend. A first call is then counted as compiling.
        differentiable : bool, optional
            Whether the library's gradients go through it; by default yes for torch and jax.
        """
        name = check_backend(backend)
        spec = KernelSpec(
            primitive=self.name,
            algorithm=algorithm,
            dtypes=INEXACT | INTEGERS if dtypes is None else frozenset(dtypes),
            compiles=_COMPILES.get(name, "never") if compiles is None else compiles,
            differentiable=name in _DIFFERENTIABLE if differentiable is None else differentiable,
        )

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            if not callable(function):
                raise InvalidInputError(f"{self.name}: kernel {function!r} is not callable; decorate a function")
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
    """Register an operation of your own: it gets selection, learning, fallback and explanations.

    The decorated function takes and returns NumPy arrays: it is the kernel every call can fall back on. Add others with
    ``@op.kernel("torch")`` and so on; all must compute the same. Arrays come by position, everything else by keyword.

    Parameters
    ----------
    name : str, optional
        The operation's name; the function's own by default. It must not be taken by another operation.
    work : callable, optional
        ``work(*arrays, **params)`` gives the number of elementary steps (only its growth matters); it sees shapes
        and dtypes only. By default the number of elements.
    memory : callable or "probe", optional
        ``memory(*arrays, **params)`` gives the bytes a call takes in all, operands and result included. ``"probe"``
        finds out by two small calls of the decorated function, with arrays of ones whose longest axis is cut short,
        when first a large call is made. By default as much as the operands is taken to be needed besides them.
    batchable : bool
        Whether rows along the first axis are independent of each other, in operands and result: such calls are cut
        where they do not fit into memory, and stacked by :func:`hpfracc.batch.run`.

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
            raise InvalidInputError(f"memory={memory!r} is no model; give a function, 'probe' or nothing")
        made = OwnOperation(OwnPrimitive(chosen, function, work, memory, batchable), function)
        before = register(made)
        if isinstance(before, OwnOperation):
            before.retire()
        registry.remove_operation(chosen)  # none of the earlier definition's kernels may stay
        made.kernel("numpy")(function)
        return made

    return decorate if function is None else decorate(function)
