"""Tests of choosing and falling back are about arms on the host, wherever they run; those of cards are marked so."""

from __future__ import annotations

import pytest

from tests.helpers.cards import hide_cards


@pytest.fixture(autouse=True)
def host_alone(request: pytest.FixtureRequest, fresh_state: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No card is seen by a test that is not marked ``gpu``."""
    if request.node.get_closest_marker("gpu") is None:
        hide_cards(monkeypatch)
