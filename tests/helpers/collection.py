"""Processes that share the tests also share the work of rewriting their assertions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class SharedCollection:
    """Each process begins to collect the whole suite at a file of its own, and then puts the tests in one order.

    Every process collects every test. On the first run pytest rewrites the assertions of each file and keeps the result
    beside it. Processes that go through the files in step would all do all of it.
    """

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        number, count = _share()
        folders = [Path(name) for name in session.config.args]
        if count > 1 and all(folder.is_dir() for folder in folders):
            files = [str(path) for folder in folders for path in sorted(folder.rglob("test_*.py"))]
            first = number * len(files) // count
            session.config.args[:] = files[first:] + files[:first]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if _share()[1] > 1:
            items.sort(key=lambda item: str(item.path))


def _share() -> tuple[int, int]:
    """The number of this process, and how many there are."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
