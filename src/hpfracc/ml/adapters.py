"""An operator together with its settings, as one callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from hpfracc._explain import explain
from hpfracc.errors import InvalidInputError
from hpfracc.ml.config import LayerConfig, read_config

__all__ = ["HighPerformanceAdapter"]


@final
class HighPerformanceAdapter:
    """An operator or function of hpfracc, called with the settings of a layer.

    Parameters
    ----------
    function : callable
        An operator, such as ``hf.Caputo(0.5)``, or a function that takes ``backend=``, such as ``hf.caputo``.
    config : LayerConfig, optional
        The settings. ``performance_mode="memory"`` applies to layers only and is refused.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> from hpfracc.ml.adapters import HighPerformanceAdapter
    >>> from hpfracc.ml import LayerConfig
    >>> half = HighPerformanceAdapter(hf.GrunwaldLetnikov(1.0), LayerConfig(backend="numpy"))
    >>> half(np.array([1.0, 3.0, 6.0]), step=1.0)
    array([1., 2., 3.])
    """

    def __init__(self, function: Callable[..., Any], config: LayerConfig | None = None) -> None:
        if not callable(function):
            raise InvalidInputError(f"{function!r} cannot be called; give an operator such as hf.Caputo(0.5)")
        self.function, self.config = function, read_config(config)
        if self.config.performance_mode == "memory":
            raise InvalidInputError("performance_mode='memory' is for layers, which have a backward pass; leave it out")

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function on the configured backend, unless ``backend=`` names another."""
        options.setdefault("backend", self.config.engine_backend)
        with self.config.scope():
            return self.function(*args, **options)

    def explain(self, *args: Any, **options: Any) -> Any:
        """Where such a call would run, and why; see :func:`hpfracc.explain`."""
        options.setdefault("backend", self.config.engine_backend)
        with self.config.scope():
            return explain(self.function, *args, **options)

    def __repr__(self) -> str:
        return f"HighPerformanceAdapter({self.function!r}, {self.config!r})"
