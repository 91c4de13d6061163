"""Formulae in NumPy: a pass for each step over the whole arrays, or over blocks that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.expression import parse_expression
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS"]

Array = np.ndarray[Any, Any]

#: Bytes of an operand per block. For x*y + sin(x) blocks of 64 to 256 KiB were equally fast, smaller ones slower.
_PIECE = 1 << 17


@lru_cache(maxsize=512)
def _function(expression: str, names: tuple[str, ...]) -> Callable[..., Any]:
    return np.errstate(all="ignore")(parse_expression(expression, names).compile_for(vars(np)))


@lru_cache(maxsize=512)
def _result_dtype(expression: str, names: tuple[str, ...], dtype: np.dtype[Any]) -> np.dtype[Any]:
    kind = parse_expression(expression, names).result(complex_operands=dtype.kind == "c")
    real: np.dtype[Any] = dtype.type(0).real.dtype
    return {"bool": np.dtype(bool), "real": real, "complex": dtype}[kind]


def evaluate(*arrays: Array, expression: str, names: Sequence[str]) -> Array:
    """Whole arrays at each step."""
    result = np.asarray(_function(expression, tuple(names))(*arrays))
    for array in arrays:
        if result is array:  # a formula that is only a name
            return result.copy()
    return result


def evaluate_blocked(*arrays: Array, expression: str, names: Sequence[str], workers: int = 1) -> Array:
    """In blocks: intermediate results stay in cache, and blocks are divided among threads."""
    names = tuple(names)
    function = _function(expression, names)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    result = np.empty(shape, _result_dtype(expression, names, arrays[0].dtype))
    piece = max(1, _PIECE // arrays[0].itemsize)
    if all(array.shape == shape and array.flags.c_contiguous for array in arrays):
        flat, target = [array.reshape(-1) for array in arrays], result.reshape(-1)

        def contiguous(block: tuple[int, int]) -> None:
            for begin in range(*block, piece):
                part = slice(begin, min(begin + piece, block[1]))
                target[part] = function(*(array[part] for array in flat))

        run_blocks(contiguous, even_blocks(result.size, workers, least=piece), workers)
        return result

    modes: Any = [["readonly"]] * len(arrays) + [["writeonly"]]

    def scattered(block: tuple[int, int]) -> None:
        # NumPy's iterator broadcasts, gathers non-contiguous data into buffers, and yields blocks.
        with np.nditer(
            [*arrays, result],
            flags=["external_loop", "buffered", "ranged", "zerosize_ok"],
            op_flags=modes,
            buffersize=piece,
        ) as pieces:
            pieces.iterrange = block  # type: ignore[misc]
            for *operands, target in pieces:
                target[...] = function(*operands)

    run_blocks(scattered, even_blocks(result.size, workers, least=piece), workers)
    return result


KERNELS: dict[str, Kernel] = {"default": Kernel(evaluate), "blocked": Kernel(evaluate_blocked)}
