"""What a row of the table is: two ways to the same answer, and how far an answer is from the true one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pair:
    """Two ways to the same answer.

    Attributes
    ----------
    ours, other : callable
        Each returns an answer. ``other`` is None if there is no alternative: the aim is then one of seconds.
    error : callable or None
        ``error(answer)``: how far an answer is from the true one.
    estimate : callable or None
        ``estimate(answer)``: the error estimate that came with our answer.
    """

    ours: Callable[[], Any]
    other: Callable[[], Any] | None = None
    error: Callable[[Any], float] | None = None
    estimate: Callable[[Any], float] | None = None


@dataclass(frozen=True)
class Row:
    """A named problem.

    Attributes
    ----------
    name, problem, alternative : str
        The name for ``--only``, the problem, and the alternative in a few words.
    aim : str
        ``"2 x"`` the time of the alternative, or ``"3 s"``.
    make : callable
        Makes the two ways; what it does itself (data, references) is not timed.
    """

    name: str
    problem: str
    alternative: str
    aim: str
    make: Callable[[], Pair]


ROWS: dict[str, Row] = {}


def row(name: str, problem: str, *, alternative: str, aim: str) -> Callable[[Callable[[], Pair]], Callable[[], Pair]]:
    """Decorator that enters a function, which makes a :class:`Pair`, as a row."""

    def enter(make: Callable[[], Pair]) -> Callable[[], Pair]:
        ROWS[name] = Row(name, problem, alternative, aim, make)
        return make

    return enter
