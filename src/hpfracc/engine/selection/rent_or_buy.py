"""Rent or buy: the cost of compilation, its hypothetical savings so far, and when it pays off.

This is the ski rental problem. Someone who rents skis until the rent paid equals the price of a pair, and then buys,
never pays more than twice the cost of the best plan in hindsight. Here a *purchase* is a compilation, or the import of
a library. Its *price* is the time it takes, and the *rent* is the time that it would have saved in the calls so far.

The engine's plans and the solvers share one account, :data:`compile_account`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from fnmatch import fnmatchcase
from statistics import median

from hpfracc.engine.locks import Guarded
from hpfracc.engine.selection.times import check_seconds, log_work

__all__ = ["RentOrBuy", "compile_account"]

#: The price of a new purchase is the median of this number of purchases at the nearest sizes. The first one includes
#: one-time work of the library (``timings-h200.json``: CuPy 350 ms at the first size, then 1 to 8 ms), so a mean or a
#: line through two would be far too high.
_NEAREST = 3
#: Maximum numbers of stored prices per family, purchases, and savings. A dropped item counts as not bought, or as
#: without savings.
_MAX_QUOTES, _MAX_BOUGHT, _MAX_SAVINGS = 1024, 16_384, 4096


class RentOrBuy(Guarded):
    """Prices of purchases, and the savings of each so far. Thread-safe.

    An *item* is anything hashable that names one purchase (a compile key, a library, a user's function). A *family*
    is anything hashable that names items of about one price (an arm of an operation, right-hand sides of a solver).

    Examples
    --------
    >>> account = RentOrBuy()
    >>> account.set_prior("kernels", 0.7)
    >>> account.price("kernels", "fft")
    0.7
    >>> account.credit("fft", 0.5)
    >>> account.pays("fft", 0.7), account.pays("fft", 0.7, ahead=1.0)
    (False, True)
    >>> account.credit("fft", 0.2)
    >>> account.pays("fft", 0.7)
    True
    >>> account.buy("kernels", "fft", seconds=0.6)
    >>> account.price("kernels", "fft"), account.price("kernels", "matmul")
    (0.0, 0.6)
    """

    def __init__(self) -> None:
        super().__init__()
        self._quotes: dict[Hashable, dict[Hashable, tuple[float | None, float]]] = {}
        self._bought: dict[Hashable, None] = {}
        self._savings: dict[Hashable, float] = {}
        self._priors: dict[Hashable, float] = {}
        self._patterns: dict[str, float] = {}

    def set_prior(self, family_or_pattern: Hashable, seconds: float) -> None:
        """Set the expected price before any purchase: of one family, or of arms that match a pattern (``numba:*``)."""
        check_seconds(seconds)
        with self._lock:
            if isinstance(family_or_pattern, str):
                self._patterns[family_or_pattern] = seconds
            self._priors[family_or_pattern] = seconds

    def quote(self, family: Hashable, item: Hashable, seconds: float, x: float | None = None) -> None:
        """Add a price that was paid elsewhere or earlier, at work ``x``. It is known, but not yet paid here."""
        check_seconds(seconds)
        with self._lock:
            quotes = self._quotes.setdefault(family, {})
            quotes[item] = (x, seconds)
            if len(quotes) > _MAX_QUOTES:
                del quotes[next(iter(quotes))]

    def buy(self, family: Hashable, item: Hashable, seconds: float | None = None, x: float | None = None) -> None:
        """Record that ``item`` was bought in this process; it costs nothing from now on.

        ``seconds`` is its price at work ``x``; None if that is not representative of the family.
        """
        if seconds is not None:
            self.quote(family, item, seconds, x)
        with self._lock:
            self._bought[item] = None
            if len(self._bought) > _MAX_BOUGHT:
                del self._bought[next(iter(self._bought))]

    def is_bought(self, item: Hashable) -> bool:
        """Whether ``item`` was bought in this process; true for None."""
        return item is None or item in self._bought

    def price(self, family: Hashable, item: Hashable, x: float | None = None) -> float:
        """Seconds that buying ``item`` would take now; 0 once it was bought.

        The price of this item if it was paid before, otherwise the median of the family's prices (at the sizes nearest
        to work ``x`` if it is given), otherwise the prior, otherwise 0.
        """
        if item is None or item in self._bought:
            return 0.0
        with self._lock:
            quotes = self._quotes.get(family)
            if not quotes:
                return self._prior(family)
            own = quotes.get(item)
            if own is not None:
                return own[1]
            found = list(quotes.values())
        if x is not None and len(found) > _NEAREST:
            place = log_work(x)
            found.sort(key=lambda pair: math.inf if pair[0] is None else abs(log_work(pair[0]) - place))
            found = found[:_NEAREST]
        return median(seconds for _, seconds in found)

    def credit(self, item: Hashable, seconds: float) -> None:
        """Add time that ``item`` would have saved."""
        self.credit_calls({item: seconds}, 1)

    def credit_calls(self, gains: Mapping[Hashable, float], calls: int) -> None:
        """Add the time that each item would have saved in ``calls`` calls; ``gains`` are seconds per call."""
        with self._lock:
            savings = self._savings
            for item, gain in gains.items():
                savings[item] = savings.get(item, 0.0) + gain * calls
                if len(savings) > _MAX_SAVINGS:
                    del savings[next(iter(savings))]

    def saved(self, item: Hashable) -> float:
        """Seconds that ``item`` would have saved in this process so far."""
        return self._savings.get(item, 0.0)

    def pays(self, item: Hashable, price: float, ahead: float = 0.0) -> bool:
        """Whether to buy now: the savings so far, or the expected savings ``ahead``, cover ``price``."""
        return ahead >= price or self._savings.get(item, 0.0) >= price

    def clear(self) -> None:
        """Discard everything, including priors."""
        with self._lock:
            for known in (self._quotes, self._bought, self._savings, self._priors, self._patterns):
                known.clear()

    def _prior(self, family: Hashable) -> float:
        known = self._priors.get(family)
        if known is not None:
            return known
        arm = family[1] if isinstance(family, tuple) and len(family) > 1 else family
        if isinstance(arm, str):
            for pattern, seconds in self._patterns.items():
                if fnmatchcase(arm, pattern):
                    return seconds
        return 0.0


#: The account of this process.
compile_account = RentOrBuy()
