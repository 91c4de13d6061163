"""Settings of a layer: on which backend it runs, and how."""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass
from typing import Any, final

from hpfracc import _reading
from hpfracc._config import check_backend, config
from hpfracc.engine.backends.registry import BackendType

__all__ = [
    "INFINITE_AT_START",
    "PERFORMANCE_MODES",
    "LayerConfig",
    "mode_scope",
    "read_config",
    "warn_of_infinite_start",
]

#: Allowed values of ``performance_mode``.
PERFORMANCE_MODES = ("balanced", "deterministic", "memory")
#: Derivatives that are infinite at the first sample unless that is 0.
INFINITE_AT_START = frozenset({"riemann_liouville", "hadamard", "marchaud", "tempered"})


@final
@dataclass(frozen=True)
class LayerConfig:
    """The backend and the mode of a layer.

    Parameters
    ----------
    backend : str or BackendType, default "auto"
        Passed to the engine, which uses it or refuses it: tensors that carry a gradient stay in their own library.
    performance_mode : {"balanced", "deterministic", "memory"}
        ``"balanced"``: the engine chooses from its measurements. ``"deterministic"``: it makes the same choices in
        every run, as under ``hf.config(deterministic=True)``. ``"memory"``: the derivative is recomputed in the
        backward pass instead of keeping its transforms.

    Examples
    --------
    >>> from hpfracc.ml import LayerConfig
    >>> LayerConfig(backend="torch").performance_mode
    'balanced'
    """

    backend: Any = "auto"
    performance_mode: str = "balanced"

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", BackendType(check_backend(self.backend, auto=True)))
        _reading.choice("performance_mode", self.performance_mode, PERFORMANCE_MODES)

    @property
    def engine_backend(self) -> str | None:
        """The ``backend=`` of an engine call."""
        return None if self.backend is BackendType.AUTO else str(self.backend.value)

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """The settings of the engine during a call."""
        return mode_scope(self.performance_mode)


def read_config(config: Any) -> LayerConfig:
    """The settings that were given, or those by default."""
    if config is None:
        return LayerConfig()
    return _reading.instance("config", config, LayerConfig, "LayerConfig(backend='torch')")


def mode_scope(mode: str) -> contextlib.AbstractContextManager[Any]:
    """The settings of the engine during a call of a layer in that mode."""
    return config(deterministic=True) if mode == "deterministic" else contextlib.nullcontext()


def warn_of_infinite_start(definition: str) -> None:
    """Warn of a derivative that makes losses and gradients infinite."""
    if definition in INFINITE_AT_START:
        warnings.warn(
            f"the {definition} derivative is infinite at the first sample unless that is 0, and so are a loss and its "
            "gradient; to train, use definition='grunwald_letnikov', which is finite there and tends to the same "
            "derivative, or 'caputo', or subtract the first sample",
            UserWarning,
            stacklevel=4,
        )
