"""A plan: small, changed by one module, and reviewed at a bounded cost."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.execution import plan as plans
from hpfracc.engine.execution.plan import Plan
from tests.helpers.own_operations import own_operation
from tests.helpers.source import SOURCE, find_modules


def assigned_outside(names: frozenset[str]) -> list[str]:
    """Assignments to ``plan.<name>`` in other modules of the library."""
    found = []
    for module in find_modules(SOURCE).values():
        if module.name == "hpfracc.engine.execution.plan":
            continue
        for node in ast.walk(module.tree()):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found += [
                f"{module.name}:{target.lineno} sets plan.{target.attr}"
                for target in targets
                if isinstance(target, ast.Attribute)
                and isinstance(target.value, ast.Name)
                and target.value.id == "plan"
                and target.attr in names
            ]
    return found


def test_a_plan_has_few_slots_and_one_module_changes_them() -> None:
    """What runs, what it is reviewed by, and how it is counted."""
    assert len(Plan.__slots__) < 20
    assert assigned_outside(frozenset(Plan.__slots__)) == []


@pytest.mark.parametrize("n", [16, 300])
def test_at_most_one_in_ten_short_calls_is_reviewed(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: decisions in the first 100 calls, each of which takes longer than such a call."""
    decisions: list[Any] = []
    decide = plans.decide

    def counted(*given: Any, **options: Any) -> Any:
        decisions.append(given)
        return decide(*given, **options)

    monkeypatch.setattr(plans, "decide", counted)
    weights, signal = np.ones(n), np.ones(n)
    for _ in range(100):
        hf.engine.causal_convolution(weights, signal)
    assert len(decisions) <= 10 + 1  # the plan itself is one


def test_short_calls_are_reviewed_geometrically_and_a_trial_ends_at_once() -> None:
    """After 5 times as many calls, until that costs little; a slower arm on trial is not kept for so long."""
    with own_operation(lambda x: x + 1.0) as op:
        op(np.ones(8))
        (plan,) = op._plans.values()
        plan.bound.expected = 1e-6
        plan.bound.decision = replace(plan.bound.decision, explored=False)
        for now in (1, 5, 25, 125):
            plan.keep_for(0, now)
            assert plan.review_at == 5 * now
        plan.bound.expected = 0.9 * (plans._LOOK_SECONDS + plans._REVIEW_SECONDS)
        plan.keep_for(0, 1000)
        assert plan.review_at == pytest.approx(1000 + 100 / 0.9)
        plan.bound.decision = replace(plan.bound.decision, explored=True)
        plan.keep_for(2, 1000)
        assert plan.review_at == 1003
