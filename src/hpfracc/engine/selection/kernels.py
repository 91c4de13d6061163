"""Kernels that solvers compile for themselves: their price, and whether compiling them pays off.

The decision is made on the account of the engine, :data:`~hpfracc.engine.selection.rent_or_buy.compile_account`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from hpfracc._config import get_settings
from hpfracc._optional import is_installed
from hpfracc.engine.backends.registry import import_cost
from hpfracc.engine.selection.rent_or_buy import compile_account

__all__ = ["KernelPrice"]

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
    """

    family: str
    item: Hashable
    cold: float
    cached: float
    source: Path
    function: str

    @property
    def is_bought(self) -> bool:
        """Whether the kernels were compiled or loaded in this process."""
        return compile_account.is_bought(self.item)

    def find_copy(self) -> bool:
        """Whether Numba's cache has an up-to-date copy."""
        written = self.source.stat().st_mtime
        files = (self.source.parent / "__pycache__").glob(f"{self.source.stem}.{self.function}-*.nbi")
        return any(file.stat().st_mtime >= written for file in files)

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

    def time_first(self, call: Callable[Given, Result]) -> Callable[Given, Result]:
        """``call``, recording the time of its first use in this process as the price."""
        if self.is_bought:
            return call
        copy = self.find_copy()

        def run(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            if self.is_bought:
                return call(*args, **kwargs)
            started = time.perf_counter()
            found = call(*args, **kwargs)
            self.buy(time.perf_counter() - started, copy=copy)
            return found

        return run

    def _quoted(self, *, copy: bool) -> float:
        """Seconds by the account, without the import of Numba."""
        family = self._family(copy)
        compile_account.set_prior(family, self.cached if copy else self.cold)
        return compile_account.price(family, self.item)

    def _family(self, copy: bool) -> tuple[str, str]:
        return self.family, "cached" if copy else "cold"
