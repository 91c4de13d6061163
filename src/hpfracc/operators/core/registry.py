"""Definitions by name: each operator's file declares it, and this module finds it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Unpack

from hpfracc import operators
from hpfracc._choices import DefinitionName
from hpfracc._reading import corrects_keywords, hint
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.base import FractionalOperator
from hpfracc.operators.core.call_types import DerivativeOptions, IntegralOptions, OrderOrFunction


@cache
def all_operators() -> tuple[type[FractionalOperator], ...]:
    """Every operator class in this folder. Its files are imported; declaring ``definition`` is enough."""
    found = {
        value
        for module in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, type) and issubclass(value, FractionalOperator) and "definition" in vars(value)
    }
    return tuple(sorted(found, key=lambda operator: (operator.kind, operator.definition)))


def definitions(kind: str) -> dict[str, type[FractionalOperator]]:
    """The operator classes of one kind, ``"derivative"`` or ``"integral"``, by the full name of their definition."""
    return {operator.definition: operator for operator in all_operators() if operator.kind == kind}


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_").replace("ü", "u")


@cache
def _names(kind: str) -> dict[str, type[FractionalOperator]]:
    """The classes by all their names."""
    known = definitions(kind)
    names = {_plain(short): operator for operator in known.values() for short in operator.short_names}
    return names | {_plain(full): operator for full, operator in known.items()}


def find_definition(name: str, kind: str) -> type[FractionalOperator]:
    """The operator class of that full or short name; the error for an unknown name suggests similar ones."""
    names = _names(kind)
    found = names.get(_plain(name)) if isinstance(name, str) else None
    if found is None:
        known = f"{hint(_plain(str(name)), names)}: {', '.join(definitions(kind))}"
        raise InvalidInputError(f"no {kind} is defined as {name!r}; {known}")
    return found


@corrects_keywords
def create_fractional_derivative(
    alpha: OrderOrFunction, definition: DefinitionName = "caputo", **options: Unpack[DerivativeOptions]
) -> FractionalOperator:
    """A fractional derivative by the name of its definition.

    Parameters
    ----------
    alpha : float
        The order.
    definition : str
        A name such as ``"caputo"``, ``"riemann_liouville"`` (``"RL"``) or ``"grunwald_letnikov"`` (``"GL"``).
    **options
        Further options of that operator: ``method=``, ``ceiling=`` or ``side=`` for most, ``initial=``, ``rate=``,
        ``psi=`` and others for those whose definition has them; see the operator's own class.

    Returns
    -------
    FractionalOperator
        ``D(f, x)``: ``f`` a function or samples on ``x``; see the operator's own class for the further arguments.

    Raises
    ------
    InvalidInputError
        If no derivative has that name, or if it does not have one of the options.

    See Also
    --------
    create_fractional_integral, caputo, FractionalOperator

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> D = hf.create_fractional_derivative(0.5, "caputo")
    >>> float(np.round(D(lambda t: t, 1.0), 12))  # 1 / Gamma(1.5)
    1.128379167096
    """
    return _make(find_definition(definition, "derivative"), alpha, options)


@corrects_keywords
def create_fractional_integral(
    alpha: OrderOrFunction, definition: DefinitionName = "riemann_liouville", **options: Unpack[IntegralOptions]
) -> FractionalOperator:
    """A fractional integral by the name of its definition.

    Parameters
    ----------
    alpha : float
        The order.
    definition : str
        A name such as ``"riemann_liouville"`` (``"RL"``), ``"hadamard"`` or ``"weyl"``.
    **options
        Further options of that operator: ``method=``, and ``side=``, ``rate=``, ``normalisation=`` or ``period=`` for
        those whose definition has them; see the operator's own class.

    Returns
    -------
    FractionalOperator
        ``J(f, x)``: ``f`` a function or samples on ``x``; see the operator's own class for the further arguments.

    Raises
    ------
    InvalidInputError
        If no integral has that name, or if it does not have one of the options.

    See Also
    --------
    create_fractional_derivative, riemann_liouville_integral, FractionalOperator

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> integral = hf.create_fractional_integral(1.0)
    >>> float(np.round(integral(np.cos, np.pi / 2), 12))
    1.0
    """
    return _make(find_definition(definition, "integral"), alpha, options)


def _make(operator: type[FractionalOperator], alpha: Any, options: Mapping[str, Any]) -> FractionalOperator:
    try:
        return operator(alpha, **options)  # type: ignore[call-arg]
    except TypeError as error:
        raise InvalidInputError(f"{operator.__name__} cannot be made with {dict(options)}: {error}") from None
