"""Special functions of fractional calculus. Each name is loaded when it is first used."""

from __future__ import annotations

import importlib
from typing import Any

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


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
