"""The rule of :mod:`hpfracc._interrupts`: nothing that an interrupt can leave held."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.helpers.source import SOURCE, find_modules

#: Python around a lock: an interrupt within leaves it held.
FORBIDDEN = {"Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "Thread", "Timer"}
MODULES = {"threading", "concurrent.futures", "multiprocessing"}
#: The one file that starts threads, from a thread that no interrupt reaches.
STARTS_THREADS = "hpfracc._interrupts"
_ANYWHERE = re.compile("threading|concurrent|multiprocessing|acquire")


def problems(source: Path) -> list[str]:
    """Uses below ``source`` that break the rule, as sentences."""
    found = []
    for module in find_modules(source).values():
        if _ANYWHERE.search(module.path.read_text(encoding="utf-8")) is None:
            continue  # quick: most files
        for node in ast.walk(module.tree()):
            where = f"{module.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ImportFrom) and node.module in MODULES:
                found.append(f"{where} imports names of {node.module}; see hpfracc._interrupts")
            elif isinstance(node, ast.Import) and any(name.name.startswith("concurrent") for name in node.names):
                found.append(f"{where} imports concurrent.futures; see hpfracc._interrupts")
            elif isinstance(node, ast.Attribute) and node.attr == "acquire":
                found.append(f"{where} calls acquire; take a lock by with, see hpfracc._interrupts")
            elif isinstance(node, ast.Attribute) and module.name != STARTS_THREADS and _is_forbidden(node):
                found.append(f"{where} uses threading.{node.attr}; see hpfracc._interrupts")
    return found


def _is_forbidden(node: ast.Attribute) -> bool:
    return node.attr in FORBIDDEN and isinstance(node.value, ast.Name) and node.value.id == "threading"


def test_nothing_waits_on_what_an_interrupt_can_leave_held():
    """Locks are taken by ``with``, threads wait on queues, and there are no conditions, semaphores or executors."""
    assert problems(SOURCE) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import threading\nready = threading.Event()", "uses threading.Event"),
        ("import threading\nclass Worker(threading.Thread): ...", "uses threading.Thread"),
        ("from threading import Condition", "imports names of threading"),
        ("from concurrent.futures import ThreadPoolExecutor", "imports names of concurrent.futures"),
        ("import concurrent.futures", "imports concurrent.futures"),
        ("def f(lock):\n    lock.acquire(timeout=1.0)", "calls acquire"),
    ],
)
def test_a_breach_is_noticed(text: str, complaint: str, tmp_path: Path):
    """Each way to break the rule, taken in a file of its own, is reported."""
    path = tmp_path / "engine" / "memory" / "pool.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert any(complaint in each for each in problems(tmp_path))
