"""The linear test of Kramers and Kronig, with limits from the noise of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc.lab.relaxation import read_spectrum

Array = np.ndarray[Any, Any]

#: Random residuals behind the probability, and the probability below which a spectrum fails.
_DRAWS, _UNLIKELY = 2000, 0.005


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KramersKronig:
    """The result of a test of Kramers and Kronig.

    Attributes
    ----------
    ok : bool
        Whether the data can be those of a linear, causal, stable sample that did not change.
    residuals : ndarray of complex, shape (n,)
        Data less the fit, in units of the magnitude of the data, by increasing frequency.
    noise : float
        Standard deviation of the noise of real and imaginary part in these units, from differences of neighbours.
    probability : float
        That noise alone has residuals which change as slowly with the frequency.
    elements : int
        Number of resistors with a capacitor.
    w, fitted : ndarray, shape (n,)
        Frequencies and the fit.
    message : str
        The result in a sentence.
    """

    ok: bool
    residuals: Array
    noise: float
    probability: float
    elements: int
    w: Array
    fitted: Array
    message: str

    def __repr__(self) -> str:
        return f"KramersKronig({'ok' if self.ok else 'violated'}: {self.message})"


@_reading.corrects_keywords
def kramers_kronig(w: Any, Z: Any, *, limit: float = 1e-3, rng: Any = 0) -> KramersKronig:  # noqa: N803
    r"""Test whether an impedance satisfies the relations of Kramers and Kronig.

    Fits :math:`R_0 + i\omega L + 1/(i\omega C) + \sum_k R_k/(1 + i\omega\tau_k)` with fixed times and any signs,
    which satisfies them, by linear least squares [1]; the number of elements is the one of the least Bayesian
    information criterion.

    Parameters
    ----------
    w : array_like, shape (n,)
        Angular frequencies in rad/s, at least 8.
    Z : array_like of complex, shape (n,)
        Impedance.
    limit : float
        Residuals that are all below this share of the magnitude are no violation, whatever the noise.
    rng : int or numpy.random.Generator
        Seed of the random residuals.

    Returns
    -------
    KramersKronig
        ``.ok``, ``.residuals``, ``.message``.

    Notes
    -----
    What violates the relations leaves residuals that change slowly with the frequency; those of noise do not. The test
    compares their sum of squares with that of their second differences, and with the same ratio of random residuals of
    the same fit. It fails for 1 in 200 spectra with independent errors. Data at too few frequencies in a decade look
    like noise.

    References
    ----------
    1. B. A. Boukamp, "A linear Kronig-Kramers transform test for immittance data validation", J. Electrochem. Soc. 142,
       1995.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> w = np.geomspace(1e-2, 1e4, 50)
    >>> Z = hf.models.randles().impedance(w)
    >>> hf.lab.kramers_kronig(w, Z).ok, hf.lab.kramers_kronig(w, Z.real + 1.2j * Z.imag).ok
    (True, False)
    """
    points, data = read_spectrum(w, Z)
    limit = _reading.number("limit", limit, least=0.0)
    sizes, n = np.abs(data), points.size
    values = np.concatenate([(data / sizes).real, (data / sizes).imag])
    best: tuple[float, Array, int] = (np.inf, np.empty(0), 0)
    for elements in range(3, max(4, n - 4)):
        tau = np.geomspace(1.0 / points[-1], 1.0 / points[0], elements)
        parts = [np.ones(n), 1j * points / points[-1], points[0] / (1j * points)]
        columns = np.column_stack([*parts, 1.0 / (1.0 + 1j * np.outer(points, tau))]) / sizes[:, np.newaxis]
        matrix = np.concatenate([columns.real, columns.imag])
        left, singular, _ = np.linalg.svd(matrix / np.linalg.norm(matrix, axis=0), full_matrices=False)
        basis = left[:, singular > 1e-10 * singular[0]]
        apart = values - basis @ (basis.T @ values)
        score = 2 * n * np.log(apart @ apart + 1e-28) + basis.shape[1] * np.log(2 * n)
        if score < best[0]:
            best = score, basis, elements
    basis, elements = best[1:]
    random = _reading.generator(rng).normal(size=(_DRAWS, 2 * n))
    rows = np.concatenate([values[np.newaxis], random])
    rows -= (rows @ basis) @ basis.T
    split = rows.reshape(-1, 2, n)
    rough = np.sum(np.diff(split, 2, axis=2) ** 2, axis=(1, 2))
    ratio = np.sum(rows**2, axis=1) / np.maximum(rough, 1e-300)
    residuals = split[0, 0] + 1j * split[0, 1]
    probability = float((1 + np.sum(ratio[1:] >= ratio[0])) / (_DRAWS + 1))
    noise = float(np.sqrt(rough[0] / np.mean(rough[1:])))
    worst = int(np.argmax(np.abs(residuals)))
    ok = bool(probability >= _UNLIKELY or np.abs(residuals[worst]) < limit)
    largest = f"the largest residual is {np.abs(residuals[worst]):.2%} of |Z|, at w={points[worst]:.3g}"
    message = f"the relations of Kramers and Kronig hold within the noise of {noise:.2g}; {largest}"
    if not ok:
        message = (
            f"the data violate the relations of Kramers and Kronig: {largest}, the noise is {noise:.2g}; the sample "
            "changed during the sweep, responds nonlinearly, or a frequency is outside the range of the instrument"
        )
    fitted = data - residuals * sizes
    return KramersKronig(ok, residuals, noise, probability, elements, points, fitted, message)
