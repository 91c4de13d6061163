"""Keeps an old import path alive: operators of :mod:`hpfracc.operators` select the fastest device themselves.

These classes add a stored configuration: the backend, whether to fall back to the host, the fraction of GPU memory to
use, and the number of rows per call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hpfracc import _reading
from hpfracc._config import config
from hpfracc._xp import array_namespace
from hpfracc.engine.execution.api import causal_convolution
from hpfracc.engine.memory.budget import get_budget
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.engine.selection.decision import Decision
from hpfracc.errors import BackendError, InvalidInputError, OutOfMemoryError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators._riemann_liouville import GrunwaldLetnikov, RiemannLiouville
from hpfracc.operators.core.base import FractionalOperator
from hpfracc.operators.core.grids import read_grid
from hpfracc.operators.core.values import as_values

__all__ = ["GPUConfig", "GPUOptimizedCaputo", "GPUOptimizedGrunwaldLetnikov", "GPUOptimizedRiemannLiouville"]


@dataclass(frozen=True)
class GPUConfig:
    """How the operators of this module run.

    Parameters
    ----------
    backend : str
        ``"auto"``, or the name of a backend.
    fallback_to_cpu : bool
        Whether to fall back to NumPy if the requested backend fails or cannot run the call.
    memory_limit : float
        Fraction of a GPU's free memory that one call may use.
    batch_size : int, optional
        Rows of samples per call; None for as many as fit into that memory.
    """

    backend: str = "auto"
    fallback_to_cpu: bool = True
    memory_limit: float = 0.8
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            _reading.whole("batch_size", self.batch_size, least=1)

    @property
    def wish(self) -> str | None:
        """The requested backend, or None for the engine's choice."""
        return None if self.backend == "auto" else self.backend

    def select_backend_for_data(self, array: Any) -> str:
        """The backend that would run a call on these samples."""
        with config(gpu_memory_limit=self.memory_limit):
            try:
                return self._decision(array).backend
            except (BackendError, OutOfMemoryError):
                if not self.replaceable:
                    raise
                return "numpy"

    @property
    def replaceable(self) -> bool:
        """Whether a failing backend may be replaced by NumPy."""
        return self.fallback_to_cpu and self.backend not in ("auto", "numpy")

    def rows_at_a_time(self, array: Any) -> int:
        """Number of rows of these samples per call."""
        if self.batch_size is not None:
            return self.batch_size
        with config(gpu_memory_limit=self.memory_limit):
            decision = self._decision(array)
            share = self.memory_limit if decision.device != "cpu" else 1.0
            free = get_budget().allowed(decision.device, share)
        primitive = causal_convolution.primitive
        row = primitive.describe(ArraySpec(array.shape[-1:]), ArraySpec(array.shape[-1:]))
        need = max(1, primitive.memory(row, decision.algorithm))
        return math.prod(array.shape[:-1]) if free is None else max(1, free // need)

    def _decision(self, array: Any) -> Decision:
        weights = ArraySpec(tuple(array.shape[-1:]))
        return causal_convolution.decide(weights, array, backend=self.wish, weights_key="any")


class _Configured:
    """An operator with a configuration."""

    operator: ClassVar[type[FractionalOperator]]

    def __init__(self, alpha: Any, gpu_config: GPUConfig | None = None) -> None:
        self.alpha = alpha
        self.gpu_config = GPUConfig() if gpu_config is None else gpu_config

    def compute(self, f: Any, t: Any = None, h: float | None = None) -> Any:
        """The derivative of ``f``, a function or samples along the last axis, on a grid ``t`` or with a step ``h``."""
        settings = self.gpu_config
        operator = self.operator(self.alpha)  # type: ignore[call-arg]
        with config(gpu_memory_limit=settings.memory_limit):
            try:
                return _run(operator, f, t, h, settings)
            except (BackendError, OutOfMemoryError):
                if not settings.replaceable:
                    raise
                return _run(operator, f, t, h, replace(settings, backend="numpy"))


def _run(operator: FractionalOperator, f: Any, t: Any, h: float | None, settings: GPUConfig) -> Any:
    backend = settings.wish
    if callable(f) and not hasattr(f, "dtype"):
        return operator(f, t, backend=backend)
    values = as_values(f)
    if t is not None and h is not None:
        step = read_grid(t, None, None, values.shape[-1]).step
        if step is None or abs(float(step) - h) > 1e-6 * abs(h):
            raise InvalidInputError(f"h={h!r} is not the step of t; leave one of them out")
        h = None
    rows = math.prod(values.shape[:-1])
    size = settings.rows_at_a_time(values) if rows > 1 else 1
    if rows <= size:
        return operator(values, t, step=h, backend=backend)
    flat = values.reshape(rows, values.shape[-1])
    parts = [operator(flat[i : i + size], t, step=h, backend=backend) for i in range(0, rows, size)]
    return array_namespace(values).concatenate(parts).reshape(values.shape)


class GPUOptimizedCaputo(_Configured):
    """The Caputo derivative, :class:`hpfracc.Caputo`, with a :class:`GPUConfig`."""

    operator = Caputo


class GPUOptimizedRiemannLiouville(_Configured):
    """The Riemann-Liouville derivative, :class:`hpfracc.RiemannLiouville`, with a :class:`GPUConfig`."""

    operator = RiemannLiouville


class GPUOptimizedGrunwaldLetnikov(_Configured):
    """The Grünwald-Letnikov derivative, :class:`hpfracc.GrunwaldLetnikov`, with a :class:`GPUConfig`."""

    operator = GrunwaldLetnikov
