r"""Impedances, composed to circuits: ``a + b`` in series, ``a | b`` in parallel.

>>> from hpfracc import models
>>> cell = models.resistor(10.0) + (models.resistor(100.0) | models.constant_phase(1e-5, 0.8))
>>> print(cell.name, cell.names)
R + (R | CPE) ('R1', 'R2', 'Q', 'alpha')

References
----------
A. Lasia, Electrochemical Impedance Spectroscopy and its Applications, Springer, 2014.
"""

from __future__ import annotations

import dataclasses
from typing import Any, final

import numpy as np

from hpfracc._reading import choice
from hpfracc.models.base import described
from hpfracc.models.responses import ResponseModel

__all__ = [
    "Impedance", "capacitor", "constant_phase", "finite_warburg", "inductor", "randles", "resistor", "warburg",
]  # fmt: skip

Array = np.ndarray[Any, Any]


@final
class Impedance(ResponseModel):
    """A circuit of two terminals; see :class:`ResponseModel` for ``simulate``, ``fit`` and ``plot``.

    ``a + b`` is in series, ``a | b`` in parallel. Parameters that occur more than once are numbered from left to right.
    """

    def impedance(self, w: Any) -> Any:
        """The impedance at angular frequencies, in ohm."""
        return self.simulate(w, "impedance")

    def __add__(self, other: Any) -> Impedance:
        if not isinstance(other, Impedance):
            return NotImplemented
        return self._with(other, f"{self.name} + {other.name}", lambda one, two: one + two)

    def __or__(self, other: Any) -> Impedance:
        if not isinstance(other, Impedance):
            return NotImplemented
        return self._with(
            other, f"({self.name} | {other.name})", lambda one, two: _inverse(_inverse(one) + _inverse(two))
        )

    def _with(self, other: Impedance, name: str, combine: Any) -> Impedance:
        first, second, count = self.transfer, other.transfer, len(self.parameters)

        def transfer(s: Array, *values: float) -> Array:
            return np.asarray(combine(first(s, *values[:count]), second(s, *values[count:])))

        equations = tuple(dict.fromkeys((*self.equations, *other.equations)))
        reference = "; ".join(dict.fromkeys(each for each in (self.reference, other.reference) if each))
        return Impedance(
            name, equations, reference, (*self.parameters, *other.parameters), transfer, frequency="impedance"
        )

    def draw(self, ax: Any, x: Array, y: Array, quantity: str, **style: Any) -> Any:
        """Draw the impedance in the plane, as electrochemists do: -Im Z upwards."""
        ax.plot(y.real, -y.imag, **style)
        ax.set(xlabel=r"Re $Z$", ylabel=r"$-$Im $Z$")
        ax.set_aspect("equal", adjustable="datalim")
        return ax


def resistor(R: float = 1.0) -> Impedance:  # noqa: N803
    """A resistor, Z = R; R in ohm."""
    return _element(described("resistor", R), lambda s, r: r + 0.0 * s)


def capacitor(C: float = 1.0) -> Impedance:  # noqa: N803
    """A capacitor, Z = 1/(s C); C in farad."""
    return _element(described("capacitor", C), lambda s, c: _power(s, -1.0) / c)


def inductor(L: float = 1.0) -> Impedance:  # noqa: N803
    """An inductor, Z = s L; L in henry."""
    return _element(described("inductor", L), lambda s, henries: s * henries)


def constant_phase(Q: float = 1.0, alpha: float = 0.8) -> Impedance:  # noqa: N803
    r"""The constant-phase element, :math:`Z = 1/(Q s^\alpha)`, whose phase is :math:`-\alpha\pi/2`.

    Parameters
    ----------
    Q : float
        In second^alpha per ohm.
    alpha : float
        From 0 (a resistor) to 1 (a capacitor).

    Returns
    -------
    Impedance
    """
    return _element(described("constant_phase", Q, alpha), lambda s, q, a: _power(s, -a) / q)


def warburg(sigma: float = 1.0) -> Impedance:
    r"""Diffusion into a half-space, :math:`Z = \sigma\sqrt2\,s^{-1/2} = \sigma(1-i)\omega^{-1/2}`.

    Parameters
    ----------
    sigma : float
        Warburg's coefficient, in ohm per square root of second.

    Returns
    -------
    Impedance
        Of the phase -45 degrees at all frequencies.
    """
    return _element(described("warburg", sigma), lambda s, sigma: np.sqrt(2.0) * sigma * _power(s, -0.5))


def finite_warburg(R: float = 1.0, tau: float = 1.0, end: str = "transmissive") -> Impedance:  # noqa: N803
    r"""Diffusion through a layer.

    .. math:: Z = R\,\frac{\tanh\sqrt{s\tau}}{\sqrt{s\tau}} \quad\text{or}\quad
              R\,\frac{\coth\sqrt{s\tau}}{\sqrt{s\tau}}

    Parameters
    ----------
    R : float
        Diffusion resistance in ohm.
    tau : float
        Diffusion time in seconds: thickness squared over diffusion coefficient.
    end : {"transmissive", "reflective"}
        The far side of the layer: open to what diffuses (tanh), or closed (coth).

    Returns
    -------
    Impedance
        At high frequencies Warburg's; at low ones a resistor R, or R/3 in series with a capacitor.
    """
    reflective = choice("end", end, ("transmissive", "reflective")) == "reflective"

    def transfer(s: Array, r: float, tau: float) -> Array:
        z = np.sqrt(s * tau)
        if reflective:
            return np.asarray(r / (z * np.tanh(z)))
        return np.asarray(r * np.where(z == 0.0, 1.0, np.tanh(z) / np.where(z == 0.0, 1.0, z)))

    return _element(described(end, R, tau), transfer)


def randles(
    solution: float = 10.0,
    transfer: float = 100.0,
    Q: float = 1e-5,  # noqa: N803
    alpha: float = 0.9,
    sigma: float = 20.0,
) -> Impedance:
    """Randles' circuit of an electrode: solution + (double layer | (charge transfer + diffusion)).

    Parameters
    ----------
    solution, transfer : float
        Resistances of the solution (``R1``) and of the charge transfer (``R2``), in ohm.
    Q, alpha : float
        The double layer, a constant-phase element; ``alpha = 1`` is a capacitor.
    sigma : float
        Warburg coefficient, in ohm per square root of second.

    Returns
    -------
    Impedance
    """
    circuit = resistor(solution) + (constant_phase(Q, alpha) | (resistor(transfer) + warburg(sigma)))
    return dataclasses.replace(circuit, reference="J. E. B. Randles, Discuss. Faraday Soc. 1 (1947) 11-19")


def _element(fields: dict[str, Any], transfer: Any) -> Impedance:
    return Impedance(**fields, transfer=transfer, frequency="impedance")


def _inverse(z: Array) -> Array:
    """``1/z``, also of an infinite z, which NumPy gives as nan."""
    return np.where(np.isinf(z), 0.0, 1.0 / z)


def _power(s: Array, a: float) -> Array:
    """``s**a`` for a at most 0, infinite at 0."""
    return np.where(s == 0.0, np.inf if a < 0.0 else 1.0, np.where(s == 0.0, 1.0, s) ** a)
