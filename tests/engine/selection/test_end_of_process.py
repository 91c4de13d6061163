"""What the engine does when a process ends."""

from __future__ import annotations

import pytest

from hpfracc._config import get_settings
from hpfracc.engine.selection import knowledge
from hpfracc.engine.selection.wisdom import Wisdom


def test_a_process_without_memory_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tidying what was learned is left to the next process where no memory is left for it."""
    asked: list[Wisdom] = []

    def tidy(wisdom: Wisdom) -> None:
        asked.append(wisdom)
        raise MemoryError

    monkeypatch.setattr(Wisdom, "tidy", tidy)
    known = knowledge.knowledge_for(get_settings())
    knowledge._save()
    assert known.wisdom in asked
