"""Steps of stochastic equations, one method a file, each with ``refuses`` and ``advance``."""

from __future__ import annotations

from hpfracc.solvers.sde.methods import doss_sussmann, euler, second_order

__all__ = ["METHODS"]

METHODS = {"euler": euler, "second_order": second_order, "doss_sussmann": doss_sussmann}
