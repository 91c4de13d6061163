"""Gamma, digamma, beta and incomplete beta functions for the caller's arrays.

Tensors are computed by PyTorch and JAX arrays by JAX, with gradients; everything else by SciPy.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy import special

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc._plugs import over_chunks
from hpfracc._xp import NUMPY
from hpfracc.engine.backends.registry import library_functions
from hpfracc.engine.numerics.gamma import beta_of_numpy, digamma_value
from hpfracc.errors import ShapeError, UnsupportedDtypeError

__all__ = ["BetaFunction", "GammaFunction", "beta", "digamma", "gamma", "incomplete_beta"]


@over_chunks
def gamma(z: Any) -> Any:
    r"""The Gamma function, :math:`\Gamma(z) = \int_0^\infty t^{z-1} e^{-t} dt` continued to the plane.

    Parameters
    ----------
    z : array_like
        Real or complex (real only in PyTorch and JAX). Poles give inf or nan, depending on the library.

    Returns
    -------
    array
        In the library and shape of ``z``.

    See Also
    --------
    digamma, beta, generalized_binomial

    Examples
    --------
    >>> import hpfracc.special as special
    >>> float(special.gamma(5.0))
    24.0
    """
    return _call("gamma", z)


@over_chunks
def digamma(z: Any) -> Any:
    r"""The logarithmic derivative of Gamma, :math:`\psi(z) = \Gamma'(z)/\Gamma(z)`.

    Parameters
    ----------
    z : array_like
        Real or complex (real only in PyTorch and JAX).

    Returns
    -------
    array
        In the library and shape of ``z``.

    See Also
    --------
    gamma

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.digamma(1.0)), 12)  # minus the Euler-Mascheroni constant
    -0.577215664902
    """
    return _call("digamma", z)


@over_chunks
def beta(a: Any, b: Any) -> Any:
    r"""The beta function, :math:`B(a, b) = \Gamma(a)\Gamma(b)/\Gamma(a+b)`.

    Parameters
    ----------
    a, b : array_like
        Real; shapes broadcast.

    Returns
    -------
    array
        In the library of ``a`` and ``b``.

    See Also
    --------
    incomplete_beta, gamma

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.beta(2.0, 3.0)), 12)  # 1/12
    0.083333333333
    """
    return _call("beta", a, b)


@over_chunks
def incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    r"""The regularised incomplete beta function, :math:`I_x(a, b) = B(a,b)^{-1} \int_0^x t^{a-1} (1-t)^{b-1} dt`.

    Parameters
    ----------
    a, b : array_like
        Positive.
    x : array_like
        From 0 to 1; differentiable in PyTorch and JAX.

    Returns
    -------
    array
        In the library of the operands.

    See Also
    --------
    beta, gamma

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.incomplete_beta(2.0, 1.0, 0.5)), 12)  # x^2
    0.25
    """
    return _call("incomplete_beta", a, b, x)


@final
class GammaFunction:
    """The Gamma function as an object: ``GammaFunction().compute(z)`` is :func:`gamma`.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> float(special.GammaFunction().compute(0.5)) == 3.141592653589793**0.5
    True
    """

    def compute(self, z: Any) -> Any:
        """Gamma(z), computed by the library of ``z``."""
        return gamma(z)

    __call__ = compute


@final
class BetaFunction:
    """The beta function as an object: ``BetaFunction().compute(a, b)`` is :func:`beta`.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> float(special.BetaFunction().compute(1.0, 4.0))
    0.25
    """

    def compute(self, a: Any, b: Any) -> Any:
        """B(a, b), computed by the library of ``a`` and ``b``."""
        return beta(a, b)

    __call__ = compute


def _digamma(z: Any) -> Any:
    real = np.asarray(z).dtype.kind == "f"
    return digamma_value(NUMPY, z, special.digamma)[()] if real else special.digamma(z)


_SCIPY = {"gamma": special.gamma, "digamma": _digamma, "beta": beta_of_numpy, "incomplete_beta": special.betainc}


def _of_numpy(name: str, operands: list[Any]) -> Any:
    try:
        return _SCIPY[name](*operands)
    except TypeError:
        kinds = ", ".join(str(np.asarray(operand).dtype) for operand in operands)
        raise UnsupportedDtypeError(f"{name} of {kinds}: SciPy has it for real numbers only; give floats") from None
    except ValueError:
        shapes = ", ".join(str(np.shape(operand)) for operand in operands)
        raise ShapeError(f"{name} of shapes {shapes}: give operands whose shapes broadcast") from None


def _call(name: str, *operands: Any) -> Any:
    libraries = {library_of(operand) for operand in operands} - {"python", "numpy"}
    if not libraries:
        with np.errstate(all="ignore"):
            return _of_numpy(name, [_reading.array(name, operand)[()] for operand in operands])
    if len(libraries) > 1:
        raise UnsupportedDtypeError(
            f"{name}: the operands are of {' and '.join(sorted(libraries))}; convert them to one library"
        )
    (library,) = libraries
    if library not in ("torch", "jax"):
        raise UnsupportedDtypeError(
            f"{name} does not support {library} arrays; convert the operands to NumPy, PyTorch or JAX"
        )
    return getattr(library_functions(library, "special_functions"), name)(*operands)
