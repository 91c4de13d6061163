"""The Mittag-Leffler function of one, two and three parameters, and its derivatives."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.execution.catalogue import get_operation
from hpfracc.engine.primitives._mittag_leffler_plan import check_parameters
from hpfracc.errors import InvalidInputError, PinnedBackendError
from hpfracc.special._prabhakar import prabhakar

__all__ = ["mittag_leffler", "mittag_leffler_derivative"]


def mittag_leffler(z: Any, alpha: Any, beta: Any = 1.0, gamma: float = 1.0, *, backend: Any = None) -> Any:
    r"""The Mittag-Leffler function, E\ :sub:`alpha,beta`\ :sup:`gamma`\ (z).

    .. math:: E_{\alpha,\beta}^{\gamma}(z) = \sum_{k=0}^{\infty} \frac{(\gamma)_k}{k!}
              \frac{z^k}{\Gamma(\alpha k + \beta)}

    Parameters
    ----------
    z : array_like
        Real or complex, of any shape and library; derivatives flow through it.
    alpha : float or scalar array
        ``0 < alpha <= 150``. A tensor or JAX array of one element carries its derivative, also under jit and vmap;
        derivatives in alpha and beta together go to the second.
    beta : float or scalar array, default 1
        From -150 to 150; otherwise as ``alpha``.
    gamma : float, default 1
        The third parameter (Prabhakar). Any value for ``0 < alpha <= 1`` and ``|arg z| >= pi alpha``, whole numbers
        for all alpha and z; elsewhere as far as the power series keeps its digits.
    backend : str, optional
        Where to compute it, for ``gamma = 1`` or another whole number. Where a parameter is an array, its own library
        does it (JAX through a callback to NumPy, for its tables need the parameter's value).

    Returns
    -------
    array
        In the shape, dtype and library of ``z``: real for real z. Beyond the range of the dtype it is inf.

    Notes
    -----
    The argument order is the one of Garrappa's MATLAB function. For ``gamma = 1`` the relative error is below
    1e-13 max(1, kappa/100), kappa = abs(z E'(z)/E(z)): near a zero the value cannot be better than z itself. Compiled,
    a real point takes 0.05 to 0.3 microseconds. An integral along a fixed parabola, with the poles' part exact: see
    R. Garrappa, SIAM J. Numer. Anal. 53 (2015) 1350-1369 for integrals of this kind.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.mittag_leffler(-1.0, 0.5)), 12)  # exp(1) erfc(1)
    0.427583576156
    """
    owners = {library_of(value) for value in (alpha, beta)} & {"torch", "jax"}
    if owners:
        return _of_parameters(z, alpha, beta, gamma, backend, owners)
    check_parameters(alpha, beta)
    z = _as_array(z)
    if gamma == 1:
        return get_operation("mittag_leffler")(z, alpha=alpha, beta=beta, backend=backend)
    return prabhakar(z, alpha, beta, gamma, backend=backend)


def mittag_leffler_derivative(z: Any, alpha: float, beta: float = 1.0, order: int = 1, *, backend: Any = None) -> Any:
    """The ``order``-th derivative of the two-parameter Mittag-Leffler function in z.

    Parameters
    ----------
    z : array_like
        Real or complex.
    alpha, beta : float
        As in :func:`mittag_leffler`.
    order : int, default 1
        0 or more.
    backend : str, optional
        Where to compute it.

    Returns
    -------
    array
        In the shape, dtype and library of ``z``.

    Notes
    -----
    Relative errors, away from zeros: some 1e-14 up to the third derivative; they grow to 1e-10 at the sixth where
    a pole is close to the contour.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> float(special.mittag_leffler_derivative(0.0, 1.0))
    1.0
    """
    check_parameters(alpha, beta)
    return get_operation("mittag_leffler")(_as_array(z), alpha=alpha, beta=beta, order=order, backend=backend)


def _of_parameters(z: Any, alpha: Any, beta: Any, gamma: Any, backend: Any, owners: set[str]) -> Any:
    """Parameters that are arrays: their library's own function, so that their derivatives are kept."""
    owners = owners | ({library_of(z)} - {"numpy", "python"})
    if len(owners) > 1:
        raise InvalidInputError(f"arrays of {' and '.join(sorted(owners))} in one call; convert them to one library")
    (library,) = owners
    for name, value in (("alpha", alpha), ("beta", beta)):
        if math.prod(np.shape(value)) != 1 or "complex" in str(getattr(value, "dtype", "")):
            raise InvalidInputError(
                f"{name} has shape {tuple(np.shape(value))}: the Mittag-Leffler function takes one real number here"
            )
    if gamma != 1:
        raise InvalidInputError(f"gamma={gamma!r} with parameters that are arrays; give alpha and beta as numbers")
    if backend not in (None, "auto", library):
        raise PinnedBackendError(f"backend={backend!r} for parameters of {library}; use that, or give them as numbers")
    module = importlib.import_module(f"hpfracc.engine.backends.{library}.mittag_leffler_function")
    return module.of_parameters(_as_array(z), alpha, beta)


def _as_array(z: Any) -> Any:
    return np.asarray(z) if library_of(z) == "python" else z
