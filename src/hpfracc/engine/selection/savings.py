"""Ski rental: what compiling or importing would have saved so far.

Who rents skis until the rent paid equals their price, and then buys, never pays more than twice what the best plan
would have cost. Here the rent is the time an arm that is not compiled yet would have saved, and its price the
compile time, with the import of its library where that is still to come.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hpfracc.engine.selection.options import Scored
from hpfracc.engine.selection.tenure import Tenure

__all__ = ["Savings"]

#: Accounts that are kept: each new shape opens one for a library that compiles by shape.
_MOST_ACCOUNTS = 4096


class Savings:
    """Seconds saved in thought, per compile key and per library. Not locked: its owner is.

    One compilation may serve many size buckets (a Numba signature), one import many compilations (all shapes of JAX):
    each account takes the savings of all calls that its purchase would serve.
    """

    def __init__(self) -> None:
        self._compile: dict[Hashable, float] = {}
        self._library: dict[Hashable, float] = {}

    def note_gains(self, tenure: Tenure, rows: Sequence[Scored], best: Scored, threshold: float) -> None:
        """Work out what each purchase would save in every call that ``best`` serves from now on.

        A gain too small to make the incumbent give way counts for nothing. An arm of which nothing is known might take
        no time at all.
        """
        by_key, by_library = tenure.compile_gains, tenure.library_gains
        by_key.clear()
        by_library.clear()
        for row in rows:
            if row.compile <= 0.0 or row is best:
                continue
            total = row.total if row.known else 0.0
            if best.total > (1.0 + threshold) * total:
                option, gain = row.option, best.total - total
                if option.compile_key is not None:
                    by_key[option.compile_key] = max(gain, by_key.get(option.compile_key, 0.0))
                if option.startup > 0.0:
                    by_library[option.owner] = max(gain, by_library.get(option.owner, 0.0))

    def credit(self, tenure: Tenure, calls: int) -> None:
        """Add what ``calls`` calls of the incumbent would have saved."""
        for account, gains in ((self._compile, tenure.compile_gains), (self._library, tenure.library_gains)):
            for key, gain in gains.items():
                account[key] = account.get(key, 0.0) + gain * calls
                if len(account) > _MOST_ACCOUNTS:
                    del account[next(iter(account))]

    def price(self, row: Scored) -> float:
        """What must still be paid before ``row`` runs at its total; nothing once the savings have covered it."""
        if row.compile <= 0.0:
            return 0.0
        option = row.option
        compiling = row.compile - option.startup
        if compiling > 0.0 and self._compile.get(option.compile_key, 0.0) < compiling:
            return row.compile
        if option.startup > 0.0 and self._library.get(option.owner, 0.0) < row.compile:
            return row.compile
        return 0.0

    def clear(self) -> None:
        """Close all accounts."""
        self._compile.clear()
        self._library.clear()
