"""The few functions that weights are written in, in the library of the order they depend on.

A plain number makes NumPy weights. A tensor or a JAX array (a tracer too) makes weights of its own library, so that a
derivative with respect to the order goes through them. Nothing is imported: the library of an array that exists is in
``sys.modules``.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from hpfracc._arrays import library_of

__all__ = ["NUMPY", "Namespace", "namespace_of", "of_variables", "user_scope"]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Functions on float64 arrays of one library, on one device.

    Attributes
    ----------
    library : str
        ``"numpy"``, ``"torch"`` or ``"jax"``.
    array : callable
        From numbers or a NumPy array, a float64 array of this library.
    scope : callable
        A context in which float64 really is float64 (JAX makes it float32 unless told otherwise).
    """

    library: str
    array: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    log: Callable[[Any], Any]
    log1p: Callable[[Any], Any]
    expm1: Callable[[Any], Any]
    sin: Callable[[Any], Any]
    cos: Callable[[Any], Any]
    sinh: Callable[[Any], Any]
    cosh: Callable[[Any], Any]
    arctanh: Callable[[Any], Any]
    lgamma: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    cumprod: Callable[[Any], Any]
    round: Callable[[Any], Any]
    concatenate: Callable[..., Any]
    stack: Callable[[Sequence[Any]], Any]
    matmul: Callable[[Any, Any], Any]
    scope: Callable[[], contextlib.AbstractContextManager[Any]]

    def rgamma(self, x: Any) -> Any:
        """``1 / Gamma(x)``, zero at the poles and smooth through them, with its sign (which ``exp(-lgamma)`` loses)."""
        if self.library == "numpy":
            return special.rgamma(x)
        small = x < 0.5
        right = self.where(small, 1.0, x)
        left = self.where(small, x, 0.0)
        nearest = self.round(left)
        # sin(pi x) from the distance to the nearest integer, so that it is exactly 0 at the poles.
        odd = self.where(nearest % 2 == 0, 1.0, -1.0)
        reflected = odd * self.sin(math.pi * (left - nearest)) / math.pi * self.exp(self.lgamma(1.0 - left))
        return self.where(small, reflected, self.exp(-self.lgamma(right)))

    def power(self, base: Any, exponent: Any) -> Any:
        """``base ** exponent`` for positive numbers ``base``, which carry no derivative."""
        return self.exp(exponent * self.array(np.log(base)))


NUMPY = Namespace(
    library="numpy",
    array=lambda values: np.asarray(values, dtype=np.float64),
    exp=np.exp,
    log=np.log,
    log1p=np.log1p,
    expm1=np.expm1,
    sin=np.sin,
    cos=np.cos,
    sinh=np.sinh,
    cosh=np.cosh,
    arctanh=np.arctanh,
    lgamma=special.gammaln,
    where=np.where,
    cumprod=np.cumprod,
    round=np.round,
    concatenate=np.concatenate,
    stack=np.stack,
    matmul=np.matmul,
    scope=contextlib.nullcontext,
)


def namespace_of(value: Any) -> Namespace:
    """The functions for weights that depend on ``value``."""
    library = library_of(value)
    if library == "torch":
        return _torch_namespace(value.device)
    if library == "jax":
        return _jax_namespace()
    return NUMPY


def user_scope() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """A context with the precision that JAX has here: for the user's own code, called from within our ``scope``."""
    jax = sys.modules.get("jax")
    if jax is None:
        return contextlib.nullcontext
    wide = bool(jax.config.jax_enable_x64)
    return lambda: jax.enable_x64(wide)


def _torch_namespace(device: Any) -> Namespace:
    torch = sys.modules["torch"]

    def array(values: Any) -> Any:
        if library_of(values) == "torch":
            return values.to(dtype=torch.float64, device=device)
        return torch.as_tensor(np.array(values, dtype=np.float64), device=device)

    return Namespace(
        library="torch",
        array=array,
        exp=torch.exp,
        log=torch.log,
        log1p=torch.log1p,
        expm1=torch.expm1,
        sin=torch.sin,
        cos=torch.cos,
        sinh=torch.sinh,
        cosh=torch.cosh,
        arctanh=torch.atanh,
        lgamma=torch.lgamma,
        where=torch.where,
        cumprod=lambda x: torch.cumprod(x, 0),
        round=torch.round,
        concatenate=lambda parts, axis=0: torch.cat(list(parts), axis),
        stack=lambda parts: torch.stack(list(parts)),
        matmul=torch.matmul,
        scope=contextlib.nullcontext,
    )


def _jax_namespace() -> Namespace:
    jax = sys.modules["jax"]
    jnp = jax.numpy
    return Namespace(
        library="jax",
        array=lambda values: jnp.asarray(values, dtype="float64"),
        exp=jnp.exp,
        log=jnp.log,
        log1p=jnp.log1p,
        expm1=jnp.expm1,
        sin=jnp.sin,
        cos=jnp.cos,
        sinh=jnp.sinh,
        cosh=jnp.cosh,
        arctanh=jnp.arctanh,
        lgamma=jax.lax.lgamma,
        where=jnp.where,
        cumprod=jnp.cumprod,
        round=jnp.round,
        concatenate=jnp.concatenate,
        stack=jnp.stack,
        # Without the dtype of the result, which jnp.matmul asks for again on the way back: see of_variables.
        matmul=lambda a, b: jax.lax.dot_general(a, b, (((a.ndim - 1,), (0,)), ((), ())), precision="highest"),
        scope=lambda: jax.enable_x64(True),
    )


#: Whether a function with a derivative of its own is being made.
_within: ContextVar[bool] = ContextVar("hpfracc_within_variables", default=False)


def of_variables(xp: Namespace, make: Callable[..., Any]) -> Callable[..., Any]:
    """``make``, arrays from one or more scalars, with a derivative that JAX can turn round in single precision too.

    JAX goes back through a function after our ``scope`` has been left, and what it then makes of double precision on
    its own (the zeros beside a slice, the result of a product of matrices) is single. So on the way back there is but a
    product with the derivative, which is made on the way there; its own derivative in the same way. One variable may
    also be an array, if each point along the last axis depends on its own element alone.
    """
    if xp.library != "jax" or _within.get():
        return make
    jax = sys.modules["jax"]

    def whole(*scalars: Any) -> Any:
        # What is made within is not gone back through by itself.
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
