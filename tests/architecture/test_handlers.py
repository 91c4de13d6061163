"""Handlers of any error: each hands the error on, logs it, or has a comment that says why it must not escape."""

from __future__ import annotations

import ast

import pytest

from tests.helpers.source import SOURCE

BROAD = {"Exception", "BaseException"}
LOGGERS = {"debug", "info", "warning", "error", "exception"}


def silent_handlers(text: str) -> list[int]:
    """Lines of ``except Exception`` and ``suppress(Exception)`` that drop an error without a word."""
    lines = text.splitlines()
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            if _is_broad(node.type) and not _hands_on(node) and not _is_commented(lines, node.lineno, 2):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and _suppresses_all(node) and not _is_commented(lines, node.lineno, 1):
            found.append(node.lineno)
    return sorted(found)


def _suppresses_all(call: ast.Call) -> bool:
    return ast.unparse(call.func).endswith("suppress") and any(map(_is_broad, call.args))


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_is_broad, kind.elts))
    return kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD)


def _hands_on(handler: ast.ExceptHandler) -> bool:
    """Whether the handler raises, logs, or uses the error that it caught."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Name) and node.id == handler.name:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOGGERS:
            return True
    return False


def _is_commented(lines: list[str], line: int, count: int) -> bool:
    """Whether there is a comment in the line of a handler, or in the next one if ``count`` is 2."""
    return any("# " in each for each in lines[line - 1 : line - 1 + count])


def test_no_error_is_dropped_without_a_word():
    """Every handler of any error in the library."""
    found = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        for line in silent_handlers(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        ("try: f()\nexcept Exception:\n    pass", True),
        ("try: f()\nexcept:\n    return_nothing = 1", True),
        ("try: f()\nexcept (ValueError, BaseException) as error:\n    pass", True),
        ("with contextlib.suppress(Exception):\n    f()", True),
        ("try: f()\nexcept ValueError:\n    pass", False),
        ("with contextlib.suppress(OSError):\n    f()", False),
        ("try: f()\nexcept Exception:  # a driver may raise anything\n    pass", False),
        ("try: f()\nexcept Exception:\n    # A driver may raise anything.\n    pass", False),
        ("try: f()\nexcept Exception:\n    logger.debug('failed', exc_info=True)", False),
        ("try: f()\nexcept Exception as error:\n    notes.append(str(error))", False),
        ("try: f()\nexcept BaseException:\n    close()\n    raise", False),
        ("with suppress(Exception):  # the scheduler may be gone\n    f()", False),
    ],
)
def test_a_dropped_error_is_noticed(text: str, silent: bool):
    """Raising, logging, keeping the error or saying why is enough; narrow handlers need nothing."""
    assert bool(silent_handlers(text)) == silent
