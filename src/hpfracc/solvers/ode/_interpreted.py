"""Methods that run in NumPy alone say so, instead of ignoring a wish for Numba."""

from __future__ import annotations

from hpfracc.solvers.ode._engine import read_backend
from hpfracc.solvers.ode._options import Options

__all__ = ["refuse_compiled"]


def refuse_compiled(options: Options, name: str) -> str | None:
    """Why a method that takes few and long steps is not compiled; None if nobody asked for that."""
    if read_backend(options) == "numba" or options.compile is True:
        return (
            f"method={name!r} runs in NumPy and is not compiled, and Numba was asked for; leave that out, or use "
            "method='pece' or 'implicit_trapezoid'"
        )
    return None
