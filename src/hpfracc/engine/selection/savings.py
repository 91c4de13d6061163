"""Ski rental: what compiling or importing would have saved so far.

Who rents skis until the rent paid equals their price, and then buys, never pays more than twice what the best plan
would have cost. Here the rent is the time an arm that is not compiled yet would have saved, and its price the
compile time, with the import of its library where that is still to come.
"""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Savings"]


class Savings:
    """Seconds saved in thought, per compile key and per library. Not locked: its owner is.

    One compilation may serve many size buckets (a Numba signature), one import many compilations (all shapes of JAX):
    each account takes the savings of all calls that its purchase would serve.
    """

    def __init__(self) -> None:
        self._compile: dict[Hashable, float] = {}
        self._library: dict[Hashable, float] = {}

    def credit(self, compile_gains: dict[Hashable, float], library_gains: dict[Hashable, float], calls: int) -> None:
        """Add what ``calls`` calls would have saved, each by the gain given per compile key and per library."""
        for account, gains in ((self._compile, compile_gains), (self._library, library_gains)):
            for key, gain in gains.items():
                account[key] = account.get(key, 0.0) + gain * calls

    def has_paid(self, compile_key: Hashable, compile_cost: float, library: Hashable, startup: float) -> bool:
        """Whether the savings so far cover the purchase."""
        if compile_cost > 0.0 and self._compile.get(compile_key, 0.0) < compile_cost:
            return False
        return startup <= 0.0 or self._library.get(library, 0.0) >= startup + compile_cost

    def of(self, compile_key: Hashable) -> float:
        """Seconds that compiling ``compile_key`` at the start would have saved."""
        return self._compile.get(compile_key, 0.0)

    def clear(self) -> None:
        """Close all accounts."""
        self._compile.clear()
        self._library.clear()
