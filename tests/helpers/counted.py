"""Calls of an operation, counted by its plans."""

from __future__ import annotations

from typing import Any


def count_calls(operation: Any) -> int:
    """Calls by the current plans of an operation."""
    return sum(plan.calls() for plan in operation._plans.values())
