"""The functions of an array library under NumPy's names, as NumPy and CuPy have them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np


@functools.cache
def _scipy_special() -> ModuleType:
    """SciPy's special functions, imported on first use."""
    return importlib.import_module("scipy.special")


class Namespace:
    """Functions of one array library, with NumPy's names and meanings.

    Functions with the same name and meaning in every library, such as ``exp``, ``where`` and ``matmul``, are the
    library's own; keywords are NumPy's, which PyTorch accepts too. The methods cover what differs.

    Parameters
    ----------
    library : {"numpy", "torch", "jax", "cupy"}
        It must be imported already.
    device : torch.device, optional
        Device of new arrays, for PyTorch only; the host by default.
    """

    def __init__(self, library: str, device: Any = None) -> None:
        self.library = library
        self.device = device
        self.module = self._module()

    def __getattr__(self, name: str) -> Any:
        """A function of the library itself, looked up once."""
        if name == "module" or name.startswith("_"):
            raise AttributeError(name)
        found = self.__dict__[name] = getattr(self.module, name)
        return found

    def __reduce__(self) -> Any:
        """NumPy's is the one object below; others are made anew, because modules cannot be pickled."""
        return "NUMPY" if self.library == "numpy" else (type(self), (self.library, self.device))

    def __repr__(self) -> str:
        return f"<namespace of {self.library}>"

    def _module(self) -> ModuleType:
        return sys.modules[self.library]

    @functools.cached_property
    def fft(self) -> ModuleType:
        """The library's module of Fourier transforms."""
        found: ModuleType = self.module.fft
        return found

    def fftn(self, x: Any, axes: tuple[int, ...], sizes: Sequence[int] | None = None, **options: Any) -> Any:
        """Fourier transform along ``axes``, padded to ``sizes``; the options are those of NumPy alone."""
        return self._transform("fftn", x, sizes, axes, **options)

    def ifftn(self, x: Any, sizes: Sequence[int], axes: tuple[int, ...], **options: Any) -> Any:
        """Its inverse, which may overwrite ``x``."""
        return self._transform("ifftn", x, sizes, axes, **options)

    def rfftn(self, x: Any, axes: tuple[int, ...], sizes: Sequence[int] | None = None, **options: Any) -> Any:
        """Fourier transform of a real signal along ``axes``. The last of them is halved."""
        return self._transform("rfftn", x, sizes, axes, **options)

    def irfftn(self, x: Any, sizes: Sequence[int], axes: tuple[int, ...], **options: Any) -> Any:
        """Its inverse, which may overwrite ``x``."""
        return self._transform("irfftn", x, sizes, axes, **options)

    def _transform(self, kind: str, x: Any, sizes: Sequence[int] | None, axes: tuple[int, ...], **options: Any) -> Any:
        """One of these four."""
        return getattr(self.fft, kind)(x, sizes, axes=axes, **options)

    def array(self, values: Any) -> Any:
        """Numbers or an array of any kind as float64, on the device of this namespace."""
        return self.module.asarray(values, dtype=np.float64)

    def asarray(self, values: Any, like: Any = None) -> Any:
        """The same, with the dtype of ``values``; on the device of ``like`` if given."""
        return self.module.asarray(values)

    def astype(self, x: Any, dtype: Any, like: Any = None) -> Any:
        """``x`` in a dtype, given by name or as the library's own, on the device of ``like``; ``x`` itself if it is."""
        return x.astype(dtype, copy=False)

    def arange(self, start: int, stop: int, dtype: Any, like: Any = None) -> Any:
        """The integers from ``start`` up to, but not including, ``stop``."""
        return self.module.arange(start, stop, dtype=dtype)

    def zeros(self, shape: Sequence[int], dtype: Any, like: Any = None) -> Any:
        """Zeros; ``dtype`` by name or as the library's own."""
        return self.module.zeros(tuple(shape), dtype)

    def coefficients(self, array: np.ndarray[Any, Any], dtype: str, like: Any) -> Any:
        """Real coefficients for a product with ``like``, on its device. NumPy and JAX take NumPy's array itself."""
        return array.astype(dtype, copy=False)

    def can_cache(self, like: Any) -> bool:
        """Whether a copy of coefficients on the device of ``like`` is of use, and may outlive the call."""
        return False

    def cacheable(self, array: np.ndarray[Any, Any], dtype: str, like: Any) -> Any:
        """That copy, if :meth:`can_cache`."""
        return self.coefficients(array, dtype, like)

    def copy(self, x: Any) -> Any:
        """A copy, contiguous in memory."""
        return self.module.array(x, order="C")

    def contiguous(self, x: Any) -> Any:
        """``x``, copied if it is not contiguous in memory."""
        return self.module.ascontiguousarray(x)

    def complex(self, real: Any, imag: Any) -> Any:
        """A complex array from its two parts."""
        made = self.module.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64))
        made.real, made.imag = real, imag
        return made

    def from_pairs(self, x: Any) -> Any:
        """The complex numbers whose real and imaginary parts alternate along the last axis of ``x``."""
        return x.view(np.result_type(x.dtype, np.complex64))

    def unit(self, angle: Any) -> Any:
        """``exp(i angle)``."""
        return self.complex(self.cos(angle), self.sin(angle))

    def is_complex(self, x: Any) -> bool:
        """Whether the dtype of ``x`` is complex."""
        return bool(x.dtype.kind == "c")

    def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Join arrays along an existing axis."""
        return self.module.concatenate(parts, axis)

    def stack(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Join arrays along a new axis."""
        return self.module.stack(parts, axis)

    def flip(self, x: Any) -> Any:
        """``x`` reversed along its last axis."""
        return x[..., ::-1]

    def cumprod(self, x: Any) -> Any:
        """Cumulative product along the first axis."""
        return self.module.cumprod(x, 0)

    def put(self, x: Any, index: Any, value: Any) -> Any:
        """``x`` with another value at an index: ``x`` itself, changed, except in JAX."""
        x[index] = value
        return x

    def nonzero(self, x: Any) -> Any:
        """Indices of the true elements of a one-dimensional ``x``."""
        return self.module.nonzero(x)[0]

    def inv(self, x: Any) -> Any:
        """The inverse of a matrix."""
        return self.module.linalg.inv(x)

    def lgamma(self, x: Any) -> Any:
        """The logarithm of the absolute value of Gamma."""
        return _scipy_special().gammaln(x)

    def rgamma(self, x: Any) -> Any:
        """``1 / Gamma(x)``, zero at the poles and smooth through them, with its sign (which ``exp(-lgamma)`` loses)."""
        small = x < 0.5
        right = self.where(small, 1.0, x)
        left = self.where(small, x, 0.0)
        nearest = self.round(left)
        # sin(pi x) from the distance to the nearest integer, so that it is exactly 0 at the poles.
        odd = self.where(nearest % 2 == 0, 1.0, -1.0)
        reflected = odd * self.sin(math.pi * (left - nearest)) / math.pi * self.exp(self.lgamma(1.0 - left))
        return self.where(small, reflected, self.exp(-self.lgamma(right)))

    def power(self, base: Any, exponent: Any) -> Any:
        """``base ** exponent`` for positive numbers ``base`` that carry no derivative."""
        log = self.array(np.log(base)) if isinstance(base, np.ndarray | float) else self.log(base)
        return self.exp(exponent * log)

    def stop_gradient(self, x: Any) -> Any:
        """The same array, through which no derivative flows."""
        return x

    def repeat_while(self, go_on: Callable[[Any], Any], turn: Callable[[Any], Any], state: Any) -> Any:
        """``state = turn(state)`` while ``go_on(state)``; in JAX a turn is compiled once."""
        while bool(go_on(state)):
            state = turn(state)
        return state

    def branch(self, flag: Any, one: Callable[[Any], Any], other: Callable[[Any], Any], state: Any) -> Any:
        """``one(state)`` if ``flag`` is true, and ``other(state)`` if not."""
        return one(state) if flag else other(state)

    def jit(self, function: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
        """``function``, compiled if the library has a compiler; ``static`` names arguments that are not arrays."""
        return function

    def quiet(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` without warnings of overflow, division by zero and the like."""
        return function

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which float64 really is float64 (JAX makes it float32 by default)."""
        return contextlib.nullcontext()


class NumPyNamespace(Namespace):
    """NumPy, with SciPy's transforms and special functions."""

    round = np.rint  # a third of the time of np.round
    stop_gradient: Any = staticmethod(np.asarray)  # there is none

    @functools.cached_property
    def fft(self) -> ModuleType:
        """SciPy's, which supports threads and single precision. Imported on first use, because that takes 0.2 s."""
        return importlib.import_module("scipy.fft")

    def array(self, values: Any) -> Any:
        """As float64."""
        return np.asarray(values, np.float64)

    def rgamma(self, x: Any) -> Any:
        """SciPy's own."""
        return _scipy_special().rgamma(x)

    def quiet(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """NumPy is the one library that warns."""
        return np.errstate(all="ignore")(function)


NUMPY = NumPyNamespace("numpy")


class CuPyNamespace(Namespace):
    """Transforms by ``cupyx``, if it is imported, may overwrite their input, which saves a copy."""

    def coefficients(self, array: np.ndarray[Any, Any], dtype: str, like: Any) -> Any:
        """A copy on the current device."""
        return self.module.asarray(array, dtype=dtype)

    def can_cache(self, like: Any) -> bool:
        """Copies outlive the call."""
        return True

    def round(self, x: Any) -> Any:
        """Round to the nearest integer."""
        return self.module.rint(x)

    def _transform(self, kind: str, x: Any, sizes: Sequence[int] | None, axes: tuple[int, ...], **options: Any) -> Any:
        """Of a contiguous copy if ``x`` is not contiguous; the inverse overwrites ``x`` if possible."""
        fft = sys.modules.get("cupyx.scipy.fft")
        if not kind.startswith("i"):
            return super()._transform(kind, self.contiguous(x), sizes, axes, **options)
        if fft is None:
            return super()._transform(kind, x, sizes, axes)
        return getattr(fft, kind)(x, sizes, axes=axes, overwrite_x=True)
