"""Special functions of fractional calculus. Names are loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.special._mittag_leffler import mittag_leffler, mittag_leffler_derivative
    from hpfracc.special._mittag_leffler_matrix import mittag_leffler_matrix
    from hpfracc.special._wright import m_wright, wright
    from hpfracc.special.binomial import generalized_binomial, grunwald_weights
    from hpfracc.special.gamma_beta import BetaFunction, GammaFunction, beta, digamma, gamma, incomplete_beta

_HOMES = {
    "BetaFunction": "gamma_beta",
    "GammaFunction": "gamma_beta",
    "beta": "gamma_beta",
    "digamma": "gamma_beta",
    "gamma": "gamma_beta",
    "generalized_binomial": "binomial",
    "grunwald_weights": "binomial",
    "incomplete_beta": "gamma_beta",
    "m_wright": "_wright",
    "mittag_leffler": "_mittag_leffler",
    "mittag_leffler_derivative": "_mittag_leffler",
    "mittag_leffler_matrix": "_mittag_leffler_matrix",
    "wright": "_wright",
}

__all__ = [
    "BetaFunction",
    "GammaFunction",
    "beta",
    "digamma",
    "gamma",
    "generalized_binomial",
    "grunwald_weights",
    "incomplete_beta",
    "m_wright",
    "mittag_leffler",
    "mittag_leffler_derivative",
    "mittag_leffler_matrix",
    "wright",
]


# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
