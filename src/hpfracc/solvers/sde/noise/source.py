"""Sources of random numbers: a key, the first path, and the library, device and precision of the result.

A number depends only on the key, the stream, its path and its position, to the bit. So paths 0 to 999 are the same in
one call, in ten calls of 100 with ``first_path=``, in chunks of any size, and on several machines; those that need
transforms or matrix products, up to rounding.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import device_of, dtype_name, is_tracer, library_of
from hpfracc._config import get_settings
from hpfracc._xp import Namespace, namespace
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.errors import InvalidInputError, OutOfMemoryError

_random = get_operation("random")

#: Numbers drawn at a time: few enough for the cache of the host, enough to fill a GPU.
_CHUNK_ON_HOST, _CHUNK_ON_GPU = 1 << 17, 1 << 28


#: Free memory is not checked below this.
NEGLIGIBLE_BYTES = 1 << 26

_WORD = np.dtype(np.uint32)
_FIRST_PATH = np.zeros(1, np.int64)


def first_normals(rng: Any, n: int) -> np.ndarray:
    """The ``n`` normal numbers of the first path of the key from ``rng``; shape ``(n,)``."""
    numbers: np.ndarray = _random(_FIRST_PATH, _read_key(rng, None), n=n)[0]
    return numbers


@dataclass(frozen=True, slots=True)
class RandomSource:
    """Random numbers for the paths ``first``, ``first + 1``, ...

    Attributes
    ----------
    library, device, dtype : str
        Library, device and dtype of the numbers.
    key : array of four 32-bit words
        A NumPy array, or a JAX array that may be traced.
    first : int
        Number of the first path.
    """

    library: str
    device: str
    dtype: str
    key: Any
    first: int

    def numbers(self, start: int, count: int, n: int, *, kind: str = "normal", stream: int = 0) -> Any:
        """``n`` numbers for each of ``count`` paths from ``start`` on, shape ``(count, n)``."""
        low, high = self.first + start, self.first + start + count
        if self.library in ("numpy", "torch") and self.device == "cpu":
            found = self.numbers_of(np.arange(start, start + count), n, kind=kind, stream=stream)
            return found if self.library == "numpy" else self.xp.module.from_numpy(np.require(found, requirements="W"))
        if self.library == "torch":
            paths = self.xp.module.arange(low, high, device=self.device)
        elif self.library == "jax":
            if high >= 2**31 and not sys.modules["jax"].config.jax_enable_x64:
                raise InvalidInputError(f"path {high:,} needs 64-bit integers; set jax_enable_x64")
            paths = self.xp.module.arange(low, high)
        else:
            with self.xp.module.cuda.Device(int(self.device.rpartition(":")[2])):
                paths = self.xp.module.arange(low, high)
        return _random(paths, self.key, n=n, kind=kind, stream=stream, dtype=self.dtype, backend=self.library)

    def key_words(self, stream: int = 0) -> Any:
        """The key as two signed 64-bit words and the stream, a tensor on the source's device."""
        words = [int(word) & 0xFFFFFFFF for word in np.asarray(self.key)]
        pair = words[0] | words[1] << 32, words[2] | words[3] << 32
        signed = [word - 2**64 if word >= 2**63 else word for word in pair]
        torch = sys.modules["torch"]
        return torch.tensor([*signed, stream], dtype=torch.int64, device=self.device)

    def numbers_of(self, paths: np.ndarray, n: int, *, kind: str = "normal", stream: int = 0) -> np.ndarray:
        """``n`` numbers for each of the given paths, counted from the first; on the host."""
        found: np.ndarray = _random(self.first + paths, self.key, n=n, kind=kind, stream=stream, dtype=self.dtype)
        return found

    @property
    def xp(self) -> Namespace:
        """The namespace of the library."""
        return namespace(self.library)

    def array(self, values: Any) -> Any:
        """Numbers, or arrays of NumPy or of the library, as an array of the source's library, device and precision.

        A list may contain arrays.
        """
        if isinstance(values, list | tuple) and any(library_of(each) in ("torch", "jax") for each in values):
            return self.xp.stack([self.array(each) for each in values])
        module = self.xp.module
        if self.library == "jax":
            return module.asarray(values, self.dtype)
        if library_of(values) == "torch":
            return values.to(dtype=getattr(module, self.dtype), device=self.device)
        host = np.asarray(values, dtype=self.dtype, order="C")
        return module.tensor(host, device=self.device) if self.library == "torch" else module.asarray(host)

    def rows(self, n: int) -> int:
        """Number of paths that are drawn together, each with ``n`` numbers; JAX draws all."""
        most = _CHUNK_ON_HOST if self.device == "cpu" else _CHUNK_ON_GPU
        return max(1, most // max(1, n))

    def in_chunks(self, count: int, n: int, make: Callable[[RandomSource, int], Any]) -> Any:
        """``make(source, count)`` in chunks of paths of ``n`` numbers each, with a source from the first of them on.

        Chunks are copied into one array, so that no path is held twice.
        """
        rows = count if self.library == "jax" else self.rows(n)
        if count <= rows:
            return make(self, count)
        result: Any = None
        for low in range(0, count, rows):
            part = make(replace(self, first=self.first + low), min(rows, count - low))
            result = self.xp.zeros((count, *part.shape[1:]), part.dtype, like=part) if result is None else result
            result[low : low + rows] = part
        return result

    def check_room(self, what: str, count: int, n: int, *, more: int = 0) -> None:
        """Raise an error if ``count`` paths of ``n`` numbers and ``more`` numbers do not fit into memory.

        Raises
        ------
        OutOfMemoryError
            With the required memory, the free memory, and a remedy.
        """
        need = (count * n + more) * (4 if self.dtype == "float32" else 8)
        if need < NEGLIGIBLE_BYTES or is_tracer(self.key):
            return
        free = self.free_bytes()
        if free is not None and need > free:
            raise OutOfMemoryError(
                f"{what}: {count:,} paths of {n:,} values need {need:,} bytes, and {free:,} are free; draw fewer at a "
                "time, the next ones with first_path=, use fewer times, or keep a function of the paths with solve_fsde"
            )

    def free_bytes(self) -> int | None:
        """Free memory of the device, if known."""
        budget = get_budget()
        if self.device == HOST:
            return budget.read(HOST)
        return budget.allowed(self.device, get_settings().gpu_memory_limit, self.library)

    def on_host(self) -> RandomSource:
        """The same numbers on the host, in double precision."""
        if is_tracer(self.key):
            raise InvalidInputError(
                "this process is drawn on the host, where a traced key has no value; call it outside jax.jit"
            )
        return RandomSource("numpy", "cpu", "float64", np.asarray(self.key), self.first)


def read_size(size: Any) -> tuple[int, ...]:
    """``size`` as a shape."""
    sides = size if isinstance(size, tuple | list) else (size,)
    return tuple(_reading.count("size", side, least=0) for side in sides)


def make_source(rng: Any, key: Any, *like: Any, dtype: Any = None, first_path: int = 0, count: int = 1) -> RandomSource:
    """The source of ``rng`` or ``key``, for results like the arrays among ``like``."""
    if rng is not None and key is not None:
        raise InvalidInputError("both rng= and key= were given; use key= for JAX and rng= for everything else")
    library, device, inherited = _placement(rng, key, like)
    first = _reading.whole("first_path", first_path, least=0, most=2**63 - 1 - count)
    return RandomSource(library, device, _read_dtype(dtype, inherited, library), _read_key(rng, key), first)


def _placement(rng: Any, key: Any, like: tuple[Any, ...]) -> tuple[str, str, str | None]:
    """Library, device and precision of the result, from the key, the generator or the other arrays."""
    library, device, dtype = "numpy", "cpu", None
    for value in like:
        found = library_of(value)
        if found in ("torch", "jax", "cupy"):
            library, device, dtype = found, device_of(value), dtype_name(value)
    if key is not None:
        if library_of(key) != "jax":
            raise InvalidInputError(f"key={key!r}: give a key of JAX, as from jax.random.key(0)")
        if library not in ("numpy", "jax"):
            raise InvalidInputError(f"key= makes JAX arrays, and the other arguments are of {library}; use rng=")
        if library == "numpy":
            library, device = "jax", device_of(key)
    elif _is_torch_generator(rng):
        if library not in ("numpy", "torch"):
            raise InvalidInputError(f"a torch.Generator beside arrays of {library}; use a seed")
        if library == "numpy":
            kind = rng.device
            library, device = "torch", kind.type if kind.index is None else f"{kind.type}:{kind.index}"
    return library, device, dtype


def _is_torch_generator(rng: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(rng, torch.Generator)


def _read_dtype(dtype: Any, inherited: str | None, library: str) -> str:
    if dtype is None and library == "numpy":
        return "float64"
    if dtype is None:
        dtype = inherited if inherited in ("float32", "float64") else "float64"
        if library == "jax" and not sys.modules["jax"].config.jax_enable_x64:
            dtype = "float32"
    name = str(dtype).rpartition(".")[2] if not isinstance(dtype, type) else np.dtype(dtype).name
    if name not in ("float32", "float64"):
        raise InvalidInputError(f"dtype={dtype!r}: random paths are float64 or float32")
    return name


def _read_key(rng: Any, key: Any) -> Any:
    """Four 32-bit words."""
    if key is not None:
        return _jax_key(key)
    if rng is None:  # the start of a SeedSequence, in a tenth of its time
        return np.frombuffer(bytearray(os.urandom(16)), _WORD)
    if _is_torch_generator(rng):
        torch = sys.modules["torch"]
        rng = int(torch.randint(2**62, (), generator=rng, device=rng.device))
    if isinstance(rng, np.random.Generator):
        words: Any = rng.bit_generator.random_raw(4)  # Generator.bytes would take ten times as long
        return words.astype(_WORD)
    if isinstance(rng, np.random.RandomState):
        return rng.randint(0, 2**32, 4, np.uint32)
    if not isinstance(rng, np.random.SeedSequence):
        if isinstance(rng, bool | np.ndarray | type) or not hasattr(rng, "__index__") or operator.index(rng) < 0:
            raise InvalidInputError(
                f"rng={rng!r}: use None, a seed that is not negative, a numpy.random.Generator or SeedSequence, or a "
                "torch.Generator; for JAX give key="
            )
        return _key_of_seed(operator.index(rng)).copy()
    return rng.generate_state(4)


@lru_cache(maxsize=64)
def _key_of_seed(seed: int) -> np.ndarray:
    """Cached, because mixing a seed takes as long as 300 numbers."""
    return np.random.SeedSequence(seed).generate_state(4)


def _jax_key(key: Any) -> Any:
    jax = sys.modules["jax"]
    words = key
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        words = jax.random.key_data(key)
    words = jax.numpy.asarray(words)
    if words.dtype != np.uint32 or words.ndim != 1 or not 1 <= words.size <= 4:
        raise InvalidInputError(f"key={key!r}: use one key of jax.random.key; for several, map over them with jax.vmap")
    return jax.numpy.concatenate([words, jax.numpy.zeros(4 - words.size, np.uint32)])
