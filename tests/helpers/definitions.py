"""The operators that take samples on a uniform grid in t, for tests of what holds for every one of them."""

from __future__ import annotations

from typing import Any

import hpfracc as hf

__all__ = ["BELOW_ONE", "FUNCTIONS", "NEW", "OPERATORS", "orders_of", "rules_of"]

#: Each class and the function of the same name.
FUNCTIONS: dict[Any, Any] = {
    hf.Caputo: hf.caputo,
    hf.RiemannLiouville: hf.riemann_liouville,
    hf.GrunwaldLetnikov: hf.grunwald_letnikov,
    hf.RiemannLiouvilleIntegral: hf.riemann_liouville_integral,
    hf.Marchaud: hf.marchaud,
    hf.CaputoFabrizio: hf.caputo_fabrizio,
    hf.CaputoFabrizioIntegral: hf.caputo_fabrizio_integral,
    hf.AtanganaBaleanu: hf.atangana_baleanu,
    hf.AtanganaBaleanuRiemann: hf.atangana_baleanu_riemann,
    hf.AtanganaBaleanuIntegral: hf.atangana_baleanu_integral,
    hf.TemperedCaputo: hf.tempered_caputo,
    hf.TemperedRiemannLiouville: hf.tempered,
    hf.TemperedIntegral: hf.tempered_integral,
    hf.VariableOrder: hf.variable_order,
}
OPERATORS = list(FUNCTIONS)
NEW = OPERATORS[4:]

#: Defined for orders between 0 and 1 only.
BELOW_ONE = {
    hf.CaputoFabrizio,
    hf.CaputoFabrizioIntegral,
    hf.AtanganaBaleanu,
    hf.AtanganaBaleanuRiemann,
    hf.AtanganaBaleanuIntegral,
}


def rules_of(operator: Any) -> list[str]:
    """The methods to test: all of a rule's first home, one of the convolution quadratures where they are borrowed."""
    borrowed = operator in NEW
    return [name for name in operator.rules if not (borrowed and name in ("cq3", "cq4", "cq5", "cq6"))]


def orders_of(operator: Any, *orders: float) -> list[float]:
    """Those of some orders for which the operator is defined."""
    return [order for order in orders if order < 1.0 or operator not in BELOW_ONE]
