"""What a simulation of a stochastic equation gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError

__all__ = ["FSDEResult"]


@dataclass(frozen=True, repr=False)
class FSDEResult:
    """Paths of a stochastic equation, or what was kept of them.

    Attributes
    ----------
    t : ndarray, shape (n,)
        Times.
    y : ndarray
        ``save="all"``: shape ``(paths, d, n)``; ``"last"``: ``(paths, d)``; a function: its values, one row a path.
    noise : ndarray, shape (paths, m, n), or None
        The driving noise, with ``save="all"``.
    method : str
        The method that was used.
    paths : int
        Number of paths.
    antithetic : bool
        Whether neighbouring paths have opposite noise.
    """

    t: np.ndarray
    y: np.ndarray
    noise: np.ndarray | None
    method: str
    paths: int
    antithetic: bool

    def mean(self) -> np.ndarray:
        """Mean over the paths."""
        return np.asarray(self.y.mean(0))

    @property
    def standard_error(self) -> np.ndarray:
        """Standard error of :meth:`mean`; antithetic pairs count as one value each."""
        values = 0.5 * (self.y[::2] + self.y[1::2]) if self.antithetic else self.y
        if values.shape[0] < 2:
            return np.full(values.shape[1:], np.nan)
        return np.asarray(values.std(0, ddof=1) / np.sqrt(values.shape[0]))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles over the paths, as ``numpy.quantile``."""
        return np.asarray(np.quantile(self.y, q, axis=0))

    def plot(self, component: int = 0, *, kind: str = "fan", ax: Any = None, most: int = 50) -> Any:
        """Draw a component over time: a fan of quantiles (``kind="fan"``), or the first paths (``"paths"``).

        Parameters
        ----------
        component : int
            Which component.
        kind : {"fan", "paths"}
            Bands that hold 50, 80 and 95 % of the paths around their median, or single paths.
        ax : matplotlib axes, optional
            Where to draw; new axes by default.
        most : int
            Paths drawn at most.

        Returns
        -------
        matplotlib axes
        """
        if self.y.ndim != 3:
            raise InvalidInputError("there are no paths to draw; solve with save='all'")
        if kind not in ("fan", "paths"):
            raise InvalidInputError(f"kind={kind!r}: use 'fan' or 'paths'")
        if ax is None:
            ax = import_optional("matplotlib.pyplot").subplots()[1]
        values = self.y[:, component]
        if kind == "paths":
            ax.plot(self.t, values[:most].T, linewidth=0.8)
        else:
            for share in (0.95, 0.8, 0.5):
                low, high = np.quantile(values, [0.5 - 0.5 * share, 0.5 + 0.5 * share], axis=0)
                ax.fill_between(self.t, low, high, color="tab:blue", alpha=0.2, linewidth=0, label=f"{share:.0%}")
            ax.plot(self.t, np.median(values, axis=0), color="tab:blue", label="median")
            ax.legend()
        ax.set_xlabel("t")
        return ax

    def __repr__(self) -> str:
        return f"FSDEResult(method={self.method!r}, paths={self.paths:,}, steps={self.t.size - 1:,}, y={self.y.shape})"
