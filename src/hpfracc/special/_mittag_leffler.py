"""The Mittag-Leffler function of one, two and three parameters, and its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hpfracc import _reading
from hpfracc._arrays import library_of, refuse_masked
from hpfracc._choices import ArraySamples, OrderNumber, SameArray
from hpfracc._plugs import over_chunks
from hpfracc.engine.backends.registry import library_functions
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.numerics.mittag_leffler_plan import check_parameters, make_contour_plan
from hpfracc.engine.numerics.mittag_leffler_values import pairs_of
from hpfracc.errors import InvalidInputError, PinnedBackendError

__all__ = ["mittag_leffler", "mittag_leffler_derivative"]

_Parameter = OrderNumber | Sequence[OrderNumber]
#: Types that can hold several parameters.
_SEVERAL = (np.ndarray, list, tuple)


@overload
def mittag_leffler(
    z: ArraySamples, alpha: _Parameter, beta: _Parameter = 1.0, gamma: float = 1.0, *, backend: Any = None
) -> NDArray[Any]: ...
@overload
def mittag_leffler(
    z: float, alpha: float, beta: float = 1.0, gamma: float = 1.0, *, backend: Any = None
) -> np.float64: ...
@overload
def mittag_leffler(
    z: complex | np.number[Any], alpha: _Parameter, beta: _Parameter = 1.0, gamma: float = 1.0, *, backend: Any = None
) -> Any: ...
@overload
def mittag_leffler(
    z: SameArray, alpha: _Parameter, beta: _Parameter = 1.0, gamma: float = 1.0, *, backend: Any = None
) -> SameArray: ...
@over_chunks
def mittag_leffler(z: Any, alpha: Any, beta: Any = 1.0, gamma: float = 1.0, *, backend: Any = None) -> Any:
    r"""The Mittag-Leffler function, E\ :sub:`alpha,beta`\ :sup:`gamma`\ (z).

    .. math:: E_{\alpha,\beta}^{\gamma}(z) = \sum_{k=0}^{\infty} \frac{(\gamma)_k}{k!}
              \frac{z^k}{\Gamma(\alpha k + \beta)}

    Parameters
    ----------
    z : array_like
        Real or complex, of any shape and library; differentiable.
    alpha : float or array_like
        ``0 < alpha <= 150``. Arrays of alpha and beta broadcast with ``z``. A tensor or JAX array may have a gradient,
        also under jit and vmap; derivatives with respect to alpha and beta are available up to the second.
    beta : float or array_like, default 1
        From -150 to 150; otherwise as ``alpha``.
    gamma : float, default 1
        The third parameter (Prabhakar). Any value for ``0 < alpha <= 1`` and ``|arg z| >= pi alpha``, integers for all
        alpha and z; elsewhere as far as the power series is accurate.
    backend : str, optional
        Backend to compute it on, for integer ``gamma``. Parameters that are arrays are computed by their own library
        (JAX uses a callback to NumPy, because the tables depend on the parameter's value).

    Returns
    -------
    array or scalar
        In the dtype and library of ``z`` (or of the parameters, if z is a number) and the broadcast shape; a scalar for
        scalars, and real for real z. Infinite beyond the range of the dtype.

    See Also
    --------
    mittag_leffler_derivative, mittag_leffler_matrix, wright

    Notes
    -----
    Each pair of parameters needs its own tables, which take about 10 ms: many points for a few pairs are fast, a
    separate pair for each of 1,000 points takes seconds.

    The argument order is that of Garrappa's MATLAB function. For ``gamma = 1`` the relative error is below
    1e-13 max(1, kappa/80), kappa = abs(z E'(z)/E(z)): near a zero the accuracy is limited by that of z. Where an
    exponential of s = z^(1/alpha) counts and abs(Im s) is above 3e14 (times alpha, below 1), nothing is known of its
    phase, and the result is nan. Compiled, a real point takes 0.05 to 0.3 microseconds. The method is an
    integral along a fixed parabola with exact residues of the poles; for integrals of this kind see R. Garrappa, SIAM
    J. Numer. Anal. 53 (2015) 1350-1369.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.mittag_leffler(-1.0, 0.5)), 12)  # exp(1) erfc(1)
    0.427583576156
    >>> special.mittag_leffler(-1.0, [0.5, 1.0]).round(6).tolist()
    [0.427584, 0.367879]
    """
    owners = {library_of(value) for value in (alpha, beta)} & {"torch", "jax"}
    several = isinstance(alpha, _SEVERAL) or isinstance(beta, _SEVERAL)
    if owners or (several and library_of(z) in ("torch", "jax")):
        return _of_parameters(z, alpha, beta, gamma, backend, owners)
    if several:
        return _of_pairs(z, alpha, beta, lambda z, a, b: mittag_leffler(z, a, b, gamma, backend=backend))
    check_parameters(alpha, beta)
    z = _as_array(z)
    gamma = _reading.number("gamma", gamma)
    if gamma == 1:
        make_contour_plan(float(alpha), float(beta), 0)  # first, because every arm needs it: none is slow by it
        value = get_operation("mittag_leffler")(z, alpha=alpha, beta=beta, backend=backend)
    else:
        from hpfracc.special.prabhakar import prabhakar

        value = prabhakar(z, alpha, beta, gamma, backend=backend)
    return value[()] if type(value) is np.ndarray and not value.shape else value


@over_chunks
def mittag_leffler_derivative(z: Any, alpha: float, beta: float = 1.0, order: int = 1, *, backend: Any = None) -> Any:
    """The ``order``-th derivative with respect to z of the two-parameter Mittag-Leffler function.

    Parameters
    ----------
    z : array_like
        Real or complex.
    alpha, beta : float or array_like
        As in :func:`mittag_leffler`; numbers or NumPy arrays.
    order : int, default 1
        Order of the derivative, at least 0.
    backend : str, optional
        Backend to compute it on.

    Returns
    -------
    array or scalar
        In the dtype and library of ``z``, and the shape to which it broadcasts with the parameters.

    See Also
    --------
    mittag_leffler, mittag_leffler_matrix

    Notes
    -----
    Away from zeros the relative error is about 1e-14 up to the third derivative; it grows to 1e-10 at the sixth if a
    pole is close to the contour.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> float(special.mittag_leffler_derivative(0.0, 1.0))
    1.0
    """
    if isinstance(alpha, _SEVERAL) or isinstance(beta, _SEVERAL):
        return _of_pairs(
            z, alpha, beta, lambda z, a, b: mittag_leffler_derivative(z, a, b, order=order, backend=backend)
        )
    check_parameters(alpha, beta)
    value = get_operation("mittag_leffler")(_as_array(z), alpha=alpha, beta=beta, order=order, backend=backend)
    return value[()] if type(value) is np.ndarray and not value.shape else value


def _of_pairs(z: Any, alpha: Any, beta: Any, call: Callable[[Any, float, float], Any]) -> Any:
    """Evaluate with NumPy arrays of parameters: one call for each distinct pair."""
    if library_of(z) not in ("numpy", "python"):
        raise InvalidInputError(
            f"the parameters are arrays of NumPy and z is of {library_of(z)}; convert them to one library"
        )
    for name, value in (("alpha", alpha), ("beta", beta)):
        refuse_masked(value, name)
    z = np.asarray(_as_array(z))
    if z.dtype.kind not in "fc":
        z = z.astype(np.float64)
    try:
        numbers = [np.asarray(value, dtype=np.float64) for value in (alpha, beta)]
        points, first, second = np.broadcast_arrays(z, *numbers)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"alpha={_reading.shown(alpha)} and beta={_reading.shown(beta)} with z of shape {z.shape}: {error}; use "
            "real numbers in shapes that broadcast"
        ) from None
    result = np.empty(points.shape, points.dtype)
    for (a, b), where in pairs_of(first, second):
        result.flat[where] = call(points.flat[where], a, b)
    return result[()]


def _of_parameters(z: Any, alpha: Any, beta: Any, gamma: Any, backend: Any, owners: set[str]) -> Any:
    """Evaluate with tensors or JAX arrays as parameters by their own library, which keeps gradients."""
    owners = owners | ({library_of(z)} - {"numpy", "python"})
    if len(owners) > 1:
        raise InvalidInputError(f"arrays of {' and '.join(sorted(owners))} in one call; convert them to one library")
    (library,) = owners
    for name, value in (("alpha", alpha), ("beta", beta)):
        if "complex" in str(getattr(value, "dtype", "")):
            raise InvalidInputError(f"{name} has dtype {value.dtype}; use real numbers")
    if gamma != 1:
        raise InvalidInputError(f"gamma={gamma!r} is not supported if parameters are arrays; use numbers for them")
    if backend not in (None, "auto", library):
        raise PinnedBackendError(
            f"backend={backend!r}, but the parameters are of {library}; use that backend, or numbers for the parameters"
        )
    return library_functions(library, "special_functions").of_parameters(_as_array(z), alpha, beta)


def _as_array(z: Any) -> Any:
    if library_of(z) == "python":
        return _reading.array("z", z)
    if isinstance(z, np.ndarray):
        refuse_masked(z, "z")
        if not z.dtype.isnative:
            return z.astype(z.dtype.newbyteorder("="))
    return z
