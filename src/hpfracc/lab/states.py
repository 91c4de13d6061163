"""Circuits in time: a state space with real poles, and the voltage of a current profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import signal

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.models import Impedance

Array = np.ndarray[Any, Any]

#: Numbers of poles in a decade that are tried, and the decades beyond the frequencies.
_PER_DECADE, _BEYOND = (2, 3, 4, 5, 6), 1.0


@dataclass(frozen=True, slots=True, eq=False)
class CircuitStates:
    r"""A circuit as :math:`\dot x = -x/\tau + i/\tau`, :math:`v = D\,i + L\,\dot i + \sum_k r_k x_k + q/C`.

    Attributes
    ----------
    tau, gains : ndarray, shape (m,)
        Time constants, and the resistances r of the states, of any sign.
    D, L : float
        Resistance and inductance in series.
    elastance : float
        ``1/C`` of a capacitor in series, on which the charge q is.
    error : float
        Largest relative error of the impedance at the frequencies of the state space.
    """

    tau: Array
    gains: Array
    D: float
    L: float
    elastance: float
    error: float

    def impedance(self, w: Any) -> Array:
        """The impedance at angular frequencies above 0."""
        s = 1j * _reading.numbers("w", w)
        states = (self.gains / (1.0 + s[..., np.newaxis] * self.tau)).sum(axis=-1)
        return np.asarray(states + self.D + self.L * s + self.elastance / s)

    def matrices(self) -> tuple[Array, Array, Array, Array]:
        """``A, B, C, D`` for other tools, with the charge as the last state; without the inductance."""
        a = np.diag(np.append(-1.0 / self.tau, 0.0))
        b = np.append(1.0 / self.tau, 1.0)[:, np.newaxis]
        return a, b, np.append(self.gains, self.elastance)[np.newaxis], np.array([[self.D]])

    def voltage(self, current: Any, step: float) -> Array:
        """The voltage at equal steps of a current that is linear between them, from rest.

        Parameters
        ----------
        current : array_like, shape (n,)
            At the times 0, ``step``, ...
        step : float
            Time between them.

        Returns
        -------
        ndarray, shape (n,)
        """
        i, h = _reading.numbers("current", current, ndim=1), _reading.number("step", step, above=0.0)
        if i.size < 2:
            raise ShapeError(f"current has {i.size} values; give at least 2")
        found = self.D * i + self.L * np.gradient(i, h)
        found[1:] += self.elastance * h * 0.5 * np.cumsum(i[1:] + i[:-1])
        for tau, gain in zip(self.tau, self.gains, strict=True):
            x = h / tau
            mean = -np.expm1(-x) / x
            # The integral of a line over a step: what its end and its start weigh.
            end = 1.0 - mean if x > 1e-4 else x * (0.5 - x / 6.0)
            start = -np.expm1(-x) - end
            found += gain * signal.lfilter([end, start], [1.0, -np.exp(-x)], i, zi=[-end * i[0]])[0]
        return np.asarray(found)


@_reading.corrects_keywords
def circuit_states(circuit: Impedance, low: float, high: float, *, rtol: float = 1e-4) -> CircuitStates:
    """A state space with the impedance of a circuit between two angular frequencies.

    Parameters
    ----------
    circuit : Impedance
        Such as ``hf.models.circuit("R0-p(R1,CPE1)")``, or ``fit.model``.
    low, high : float
        Angular frequencies: at least one over the duration, and pi over the step, of what is simulated.
    rtol : float
        Largest relative error of the impedance between them.

    Returns
    -------
    CircuitStates
        ``.voltage(current, step)`` simulates a current profile; ``.matrices()`` are for other tools.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> states = hf.lab.circuit_states(hf.models.circuit("R0-p(R1,CPE1)", R0=10.0), 1e-2, 1e5)
    >>> pulse = np.where(np.arange(1000) < 500, 1e-3, 0.0)
    >>> states.voltage(pulse, 1e-3).shape
    (1000,)
    """
    _reading.instance("circuit", circuit, Impedance, "hf.models.circuit('R0-p(R1,CPE1)')")
    ends = _reading.pair("(low, high)", (_reading.number("low", low, above=0.0), high))
    rtol = _reading.number("rtol", rtol, above=0.0)
    decades = np.log10(ends[1] / ends[0])
    w = np.geomspace(*ends, int(30 * decades) + 30)
    truth = circuit.impedance(w)
    best: CircuitStates | None = None
    for number in _PER_DECADE:
        beyond = 10.0**_BEYOND
        tau = np.geomspace(1.0 / (ends[1] * beyond), beyond / ends[0], int(number * (decades + 2 * _BEYOND)) + 2)
        s = 1j * w[:, np.newaxis]
        parts = np.concatenate([1.0 / (1.0 + s * tau), np.ones_like(s), s / ends[1], ends[0] / s], axis=1)
        columns = parts / np.abs(truth)[:, np.newaxis]
        goal = truth / np.abs(truth)
        # A little ridge keeps the gains of neighbours from cancelling each other.
        rows = np.concatenate([columns.real, columns.imag, 1e-9 * np.diag(np.linalg.norm(columns, axis=0))])
        values = np.concatenate([goal.real, goal.imag, np.zeros(columns.shape[1])])
        x = np.linalg.lstsq(rows, values, rcond=None)[0]
        error = float(np.max(np.abs(columns @ x - goal)))
        if best is None or error < best.error:
            best = CircuitStates(tau, x[: tau.size], x[-3], x[-2] / ends[1], x[-1] * ends[0], error)
        if error < rtol:
            return best
    assert best is not None
    raise InvalidInputError(
        f"rtol={rtol:g}: the best state space of {circuit.name} has an error of {best.error:.2g}; give a larger rtol "
        "or a smaller range of frequencies"
    )
