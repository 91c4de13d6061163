"""Bytes of cuFFT's work area for a plan, queried from cuFFT itself. Imports no array library.

The size depends on lengths, batch and precision in a way that no simple rule describes: on an H200 between nothing and
five times the transform. So cuFFT is queried, by a plan that allocates nothing and is destroyed at once. That takes 0.2
to 3 ms; the first time for a kind of length about 100 ms, because kernels are loaded that the transform needs anyway. A
rule is used for small transforms, and if the process has not loaded cuFFT.
"""

from __future__ import annotations

import ctypes
import logging
import math
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from hpfracc.engine.locks import Guarded
from hpfracc.engine.numerics.lengths import largest_factor, power_of_two
from hpfracc.engine.primitives.base import Transform

__all__ = ["MIN_ASKED", "work_area", "work_bytes"]

_LOG = logging.getLogger("hpfracc")
#: Minimum bytes of a transform for which cuFFT is queried; work areas of smaller ones do not matter on a GPU.
MIN_ASKED = 2**23
#: Maximum number of cached answers.
_MAX_KEPT = 1024
#: Points of the longest row that cuFFT mostly transforms in one pass, and of the largest block of several axes.
_ONE_PASS, _ONE_BLOCK = 4096, 2**20
#: The largest prime with special passes.
_LARGEST_PRIME = 127

_FLOAT, _DOUBLE, _COMPLEX, _DOUBLE_COMPLEX = 0, 1, 4, 5


class _Kind(NamedTuple):
    """cudaDataType of what goes in, comes out and is worked in; bytes of a complex number."""

    into: int
    out: int
    work: int
    item: int


_KINDS = {
    "R2C": _Kind(_FLOAT, _COMPLEX, _COMPLEX, 8),
    "C2R": _Kind(_COMPLEX, _FLOAT, _COMPLEX, 8),
    "C2C": _Kind(_COMPLEX, _COMPLEX, _COMPLEX, 8),
    "D2Z": _Kind(_DOUBLE, _DOUBLE_COMPLEX, _DOUBLE_COMPLEX, 16),
    "Z2D": _Kind(_DOUBLE_COMPLEX, _DOUBLE, _DOUBLE_COMPLEX, 16),
    "Z2Z": _Kind(_DOUBLE_COMPLEX, _DOUBLE_COMPLEX, _DOUBLE_COMPLEX, 16),
}
_BY_DTYPE = {
    "float32": ("R2C", "C2R"),
    "float64": ("D2Z", "Z2D"),
    "complex64": ("C2C",) * 2,
    "complex128": ("Z2Z",) * 2,
}

_Key = tuple[str, tuple[int, ...], int]


def work_bytes(transform: Transform) -> int:
    """Bytes of the work area: from cuFFT if it can be queried and the transform is large, otherwise by a rule."""
    kind = _BY_DTYPE[transform.dtype][transform.inverse]
    # A plan supports up to three axes; more are transformed in groups.
    lengths, rows = transform.lengths[-3:], transform.rows * math.prod(transform.lengths[:-3])
    if not math.prod(lengths) * rows:
        return 0
    asked = work_area(kind, lengths, rows) if transform.nbytes >= MIN_ASKED else None
    return _by_rule(kind, lengths, rows) if asked is None else asked


def work_area(kind: str, lengths: tuple[int, ...], batch: int) -> int | None:
    """Work area of cuFFT for a plan of ``batch`` transforms; None if it cannot be queried. Never raises.

    The library is the one that the process has loaded, the first if there are several. The plan is for the device whose
    context is current in this thread, or for device 0 if there is none and that one is in use. No context is created;
    without one the result is None. That device may differ from the one of a call, but sizes differ only between
    generations of GPUs, and a machine rarely has two.

    Parameters
    ----------
    kind : {'R2C', 'C2R', 'C2C', 'D2Z', 'Z2D', 'Z2Z'}
        As cuFFT names them.
    lengths : tuple of int
        Points along the transformed axes, of the real side for real transforms.
    batch : int
        Number of transforms.
    """
    return _CUFFT.work_area((kind, lengths, batch))


class Cufft(Guarded):
    """The loaded library, and its latest answers."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: OrderedDict[_Key, int] = OrderedDict()
        self._libraries: dict[str, Any] = {}
        self._missed: dict[str, int] = {}

    def work_area(self, key: _Key) -> int | None:
        """Bytes of the work area of a plan, or None."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            try:
                found = self._ask(*key)
            except Exception:
                # Any error of the library: a prediction must not fail, and there is the rule.
                _LOG.debug("cuFFT could not be queried for the work area of %s", key, exc_info=True)
                return None
            if found is not None:
                self._kept[key] = found
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
            return found

    def _ask(self, kind: str, lengths: tuple[int, ...], batch: int) -> int | None:
        library, driver = self._loaded("libcufft"), self._loaded("libcuda")
        if library is None or driver is None or not _has_context(driver):
            return None
        wide, rank = ctypes.c_longlong, len(lengths)
        points = (wide * rank)(*lengths)
        place = (None, wide(1), wide(0))  # one transform behind the other
        types, plan, size = _KINDS[kind], ctypes.c_int(0), ctypes.c_size_t(0)
        if library.cufftCreate(ctypes.byref(plan)):
            return None
        try:
            # Nothing is allocated for the plan, and counts have 64 bits.
            failed = library.cufftSetAutoAllocation(plan, 0) or library.cufftXtMakePlanMany(
                *(plan, rank, points),
                *(*place, types.into),
                *(*place, types.out),
                *(wide(batch), ctypes.byref(size), types.work),
            )
            return None if failed else int(size.value)
        finally:
            library.cufftDestroy(plan)

    def _loaded(self, name: str) -> Any:
        """A library that this process has loaded; None if it has not."""
        if name in self._libraries:
            return self._libraries[name]
        # Libraries come with modules: searching again is useless until another module is loaded.
        if self._missed.get(name) == len(sys.modules):
            return None
        path = _path_in(_maps(), name)
        if path is None:
            self._missed[name] = len(sys.modules)
            return None
        return self._libraries.setdefault(name, ctypes.CDLL(path))


_CUFFT = Cufft()


def _has_context(driver: Any) -> bool:
    """Whether this thread has a context, or that of device 0, which it would get, exists already."""
    context, flags, active = ctypes.c_void_p(None), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuCtxGetCurrent(ctypes.byref(context)):  # the driver is not in use, or not in this process
        return False
    if context.value:
        return True
    return not driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) and bool(active.value)


def _maps() -> str:
    try:
        return Path("/proc/self/maps").read_text()
    except OSError:  # not Linux
        return ""


def _path_in(maps: str, name: str) -> str | None:
    """The file of a library in the kernel's list of mapped files."""
    for line in maps.splitlines():
        _, slash, path = line.partition("/")
        if slash and path.rpartition("/")[2].startswith((f"{name}.so", f"{name}-")):
            return slash + path
    return None


def _by_rule(kind: str, lengths: tuple[int, ...], batch: int) -> int:
    """Typical work area: nothing for one pass, otherwise the size of the transform; odd real ones as complex ones."""
    points, item = math.prod(lengths), _KINDS[kind].item
    real = kind not in ("C2C", "Z2Z")
    whole = batch * points * item
    spectrum = batch * (points // lengths[-1]) * (lengths[-1] // 2 + 1) * item if real else whole
    if len(lengths) > 1:
        return spectrum if points > _ONE_BLOCK else 0
    if points > _ONE_PASS and largest_factor(points) > _LARGEST_PRIME:
        # A convolution of at least twice the length, with its two factors (Bluestein); of half the length for a real
        # transform of even length, which is a complex one of half that length.
        row = points // 2 if real and points % 2 == 0 else points
        return 2 * batch * power_of_two(2 * row - 1) * item + (spectrum if real else 0)
    if real and points % 2:
        return whole
    in_one_pass = points <= _ONE_PASS and (not real or points == power_of_two(points))
    return 0 if in_one_pass else spectrum
