"""Count warnings over several steps, where ``pytest.warns`` is meant for one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected() -> Iterator[list[str]]:
    """The messages of all warnings given inside the block, in order, repeated ones too."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
        messages += [f"{warning.category.__name__}: {warning.message}" for warning in caught]
