r"""Compartments: drugs in the body, and epidemics.

Rates of equations of order alpha are per time^alpha.

References
----------
A. Dokoumetzidis, R. Magin, P. Macheras, J. Pharmacokinet. Pharmacodyn. 37 (2010) 507-524; K. Diethelm, Nonlinear Dyn.
71 (2013) 613-619.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.models.base import described
from hpfracc.models.equations import EquationModel

__all__ = ["one_compartment", "seir", "sir", "two_compartments"]

Array = np.ndarray[Any, Any]


def one_compartment(
    elimination: float = 0.5, volume: float = 10.0, alpha: float = 0.8, dose: float = 100.0
) -> EquationModel:
    r"""A drug in one compartment after a dose at 0, with elimination of fractional order.

    .. math:: D^\alpha A = -k A, \quad A(0) = \text{dose}, \quad c = A/V = \frac{\text{dose}}{V} E_\alpha(-k t^\alpha)

    Parameters
    ----------
    elimination : float
        Rate k, per hour^alpha.
    volume : float
        V, in litres.
    alpha : float
        ``0 < alpha <= 1``; 1 is elimination of first order, below 1 the concentration has a tail :math:`t^{-\alpha}`.
    dose : float
        Initial amount, in milligrams.

    Returns
    -------
    EquationModel
        Whose output is the concentration.
    """

    def fun(t: float, y: Array, k: float, *others: float) -> Array:
        return np.asarray(-k * y)

    return EquationModel(
        **described("one_compartment", elimination, volume, alpha, dose),
        fun=fun,
        states=("amount",),
        y0=("dose",),
        orders=("alpha",),
        t_end=24.0,
        outputs=("concentration",),
        output=lambda y, k, volume, alpha, dose: y / volume,
    )


def two_compartments(
    elimination: float = 0.5,
    to_tissue: float = 1.0,
    to_blood: float = 0.5,
    volume: float = 10.0,
    alpha: float = 0.8,
    dose: float = 100.0,
) -> EquationModel:
    r"""A drug in blood and tissue: exchange of first order, elimination from the blood of fractional order.

    .. math:: A_1' = -k_{12} A_1 + k_{21} A_2 - k\,{}^{RL}\!D^{1-\alpha} A_1, \quad A_2' = k_{12} A_1 - k_{21} A_2

    The eliminated amount e satisfies :math:`D^\alpha e = k A_1`, and mass is conserved: :math:`A_1 + A_2 + e` is the
    dose. So the equations are solved for :math:`A_2` of order 1 and e of order alpha.

    Parameters
    ----------
    elimination : float
        Rate k, per hour^alpha.
    to_tissue, to_blood : float
        Rates :math:`k_{12}` and :math:`k_{21}`, per hour.
    volume : float
        Volume of the blood compartment, in litres.
    alpha : float
        ``0 < alpha <= 1``; 1 is the usual model.
    dose : float
        Amount in the blood at 0, in milligrams.

    Returns
    -------
    EquationModel
        Its outputs are the concentration in the blood, and the amounts in the tissue and eliminated.
    """

    def fun(t: float, y: Array, k: float, there: float, back: float, volume: float, alpha: float, dose: float) -> Array:
        tissue, gone = y[..., 0], y[..., 1]
        blood = dose - tissue - gone
        return np.stack([there * blood - back * tissue, k * blood], axis=-1)

    def output(y: Array, k: float, there: float, back: float, volume: float, alpha: float, dose: float) -> Array:
        return np.stack([(dose - y[0] - y[1]) / volume, y[0], y[1]])

    return EquationModel(
        **described("two_compartments", elimination, to_tissue, to_blood, volume, alpha, dose),
        fun=fun,
        states=("tissue", "eliminated"),
        y0=(0.0, 0.0),
        orders=(1.0, "alpha"),
        t_end=24.0,
        outputs=("concentration", "tissue", "eliminated"),
        output=output,
    )


def sir(
    infection: float = 0.4,
    recovery: float = 0.1,
    alpha: float = 0.9,
    susceptible: float = 0.99,
    infected: float = 0.01,
    recovered: float = 0.0,
) -> EquationModel:
    r"""An epidemic of susceptible S, infected I and recovered R.

    .. math:: D^\alpha S = -\beta S I/N, \quad D^\alpha I = \beta S I/N - \gamma I, \quad D^\alpha R = \gamma I

    Parameters
    ----------
    infection, recovery : float
        Rates beta and gamma, per day^alpha.
    alpha : float
        ``0 < alpha <= 1``; 1 is the model of Kermack and McKendrick.
    susceptible, infected, recovered : float
        S, I and R at 0, in persons or as fractions; their sum N does not change.

    Returns
    -------
    EquationModel
    """

    def fun(t: float, y: Array, beta: float, gamma: float, *others: float) -> Array:
        new, well = beta * y[..., 0] * y[..., 1] / np.sum(y, axis=-1), gamma * y[..., 1]
        return np.stack([-new, new - well, well], axis=-1)

    return EquationModel(
        **described("sir", infection, recovery, alpha, susceptible, infected, recovered),
        fun=fun,
        states=("S", "I", "R"),
        y0=("susceptible", "infected", "recovered"),
        orders=("alpha",) * 3,
        t_end=150.0,
    )


def seir(
    infection: float = 0.4,
    incubation: float = 0.2,
    recovery: float = 0.1,
    alpha: float = 0.9,
    susceptible: float = 0.99,
    exposed: float = 0.0,
    infected: float = 0.01,
    recovered: float = 0.0,
) -> EquationModel:
    r"""An epidemic with an incubation time: susceptible S, exposed E, infected I and recovered R.

    .. math:: D^\alpha S = -\beta S I/N, \quad D^\alpha E = \beta S I/N - \sigma E, \quad
              D^\alpha I = \sigma E - \gamma I, \quad D^\alpha R = \gamma I

    Parameters
    ----------
    infection, incubation, recovery : float
        Rates beta, sigma and gamma, per day^alpha.
    alpha : float
        ``0 < alpha <= 1``.
    susceptible, exposed, infected, recovered : float
        S, E, I and R at 0, in persons or as fractions; their sum N does not change.

    Returns
    -------
    EquationModel
    """

    def fun(t: float, y: Array, beta: float, sigma: float, gamma: float, *others: float) -> Array:
        new = beta * y[..., 0] * y[..., 2] / np.sum(y, axis=-1)
        ill, well = sigma * y[..., 1], gamma * y[..., 2]
        return np.stack([-new, new - ill, ill - well, well], axis=-1)

    return EquationModel(
        **described("seir", infection, incubation, recovery, alpha, susceptible, exposed, infected, recovered),
        fun=fun,
        states=("S", "E", "I", "R"),
        y0=("susceptible", "exposed", "infected", "recovered"),
        orders=("alpha",) * 4,
        t_end=150.0,
    )
