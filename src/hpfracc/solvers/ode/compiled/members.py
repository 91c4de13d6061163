"""The right-hand side of an ensemble, converted to that of a single member.

``fun(t, y, *args)`` takes all members at once, with y of shape (M, d). One thread per member needs the function of a
single member. The function is read for ensembles of one and of two members. It separates if each member's derivative is
computed from that member's state and parameters alone, by the same operations in both readings: then members do not
interact, and nothing depends on their number.

Arrays in ``args`` whose first axis is as long as the ensemble are per member; others are shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode.compiled.reading import BoundSource, Symbols, read_function

__all__ = ["MemberFunction", "read_member", "some_members"]

Array = np.ndarray[Any, Any]

#: Largest number of argument values per member, each of which is written out.
_MAX_NUMBERS = 4096


@dataclass(frozen=True, slots=True)
class MemberFunction:
    """The function of a single member.

    Attributes
    ----------
    source : str
        The body of a function of ``t``, ``y``, ``p``, ``shared``, ``own`` and the index ``i`` of the member, which
        writes ``out``.
    numbers : tuple of float
        The values of ``p``: captured numbers, and those in the arguments.
    shared : array, shape (S,)
        Elements of the arrays that all members share.
    own : tuple of arrays, each of shape (M, ...)
        Elements that are per member: ``own[k, i]`` in the source is element k of member i, array after array.
    """

    source: str
    numbers: tuple[float, ...]
    shared: Array
    own: tuple[Array, ...]

    @property
    def own_count(self) -> int:
        """Numbers that belong to one member."""
        return sum(math.prod(array.shape[1:]) for array in self.own)


def some_members(args: tuple[Any, ...], members: int, count: int) -> tuple[Any, ...]:
    """``args`` for the first ``count`` members of an ensemble."""
    return tuple(value[:count] if _belongs(value, members) else value for value in args)


def _belongs(value: Any, members: int) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == members


def read_member(fun: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, int]) -> MemberFunction | str:
    """The function of one member for ``fun(t, y, *args)`` with y of ``shape`` (M, d); or a message why not."""
    members, d = shape
    shared: list[Array] = []
    own: list[Array] = []
    kinds: list[str] = []
    for n, value in enumerate(args):
        if not isinstance(value, np.ndarray):
            kinds.append("number")
            continue
        if value.dtype.kind != "f":
            return f"args[{n}] is an array of dtype {value.dtype}; convert it to float64"
        belongs = _belongs(value, members)
        if (value.size // members if belongs else value.size) > _MAX_NUMBERS:
            return f"args[{n}] has the shape {value.shape}, more than {_MAX_NUMBERS} numbers for a member"
        kinds.append("own" if belongs else "shared")
        (own if belongs else shared).append(value)
    one, two = (_read(fun, args, kinds, count, d) for count in (1, 2))
    if isinstance(one, BoundSource) and isinstance(two, BoundSource) and one.source != two.source:
        two = "what it computes for a member depends on the number of members"
    if isinstance(one, str) or isinstance(two, str):
        refusal = one if isinstance(one, str) else two
        if not own:
            return str(refusal)
        return (
            f"{refusal}; arrays in args whose first axis is as long as the ensemble ({members}) belong to its members"
        )
    return MemberFunction(
        one.source,
        one.parameters,
        np.concatenate([np.zeros(0), *(value.reshape(-1) for value in shared)]),
        tuple(own),
    )


def _read(fun: Callable[..., Any], args: tuple[Any, ...], kinds: list[str], members: int, d: int) -> BoundSource | str:
    """Read the function for an ensemble of that many members."""
    given: list[Any] = []
    own = shared = 0
    for value, kind in zip(args, kinds, strict=True):
        if kind == "own":
            count = math.prod(value.shape[1:])
            codes = tuple(f"own[{own + k}, i]" for k in range(count))
            given.append(Symbols((members, *value.shape[1:]), codes, own=True))
            own += count
        elif kind == "shared":
            given.append(Symbols(value.shape, tuple(f"shared[{shared + k}]" for k in range(value.size))))
            shared += value.size
        else:
            given.append(value)
    return read_function(fun, tuple(given), (members, d), (members, d), np.float64, by_member=True)
