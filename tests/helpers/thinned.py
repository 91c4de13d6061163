"""Grids of cases of which an ordinary run takes a few, and a run with the slow tests takes all."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable

import pytest


def thinned(keep: Callable[..., bool] | None = None, *, one_in: int = 1) -> pytest.MarkDecorator:
    """Mark the cases of a parametrised test ``slow``, except for a few.

    Parameters
    ----------
    keep : callable, optional
        Given those parameters of a case that it names, whether the case stays in an ordinary run.
    one_in : int
        Of the cases that ``keep`` leaves, one in this number stays, beginning with the first.
    """
    return pytest.mark.thinned(keep, one_in)


class Thinning:
    """Applies the marks of :func:`thinned` while tests are collected."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("thinned")
        if mark is None or not isinstance(item, pytest.Function) or item.get_closest_marker("skip"):
            return  # a grid without cases is skipped, and has no parameters
        keep, one_in = mark.args
        case = item.callspec.params
        if keep is None or keep(**{name: case[name] for name in inspect.signature(keep).parameters}):
            test = (str(item.path), item.originalname)
            self._seen[test] += 1
            if (self._seen[test] - 1) % one_in == 0:
                return
        item.add_marker(pytest.mark.slow)
