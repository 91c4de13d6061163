"""What to expect before anything was measured here: knots measured elsewhere, packaged with the library.

``prior.json`` is made by ``benchmarks/make_prior.py`` from calibrations of the machines it names. It needs to be right
about the shape of the curves and about what is out of the question, not about the last factor of two.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from hpfracc.engine.backends.base import Arm

__all__ = ["Prior", "load_prior"]

_DEVICE_NUMBER = re.compile(r"(?<=@)(cuda):\d+")
_WORKERS = re.compile(r"x\d+$")


@dataclass(frozen=True, slots=True)
class Prior:
    """The packaged knots, compile times and transfer rates."""

    data: dict[str, Any]

    def knots(self, operation: str, arm: Arm, start: str, dtype: str) -> list[tuple[float, float]]:
        """Points (work, seconds) for an arm; of another dtype, in proportion to its bytes, where there are none."""
        starts = self.data["knots"].get(operation, {}).get(general_name(arm), {})
        dtypes = starts.get(start, {})
        if dtype in dtypes:
            return [(x, seconds) for x, seconds in dtypes[dtype]]
        for other, points in dtypes.items():
            scale = np.dtype(dtype).itemsize / np.dtype(other).itemsize
            return [(x, seconds * scale) for x, seconds in points]
        return []

    def compile_seconds(self) -> dict[str, float]:
        """Compile times to expect, by patterns of arm names."""
        return dict(self.data["compile"])

    def transfers(self) -> dict[str, tuple[float, float]]:
        """Latency in seconds and bytes a second, by kind of route (``"host->cuda"``)."""
        return {route: (latency, rate) for route, (latency, rate) in self.data["transfers"].items()}


def general_name(arm: Arm) -> str:
    """The arm's name without what differs from machine to machine: the device's number, how many workers."""
    return _WORKERS.sub("x*", _DEVICE_NUMBER.sub(r"\1", arm.name))


@functools.cache
def load_prior() -> Prior:
    """The packaged prior."""
    text = resources.files("hpfracc.engine.selection").joinpath("prior.json").read_text(encoding="utf-8")
    return Prior(json.loads(text))
