"""The ``HPFRACC_*`` environment variables, read strictly.

A flag is ``1``, ``0``, ``true`` or ``false``. Anything else raises an error that names the variable, because a misread
flag would go unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, NamedTuple

from hpfracc._optional import EXTRAS, is_installed
from hpfracc.errors import ConfigurationError

#: All backends, in the order in which ties are broken.
BACKENDS: tuple[str, ...] = ("numpy", "numba", "torch", "jax", "cupy")
#: Their names as arguments, for type checkers.
BackendName = Literal["auto", "numpy", "numba", "torch", "jax", "cupy"]

_FLAGS = {"1": True, "true": True, "0": False, "false": False}


class Environment(NamedTuple):
    """Settings from the environment; ``None`` where a variable is not set."""

    force: str | None = None
    disabled: frozenset[str] = frozenset()
    gpu_memory_limit: float | None = None
    enable_learning: bool | None = None
    wisdom: str | None = None


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Parse the variables, by default ``os.environ``; raises :class:`ConfigurationError`."""
    source = os.environ if variables is None else variables
    forced = [name for name in BACKENDS if _flag(source, f"HPFRACC_FORCE_{name.upper()}")]
    disabled = frozenset(name for name in BACKENDS if _flag(source, f"HPFRACC_DISABLE_{name.upper()}"))
    if len(forced) > 1:
        names = " and ".join(f"HPFRACC_FORCE_{name.upper()}" for name in forced)
        raise ConfigurationError(f"{names} are all set, but only one backend can be forced; unset the others")
    force = forced[0] if forced else None
    if force in disabled:
        upper = str(force).upper()
        raise ConfigurationError(
            f"HPFRACC_FORCE_{upper} and HPFRACC_DISABLE_{upper} are both set, but {force!r} cannot be both forced and "
            "disabled; unset one of them"
        )
    if force is not None and not is_installed(force):
        raise ConfigurationError(
            f"HPFRACC_FORCE_{force.upper()} is set but {force!r} is not installed; "
            f"install it with: pip install 'hpfracc[{EXTRAS.get(force, force)}]', or unset the variable"
        )
    if "numpy" in disabled and len(disabled) == len(BACKENDS):
        raise ConfigurationError("every backend is disabled by HPFRACC_DISABLE_*; leave at least one enabled")
    return Environment(
        force=force,
        disabled=disabled,
        gpu_memory_limit=_fraction(source, "HPFRACC_GPU_MEMORY_LIMIT"),
        enable_learning=_flag(source, "HPFRACC_ENABLE_LEARNING"),
        wisdom=source.get("HPFRACC_WISDOM") or None,
    )


def _flag(source: Mapping[str, str], name: str) -> bool | None:
    text = source.get(name)
    if not text:
        return None
    if text.strip().lower() not in _FLAGS:
        raise ConfigurationError(f"{name}={text!r} is not a flag; use 1, 0, true or false")
    return _FLAGS[text.strip().lower()]


def _fraction(source: Mapping[str, str], name: str) -> float | None:
    text = source.get(name)
    return check_fraction(name, text) if text else None


def check_fraction(name: str, given: float | str) -> float:
    """The number ``given`` if it lies in (0, 1]; raises :class:`ConfigurationError` otherwise."""
    with suppress(ValueError):
        value = float(given)
        if 0.0 < value <= 1.0:  # nan fails too
            return value
    raise ConfigurationError(f"{name}={given!r} is not a fraction; use a number above 0 and at most 1")
