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
import re
from typing import Any, final

import numpy as np

from hpfracc._reading import choice, text
from hpfracc.errors import InvalidInputError
from hpfracc.models.base import described
from hpfracc.models.responses import ResponseModel

__all__ = [
    "Impedance", "bisquert", "capacitor", "circuit", "constant_phase", "finite_warburg", "gerischer", "inductor",
    "randles", "resistor", "transmission_line", "warburg",
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


def gerischer(R: float = 1.0, tau: float = 1.0) -> Impedance:  # noqa: N803
    r"""Diffusion with a reaction, :math:`Z = R/\sqrt{1 + s\tau}`.

    Parameters
    ----------
    R, tau : float
        Resistance at low frequencies in ohm, and time of the reaction in seconds.

    Returns
    -------
    Impedance
    """
    return _element(described("gerischer", R, tau), lambda s, r, tau: r / np.sqrt(1.0 + s * tau))


def transmission_line(Rt: float = 1.0, Q: float = 1.0, alpha: float = 1.0) -> Impedance:  # noqa: N803
    r"""A pore: a line of resistances with a constant-phase element to the wall.

    .. math:: Z = \sqrt{R_t/(Q s^\alpha)}\,\coth\sqrt{R_t Q s^\alpha}

    Parameters
    ----------
    Rt : float
        Resistance along the line, in ohm.
    Q, alpha : float
        The wall of the whole pore, as in :func:`constant_phase`.

    Returns
    -------
    Impedance
    """

    def transfer(s: Array, r: float, q: float, a: float) -> Array:
        z = np.sqrt(r * q * s**a)
        return np.asarray(r / (z * np.tanh(z)))

    return _element(described("transmission_line", Rt, Q, alpha), transfer)


def bisquert(Rt: float = 1.0, Rk: float = 1.0, Q: float = 1.0, alpha: float = 1.0) -> Impedance:  # noqa: N803
    r"""A :func:`transmission_line` whose wall reacts: Bisquert's model of diffusion with recombination.

    .. math:: Z = \sqrt{R_t \zeta}\,\coth\sqrt{R_t/\zeta}, \quad 1/\zeta = 1/R_k + Q s^\alpha

    Parameters
    ----------
    Rt, Rk : float
        Resistances of the transport along the line and of the reaction at its wall, in ohm.
    Q, alpha : float
        The constant-phase element of the wall.

    Returns
    -------
    Impedance
    """

    def transfer(s: Array, r: float, k: float, q: float, a: float) -> Array:
        z = np.sqrt(r * (1.0 / k + q * s**a))
        return np.asarray(r / (z * np.tanh(z)))

    return _element(described("bisquert", Rt, Rk, Q, alpha), transfer)


#: Elements of a circuit in text.
_ELEMENTS: dict[str, Any] = {
    "R": lambda: resistor(100.0), "C": lambda: capacitor(1e-5), "L": lambda: inductor(1e-6),
    "CPE": lambda: constant_phase(1e-5, 0.9), "W": lambda: warburg(10.0), "Ws": lambda: finite_warburg(100.0, 1.0),
    "Wo": lambda: finite_warburg(100.0, 1.0, "reflective"), "G": lambda: gerischer(100.0, 1.0),
    "TLo": lambda: transmission_line(100.0, 1e-3, 0.9), "TL": lambda: bisquert(100.0, 100.0, 1e-3, 0.9),
}  # fmt: skip


def circuit(words: str, **values: float) -> Impedance:
    """A circuit from text: ``-`` is in series, ``p(..., ...)`` in parallel.

    Parameters
    ----------
    words : str
        Such as ``"R0-p(R1,CPE1)-W1"``. Elements are R, C, L, CPE, W (:func:`warburg`), Ws and Wo
        (:func:`finite_warburg`, transmissive and reflective), G (:func:`gerischer`), TLo (:func:`transmission_line`)
        and TL (:func:`bisquert`), each with a number or without.
    **values : float
        Values of parameters; by default those of an electrochemical cell. A parameter is called like its element, or
        ``CPE1_Q`` and ``CPE1_alpha`` if that has several.

    Returns
    -------
    Impedance

    Examples
    --------
    >>> from hpfracc import models
    >>> cell = models.circuit("R0-p(R1,CPE1)", R0=10.0, CPE1_alpha=0.8)
    >>> cell.names
    ('R0', 'R1', 'CPE1_Q', 'CPE1_alpha')
    """
    tokens = re.findall(r"[A-Za-z]+\d*|\S", text("words", words))
    seen: set[str] = set()

    def refuse(what: str) -> InvalidInputError:
        return InvalidInputError(f"{words!r}: {what}; write circuits like 'R0-p(R1,CPE1)-W1'")

    def series() -> Impedance:
        found = element()
        while tokens and tokens[0] == "-":
            tokens.pop(0)
            found = found + element()
        return found

    def element() -> Impedance:
        name = tokens.pop(0) if tokens else "the end"
        if name == "p" and tokens and tokens.pop(0) == "(":
            found, mark = series(), tokens.pop(0) if tokens else "the end"
            while mark == ",":
                found = found | series()
                mark = tokens.pop(0) if tokens else "the end"
            if mark != ")":
                raise refuse(f"{mark} stands where ')' or ',' is needed")
            return found
        kind = name.rstrip("0123456789")
        if kind not in _ELEMENTS:
            raise refuse(f"{name} is no element; there are {', '.join(_ELEMENTS)}")
        if name in seen:
            raise refuse(f"{name} occurs twice, and needs two numbers")
        seen.add(name)
        one: Impedance = _ELEMENTS[kind]()
        several = len(one.parameters) > 1
        named = [dataclasses.replace(p, name=f"{name}_{p.name}" if several else name) for p in one.parameters]
        return dataclasses.replace(one, name=name, parameters=tuple(named))

    found = series()
    if tokens:
        raise refuse(f"{tokens[0]} follows a circuit that is complete")
    whole: Impedance = dataclasses.replace(found, name=words)
    return whole.replace(**values)


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
