"""Paths that keep nothing for the backward pass, which draws the noise again from its key, for JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from hpfracc.ml.fsde_models import Steps, along_noise

__all__ = ["along_regenerated_noise"]


def along_regenerated_noise(draw: Callable[[Any], Any], steps: Steps, key: Any) -> Any:
    """The paths along the noise ``draw(key)``; the backward pass begins with the key and the initial values."""
    return jax.checkpoint(lambda key: along_noise(draw, steps, key))(key)
