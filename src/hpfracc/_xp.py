"""One array namespace: functions of NumPy, PyTorch, JAX and CuPy under NumPy's names.

Mathematics that runs in several libraries takes a :class:`Namespace` as its argument ``xp``. :func:`namespace` gives
that of a library, :func:`namespace_of` that for weights that depend on a value: PyTorch's or JAX's for their arrays,
NumPy's for all others, CuPy's included. Nothing is imported: the library of an existing array is in ``sys.modules``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

import numpy as np

from hpfracc._arrays import library_of

__all__ = ["NUMPY", "Namespace", "namespace", "namespace_of", "of_variables", "user_scope"]

#: Axes that XLA transforms together.
_TOGETHER = 3


class Namespace:
    """Functions of one array library, with NumPy's names and meanings.

    The annotated attributes are functions with the same name and meaning in every library; keywords are NumPy's, which
    PyTorch accepts too. The methods cover what differs.

    Parameters
    ----------
    library : {"numpy", "torch", "jax", "cupy"}
        It must be imported already.
    device : torch.device, optional
        Device of new arrays, for PyTorch only; the host by default.
    """

    abs: Callable[..., Any]
    amax: Callable[..., Any]
    angle: Callable[..., Any]
    arctanh: Callable[..., Any]
    bitwise_xor: Callable[..., Any]
    clip: Callable[..., Any]
    cos: Callable[..., Any]
    cosh: Callable[..., Any]
    cumsum: Callable[..., Any]
    empty_like: Callable[..., Any]
    exp: Callable[..., Any]
    expm1: Callable[..., Any]
    floor: Callable[..., Any]
    full_like: Callable[..., Any]
    imag: Callable[..., Any]
    isfinite: Callable[..., Any]
    isinf: Callable[..., Any]
    isnan: Callable[..., Any]
    log: Callable[..., Any]
    log1p: Callable[..., Any]
    matmul: Callable[..., Any]
    maximum: Callable[..., Any]
    minimum: Callable[..., Any]
    moveaxis: Callable[..., Any]
    ones_like: Callable[..., Any]
    real: Callable[..., Any]
    round: Callable[..., Any]
    searchsorted: Callable[..., Any]
    sin: Callable[..., Any]
    sinh: Callable[..., Any]
    sqrt: Callable[..., Any]
    unique: Callable[..., Any]
    where: Callable[..., Any]
    zeros_like: Callable[..., Any]

    def __init__(self, library: str, device: Any = None) -> None:
        self.library = library
        self.device = device
        self.module = self._module()
        own = type(self)
        for name in Namespace.__annotations__:
            if not hasattr(own, name):
                setattr(self, name, getattr(self.module, name))

    def __repr__(self) -> str:
        return f"<namespace of {self.library}>"

    def _module(self) -> ModuleType:
        return sys.modules[self.library]

    @functools.cached_property
    def fft(self) -> ModuleType:
        """The library's module of Fourier transforms."""
        found: ModuleType = self.module.fft
        return found

    def fftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Fourier transform along ``axes``."""
        return self.fft.fftn(x, axes=axes)

    def ifftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse, which may overwrite ``x``."""
        return self.fft.ifftn(x, sizes, axes=axes)

    def rfftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Fourier transform of a real signal along ``axes``. The last of them is halved."""
        return self.fft.rfftn(x, axes=axes)

    def irfftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse, which may overwrite ``x``."""
        return self.fft.irfftn(x, sizes, axes=axes)

    def array(self, values: Any) -> Any:
        """Numbers or an array of any kind as float64, on the device of this namespace."""
        return self.module.asarray(values, dtype=np.float64)

    def asarray(self, values: Any, like: Any = None) -> Any:
        """The same, with the dtype of ``values``; on the device of ``like`` if given."""
        return self.module.asarray(values)

    def astype(self, x: Any, dtype: Any) -> Any:
        """``x`` converted to a dtype, given by name or as the library's own; ``x`` itself if it has that dtype."""
        return x.astype(dtype, copy=False)

    def arange(self, start: int, stop: int, dtype: str, like: Any = None) -> Any:
        """The integers from ``start`` up to, but not including, ``stop``."""
        return self.module.arange(start, stop, dtype=dtype)

    def zeros(self, shape: Sequence[int], dtype: str, like: Any = None) -> Any:
        """Zeros; ``dtype`` by name."""
        return self.module.zeros(tuple(shape), dtype)

    def copy(self, x: Any) -> Any:
        """A copy, contiguous in memory."""
        return self.module.array(x, order="C")

    def complex(self, real: Any, imag: Any) -> Any:
        """A complex array from its two parts."""
        made = self.module.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real.dtype, np.complex64))
        made.real, made.imag = real, imag
        return made

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

    def nonzero(self, x: Any) -> Any:
        """Indices of the true elements of a one-dimensional ``x``."""
        return self.module.nonzero(x)[0]

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

    def jit(self, function: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
        """``function``, compiled if the library has a compiler; ``static`` names arguments that are not arrays."""
        return function

    def quiet(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` without warnings of overflow, division by zero and the like."""
        return function

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which float64 really is float64 (JAX makes it float32 by default)."""
        return contextlib.nullcontext()


class _NumPy(Namespace):
    round = np.rint  # a third of the time of np.round

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


class _CuPy(Namespace):
    """Transforms by ``cupyx``, if it is imported, may overwrite their input, which saves a copy."""

    def round(self, x: Any) -> Any:
        """Round to the nearest integer."""
        return self.module.rint(x)

    def fftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Works on a contiguous copy if ``x`` is not contiguous."""
        return self.fft.fftn(self.module.ascontiguousarray(x), axes=axes)

    def rfftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Works on a contiguous copy if ``x`` is not contiguous."""
        return self.fft.rfftn(self.module.ascontiguousarray(x), axes=axes)

    def ifftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Overwrites ``x`` if possible."""
        fft = sys.modules.get("cupyx.scipy.fft")
        return super().ifftn(x, sizes, axes) if fft is None else fft.ifftn(x, sizes, axes=axes, overwrite_x=True)

    def irfftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Overwrites ``x`` if possible."""
        fft = sys.modules.get("cupyx.scipy.fft")
        return super().irfftn(x, sizes, axes) if fft is None else fft.irfftn(x, sizes, axes=axes, overwrite_x=True)


class _Torch(Namespace):
    def __init__(self, library: str, device: Any = None) -> None:
        super().__init__(library, device)
        torch: Any = self.module
        self._signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

    def fftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Along ``axes``."""
        return self.module.fft.fftn(x, dim=axes)

    def ifftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse."""
        return self.module.fft.ifftn(x, s=sizes, dim=axes)

    def rfftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Of a real signal."""
        return self.module.fft.rfftn(x, dim=axes)

    def irfftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse."""
        return self.module.fft.irfftn(x, s=sizes, dim=axes)

    def copy(self, x: Any) -> Any:
        """A copy, contiguous in memory."""
        return x.clone(memory_format=self.module.contiguous_format)

    def array(self, values: Any) -> Any:
        """As float64. NumPy arrays are copied."""
        if library_of(values) == "torch":
            return values.to(dtype=self.module.float64, device=self.device)
        return self.module.as_tensor(np.array(values, dtype=np.float64), device=self.device)

    def asarray(self, values: Any, like: Any = None) -> Any:
        """On the device of ``like``, or of this namespace."""
        return self.module.as_tensor(values, device=self.device if like is None else like.device)

    def astype(self, x: Any, dtype: Any) -> Any:
        """``x`` in that dtype."""
        return x.to(getattr(self.module, dtype) if isinstance(dtype, str) else dtype)

    def arange(self, start: int, stop: int, dtype: str, like: Any = None) -> Any:
        """On the device of ``like``, or of this namespace."""
        device = self.device if like is None else like.device
        return self.module.arange(start, stop, dtype=getattr(self.module, dtype), device=device)

    def zeros(self, shape: Sequence[int], dtype: str, like: Any = None) -> Any:
        """On the device of ``like``, or of this namespace; batched by ``torch.func`` if ``like`` is."""
        kind = getattr(self.module, dtype)
        if like is not None:
            return like.new_zeros(tuple(shape), dtype=kind)
        return self.module.zeros(tuple(shape), dtype=kind, device=self.device)

    def complex(self, real: Any, imag: Any) -> Any:
        """PyTorch's own."""
        return self.module.complex(real, imag)

    def unit(self, angle: Any) -> Any:
        """``exp(i angle)``."""
        return self.module.polar(self.module.ones_like(angle), angle)

    def is_complex(self, x: Any) -> bool:
        """Whether the dtype of ``x`` is complex."""
        found: bool = x.is_complex()
        return found

    def flip(self, x: Any) -> Any:
        """Reversed along the last axis."""
        return x.flip(-1)

    def nonzero(self, x: Any) -> Any:
        """Indices of the true elements of a one-dimensional ``x``."""
        return self.module.nonzero(x)[:, 0]

    def bitwise_xor(self, a: Any, b: Any) -> Any:
        """PyTorch supports unsigned integers wider than a byte only in part, so they are viewed as signed ones."""
        torch = self.module
        signed = self._signed.get(a.dtype)
        if signed is None or a.dtype != b.dtype:
            return torch.bitwise_xor(a, b)
        return torch.bitwise_xor(a.view(signed), b.view(signed)).view(a.dtype)

    def lgamma(self, x: Any) -> Any:
        """PyTorch's own."""
        return self.module.lgamma(x)

    def stop_gradient(self, x: Any) -> Any:
        """Detached."""
        return x.detach()


class _JAX(Namespace):
    def _module(self) -> ModuleType:
        found: ModuleType = sys.modules["jax"].numpy
        return found

    def array(self, values: Any) -> Any:
        """As float64, within :meth:`scope`."""
        return self.module.asarray(values, dtype="float64")

    def astype(self, x: Any, dtype: Any) -> Any:
        """``x`` in that dtype."""
        return x.astype(dtype)

    def complex(self, real: Any, imag: Any) -> Any:
        """JAX's own."""
        return sys.modules["jax"].lax.complex(real, imag)

    def copy(self, x: Any) -> Any:
        """A copy."""
        return self.module.array(x, copy=True)

    def fftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """XLA transforms at most three axes together."""
        return self._further(self.fft.fftn(x, axes=axes[-_TOGETHER:]), self.fft.fft, axes)

    def ifftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse."""
        return self.fft.ifftn(self._further(x, self.fft.ifft, axes), sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])

    def rfftn(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Of a real signal."""
        return self._further(self.fft.rfftn(x, axes=axes[-_TOGETHER:]), self.fft.fft, axes)

    def irfftn(self, x: Any, sizes: list[int], axes: tuple[int, ...]) -> Any:
        """Its inverse."""
        return self.fft.irfftn(self._further(x, self.fft.ifft, axes), sizes[-_TOGETHER:], axes=axes[-_TOGETHER:])

    def _further(self, x: Any, transform: Callable[..., Any], axes: tuple[int, ...]) -> Any:
        for axis in axes[:-_TOGETHER]:
            x = transform(x, axis=axis)
        return x

    def is_complex(self, x: Any) -> bool:
        """Whether the dtype of ``x`` is complex."""
        return bool(self.module.iscomplexobj(x))

    def matmul(self, a: Any, b: Any) -> Any:
        """In full precision: JAX's default rounds float32 to TF32 on a GPU."""
        if b.ndim <= 2 and a.ndim and b.ndim and a.dtype == b.dtype:
            # Not jnp.matmul, which passes the dtype of the result to the backward pass too: see of_variables.
            contracted = (((a.ndim - 1,), (0,)), ((), ()))
            return sys.modules["jax"].lax.dot_general(a, b, contracted, precision="highest")
        return self.module.matmul(a, b, precision="highest")

    def lgamma(self, x: Any) -> Any:
        """JAX's own."""
        return sys.modules["jax"].lax.lgamma(x)

    def stop_gradient(self, x: Any) -> Any:
        """JAX's own."""
        return sys.modules["jax"].lax.stop_gradient(x)

    def jit(self, function: Callable[..., Any], static: Sequence[str] = ()) -> Callable[..., Any]:
        """Compiled once per shape and value of the static arguments."""
        compiled: Callable[..., Any] = sys.modules["jax"].jit(function, static_argnames=tuple(static))
        return compiled

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Double precision in this thread."""
        found: contextlib.AbstractContextManager[Any] = sys.modules["jax"].enable_x64(True)
        return found


_KINDS: dict[str, type[Namespace]] = {"numpy": _NumPy, "torch": _Torch, "jax": _JAX, "cupy": _CuPy}
NUMPY = _NumPy("numpy")


@functools.lru_cache(maxsize=64)
def namespace(library: str, device: Any = None) -> Namespace:
    """The namespace of a library that is already imported."""
    return NUMPY if library == "numpy" else _KINDS[library](library, device)


def namespace_of(value: Any) -> Namespace:
    """Namespace for weights that depend on ``value``: that of its library if it may carry a derivative."""
    library = library_of(value)
    if library == "torch":
        return namespace("torch", value.device)
    return namespace("jax") if library == "jax" else NUMPY


@functools.cache
def _scipy_special() -> ModuleType:
    return importlib.import_module("scipy.special")


def user_scope() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """A context that restores JAX's current precision, for user code that is called inside our ``scope``."""
    jax = sys.modules.get("jax")
    if jax is None:
        return contextlib.nullcontext
    wide = bool(jax.config.jax_enable_x64)
    return lambda: jax.enable_x64(wide)


#: Whether a function with a custom derivative is being evaluated.
_within: ContextVar[bool] = ContextVar("hpfracc_within_variables", default=False)


def of_variables(xp: Namespace, make: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``make``, which computes arrays from scalars, so that JAX can differentiate it with x64 disabled.

    JAX runs the backward pass after our ``scope`` has ended. Arrays that it creates there itself (the zeros around a
    slice, the result of a matrix product) are then float32. Therefore the derivative is computed in the forward pass,
    and the backward pass only multiplies by it. Higher derivatives work in the same way. One variable may also be an
    array, if each point along the last axis depends only on its own element.
    """
    if xp.library != "jax" or _within.get():
        return make
    jax = sys.modules["jax"]

    def whole(*scalars: Any) -> Any:
        # Nested calls need no derivative rule of their own.
        token = _within.set(True)
        try:
            return make(*scalars)
        finally:
            _within.reset(token)

    def slopes(place: int) -> Callable[..., Any]:
        def slope(*scalars: Any) -> Any:
            def moved(one: Any) -> Any:
                return whole(*scalars[:place], one, *scalars[place + 1 :])

            return jax.jvp(moved, (scalars[place],), (jax.numpy.ones_like(scalars[place]),))[1]

        return slope

    made = jax.custom_jvp(whole)

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        with xp.scope():
            total: Any = None
            for place, change in enumerate(tangents):
                slope = of_variables(xp, slopes(place))(*primals)
                part = jax.tree_util.tree_map(lambda one, change=change: one * change, slope)
                total = part if total is None else jax.tree_util.tree_map(lambda a, b: a + b, total, part)
            return made(*primals), total

    made.defjvp(rule)
    found: Callable[..., Any] = made
    return found
