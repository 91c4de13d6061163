"""Conversion of values that users attach to spans to JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["plain"]

_MAX_TEXT, _MAX_ITEMS, _DEEPEST = 2000, 200, 6


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON values.

    Non-finite numbers become None, NumPy scalars plain numbers, arrays a text with shape and dtype, anything else its
    ``repr``. Long texts and lists are truncated, with a note.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _cut(str(value))
    if isinstance(value, int):  # Python does not convert integers with thousands of digits
        return int(value) if value.bit_length() <= _MAX_TEXT else f"an integer of {value.bit_length():,} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        if shape == () and callable(getattr(value, "item", None)) and depth < _DEEPEST:
            return _scalar(value, depth)
        return f"{type(value).__name__} {'x'.join(map(str, shape)) or 'scalar'} {dtype}"
    if depth >= _DEEPEST:
        return _cut(_said(value))
    if isinstance(value, Mapping):
        items = list(value.items())
        kept = {_key(key): plain(item, depth + 1) for key, item in items[:_MAX_ITEMS]}
        return kept | ({"...": f"{len(items) - _MAX_ITEMS} more"} if len(items) > _MAX_ITEMS else {})
    if isinstance(value, list | tuple | set | frozenset):
        many = list(value) if isinstance(value, list | tuple) else sorted(value, key=repr)
        rest = [f"... {len(many) - _MAX_ITEMS} more"] if len(many) > _MAX_ITEMS else []
        return [plain(item, depth + 1) for item in many[:_MAX_ITEMS]] + rest
    return _cut(_said(value))


def _scalar(value: Any, depth: int) -> Any:
    try:
        item = value.item()
    except Exception:  # a tracer, or a device that is gone
        return _cut(_said(value))
    return _cut(_said(item)) if getattr(item, "dtype", None) is not None else plain(item, depth + 1)


def _key(key: Any) -> str:
    return _cut(key if isinstance(key, str) else _said(key))


def _said(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # a user's object must not break the profile
        return f"<{type(value).__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text):,} characters)"
