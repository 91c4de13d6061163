"""Rent or buy: the cost of compilation, its hypothetical savings so far, and when it pays off.

This is the ski rental problem. Someone who rents skis until the rent paid equals the price of a pair, and then buys,
never pays more than twice the cost of the best plan in hindsight. Here a *purchase* is a compilation, or the import of
a library. Its *price* is the time it takes, and the *rent* is the time that it would have saved in the calls so far.

The engine's plans and the solvers share one account, :data:`compile_account`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from typing import ParamSpec, TypeVar

from hpfracc._config import get_settings
from hpfracc._interrupts import Guarded
from hpfracc._optional import is_installed
from hpfracc.engine.backends.registry import import_cost
from hpfracc.errors import InvalidInputError

T = TypeVar("T")

#: The price of a new purchase is the median of this number of purchases at the nearest sizes. The first one includes
#: one-time work of the library (``timings-h200.json``: CuPy 350 ms at the first size, then 1 to 8 ms), so a mean or a
#: line through two would be far too high.
_NEAREST = 3
#: Maximum numbers of stored prices per family, purchases, and savings. A dropped item counts as not bought, or as
#: without savings.
_MAX_QUOTES, _MAX_BOUGHT, _MAX_SAVINGS = 1024, 16_384, 4096


def log_work(x: float) -> float:
    """Natural logarithm of the work; an empty call counts as one step."""
    return math.log(x) if x > 1.0 else 0.0


def check_seconds(seconds: float) -> None:
    """Raise :class:`InvalidInputError` unless ``seconds`` is a time."""
    if not 0.0 <= seconds < math.inf:  # also false for nan
        raise InvalidInputError(f"seconds={seconds!r} is not a time; use a finite number of at least 0")


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
            _put(self._quotes.setdefault(family, {}), item, (x, seconds), _MAX_QUOTES)

    def buy(self, family: Hashable, item: Hashable, seconds: float | None = None, x: float | None = None) -> None:
        """Record that ``item`` was bought in this process; it costs nothing from now on.

        ``seconds`` is its price at work ``x``; None if that is not representative of the family.
        """
        if seconds is not None:
            self.quote(family, item, seconds, x)
        with self._lock:
            _put(self._bought, item, None, _MAX_BOUGHT)

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
            for item, gain in gains.items():
                _put(self._savings, item, self.saved(item) + gain * calls, _MAX_SAVINGS)

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


def _put(known: dict[Hashable, T], key: Hashable, value: T, most: int) -> None:
    """Store a value in a table of at most ``most``, from which the oldest goes."""
    known[key] = value
    if len(known) > most:
        del known[next(iter(known))]


#: Seconds of compilation that are announced.
_NOTICED = 2.0
_log = logging.getLogger("hpfracc")

#: The account of this process.
compile_account = RentOrBuy()


# Kernels that solvers compile for themselves.

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class KernelPrice:
    """The price of kernels that Numba compiles, or loads from its cache.

    Attributes
    ----------
    family : str
        Name of kernels of about one price.
    item : Hashable
        Name of these kernels in the account.
    cold, cached : float
        Seconds assumed before the first measurement, without and with a copy in Numba's cache.
    source : Path
        The file with the kernels.
    function : str
        Name of the kernel whose copy is looked for.
    variant : str
        The types that it is compiled for, where there are several: Numba keeps a copy for each in one place.
    """

    family: str
    item: Hashable
    cold: float
    cached: float
    source: Path
    function: str
    variant: str = ""

    @property
    def is_bought(self) -> bool:
        """Whether the kernels were compiled or loaded in this process."""
        return compile_account.is_bought(self.item)

    def find_copy(self) -> bool:
        """Whether Numba's cache has an up-to-date copy of this variant."""
        written = self.source.stat().st_mtime
        copies = self._mark.parent.glob(f"{self.source.stem}.{self.function}-*.nbi")
        current = any(file.stat().st_mtime >= written for file in copies)
        if not current or not self.variant:
            return current
        return self._mark.exists() and self._mark.stat().st_mtime >= written

    def seconds(self) -> float:
        """Seconds until the kernels can be used, including the import of Numba; 0 once they were used."""
        if self.is_bought:
            return 0.0
        return import_cost("numba") + self._quoted(copy=self.find_copy())

    def pays(self, ahead: float = 0.0) -> bool:
        """Whether to compile now; ``ahead`` are the seconds that this call would save.

        A deterministic run compares ``ahead`` with a constant, because measured times differ from run to run.
        """
        if get_settings().deterministic:
            return ahead >= self.cached and is_installed("numba")
        if self.is_bought:
            return True
        # Files and packages are looked up last, because that takes as long as many steps.
        if not compile_account.pays(self.item, self._quoted(copy=True), ahead):
            return False
        return is_installed("numba") and compile_account.pays(self.item, self.seconds(), ahead)

    def credit(self, seconds: float) -> None:
        """Add time that the kernels would have saved; a deterministic run records nothing."""
        if not get_settings().deterministic:
            compile_account.credit(self.item, seconds)

    def buy(self, seconds: float | None = None, *, copy: bool = False) -> None:
        """Record that the kernels are there; ``seconds`` is what that took, and ``copy`` whether they were cached."""
        compile_account.buy(self._family(copy), self.item, seconds)

    def time_first(self, call: Callable[Given, Result], notes: list[str] | None = None) -> Callable[Given, Result]:
        """``call``, recording the time of its first use in this process as the price.

        A wait that a user notices is announced in the log, and recorded in ``notes``.
        """
        if self.is_bought:
            return call
        copy = self.find_copy()

        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            if self.is_bought:
                return call(*args, **kwargs)
            expected, started = self._quoted(copy=copy), time.perf_counter()
            if expected >= _NOTICED:
                _log.warning("Numba compiles %s, once on this machine: about %.0f s", self.family, expected)
            found = call(*args, **kwargs)
            seconds = time.perf_counter() - started
            self.buy(seconds, copy=copy)
            if self.variant and not copy:
                with contextlib.suppress(OSError):  # then Numba has no copy either
                    self._mark.touch()
            if notes is not None and seconds >= _NOTICED:
                notes.append(f"this call took {seconds:.0f} s longer, because Numba compiled its steps")
            return found

        return run

    @property
    def _mark(self) -> Path:
        """An empty file beside Numba's copies: this variant is among them."""
        name = f"{self.source.stem}.{self.function}-{self.variant}.{sys.implementation.cache_tag}.compiled"
        return self.source.parent / "__pycache__" / name

    def _quoted(self, *, copy: bool) -> float:
        """Seconds by the account, without the import of Numba."""
        family = self._family(copy)
        compile_account.set_prior(family, self.cached if copy else self.cold)
        return compile_account.price(family, self.item)

    def _family(self, copy: bool) -> tuple[str, str]:
        return self.family, "cached" if copy else "cold"
