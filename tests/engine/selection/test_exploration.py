"""Exploration: only where it can pay, within the budget, at growing intervals, and deterministic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Choice, Chooser


def options_of(*arms: str) -> list[Option]:
    return [Option(arm, arm, 1000.0) for arm in arms]


def play(
    chooser: Chooser, options: list[Option], seconds: Callable[[str, int], float], calls: int
) -> list[tuple[Choice, int]]:
    """Choices and the number of calls before each, made as the engine makes them."""
    answers, made = [], 0
    while made < calls:
        choice = chooser.choose("slot", "bucket", options)
        answers.append((choice, made))
        made += choice.review_after + 1
        chooser.observe(
            "slot", "bucket", choice.option, seconds(choice.option.arm, made), calls=choice.review_after + 1
        )
    return answers


def chooser_with(**knots: float) -> Chooser:
    costs = CostModel()
    for arm, seconds in knots.items():
        costs.add_knot(arm, 1000.0, seconds)
    return Chooser(costs)


def test_the_budget_is_kept():
    """However wrong the predictions of alternatives are, their extra time stays near 1 % of the total."""
    truth = {"best": 1e-3, "second": 4e-3, "third": 4e-3}
    chooser = chooser_with(best=1e-3, second=1.1e-3, third=1.2e-3)
    answers = play(chooser, options_of(*truth), lambda arm, _: truth[arm], 5000)
    extra = sum(truth[choice.option.arm] - truth["best"] for choice, _ in answers if choice.explored)
    assert any(choice.explored for choice, _ in answers)
    assert extra <= 0.012 * 5000 * truth["best"]


def test_five_times_the_best_is_never_tried():
    """Although its lower bound may be below the best."""
    chooser = chooser_with(best=1e-3)
    chooser.costs.add_knot("far", 1000.0, 5.5e-3, prior=True)
    answers = play(chooser, options_of("best", "far"), lambda arm, _: 1e-3, 3000)
    assert {choice.option.arm for choice, _ in answers} == {"best"}


def test_trials_of_one_alternative_become_rarer():
    """The interval between trials at least doubles, although the arm might be better."""
    chooser = chooser_with(best=1e-3, rival=1.02e-3)
    answers = play(chooser, options_of("best", "rival"), lambda arm, _: 1e-3, 6000)
    moments = [made for choice, made in answers if choice.explored]
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert all(later >= earlier for earlier, later in pairwise(gaps))
    assert len(moments) <= 14


def test_the_same_history_gives_the_same_answers():
    """Counters decide, not random numbers."""

    def history() -> list[tuple[str, bool, int]]:
        chooser = chooser_with(a=1e-3, b=1.1e-3, c=1.3e-3)
        answers = play(chooser, options_of("a", "b", "c"), lambda arm, made: 1e-3 * (1 + made % 7 / 10), 2000)
        return [(choice.option.arm, choice.explored, made) for choice, made in answers]

    assert history() == history()


def test_a_former_incumbent_is_retried_and_regains_its_place():
    """It became slow, was replaced and recovered: noticed within some thousand calls."""
    chooser = chooser_with(first=1e-3, second=2e-3)

    def seconds(arm: str, made: int) -> float:
        return 2e-3 if arm == "second" else 8e-3 if 1000 <= made < 2000 else 1e-3

    answers = play(chooser, options_of("first", "second"), seconds, 12_000)
    serving = [choice.option.arm for choice, made in answers if 1500 <= made < 2000 and not choice.explored]
    assert set(serving) == {"second"}
    assert answers[-1][0].option.arm == "first"


def play_in_turn(
    chooser: Chooser, options: list[Option], truth: dict[str, float], calls: int, plans: int
) -> tuple[float, list[Choice]]:
    """Seconds beyond the best, and all choices, of several plans of one bucket that take turns."""
    kept: list[tuple[Choice, int]] = []
    answers: list[Choice] = []
    extra = 0.0
    for call in range(calls):
        plan = call % plans
        if plan == len(kept):
            kept.append((chooser.choose("slot", "bucket", options), 0))
            answers.append(kept[plan][0])
        choice, made = kept[plan]
        seconds = truth[choice.option.arm]
        extra += seconds - min(truth.values())
        if made < choice.review_after:
            kept[plan] = choice, made + 1
            continue
        chooser.observe("slot", "bucket", choice.option, seconds, calls=made + 1)
        kept[plan] = chooser.choose("slot", "bucket", options), 0
        answers.append(kept[plan][0])
    return extra, answers


@pytest.mark.parametrize("plans", [2, 8, 40])
def test_the_budget_is_kept_by_plans_that_share_a_bucket(plans: int) -> None:
    """Reports and choices of other plans, between a trial and its report, do not make the trial free."""
    truth = {"best": 0.5e-3, **{f"rival {number}": 2e-3 for number in range(6)}}
    chooser = chooser_with(best=0.5e-3)
    for rival in list(truth)[1:]:
        chooser.costs.add_knot(rival, 1000.0, 0.52e-3, prior=True)
    extra, answers = play_in_turn(chooser, options_of(*truth), truth, 4000, plans)
    assert any(choice.explored for choice in answers)
    assert extra <= 0.016 * 4000 * truth["best"]
