"""Amounts of memory as people write them."""

from __future__ import annotations

import math
import re
from typing import Any

from hpfracc.errors import InvalidInputError

__all__ = ["parse_bytes"]

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1024), ("b", 1000), ("ib", 1024))
}


def parse_bytes(name: str, value: Any) -> int:
    """``value`` in bytes: a number of at least 1, or text such as ``"2GiB"``, ``"500 MB"``."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", value.lower())
        if found is not None and found[2] in _UNITS:
            value = float(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 1:
        raise InvalidInputError(f"{name}={value!r} is not an amount of memory; use bytes, or text such as '2GiB'")
    return int(value)
