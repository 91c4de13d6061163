"""The rent-or-buy account: prices of compiling, savings, and when buying pays."""

from __future__ import annotations

import pytest

from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Chooser
from hpfracc.engine.selection.rent_or_buy import RentOrBuy

KEY = ("op", "numba:direct@cpu", "host", "float64")


def test_what_was_bought_here_is_free_in_every_family():
    """Another start of the same kernel pays nothing."""
    account = RentOrBuy()
    account.buy(KEY, "code", 0.5)
    assert account.price(KEY, "code") == 0.0
    assert account.price(("op", "numba:direct@cpu", "device", "float64"), "code") == 0.0
    assert account.is_bought("code") and account.is_bought(None) and not account.is_bought("other")


def test_savings_so_far_or_those_ahead_must_cover_the_price():
    """Ski rental: buy when the rent paid, or the rent that is known to come, reaches the price."""
    account = RentOrBuy()
    assert not account.pays("code", 1.0) and account.pays("code", 1.0, ahead=1.0)
    for _ in range(3):
        account.credit("code", 0.25)
    assert (account.saved("code"), account.saved("other")) == (0.75, 0.0)
    assert not account.pays("code", 1.0, ahead=0.9)
    account.credit("code", 0.25)
    assert account.pays("code", 1.0) and not account.pays("other", 1.0)


def world(**knots: float) -> tuple[Chooser, CostModel]:
    """A chooser that knows a run time per arm; each arm is its own key."""
    costs = CostModel()
    for arm, seconds in knots.items():
        costs.add_knot(arm, 1000.0, seconds)
    return Chooser(costs), costs


def calls_until_bought(
    chooser: Chooser, options: list[list[Option]], wanted: str, most: int, *, timed: bool = True
) -> int:
    """Number of calls, round the given option lists (one bucket each), until ``wanted`` is chosen."""
    calls = 0
    while calls < most:
        bucket = calls % len(options)
        choice = chooser.choose("slot", bucket, options[bucket], explore=False)
        if choice.option.arm == wanted:
            return calls
        if timed:
            chooser.observe("slot", bucket, choice.option, choice.estimate.seconds)
        else:
            chooser.tally("slot", bucket, choice.option, 1)
        calls += 1
    return calls


def test_one_compilation_that_serves_many_sizes_is_paid_by_all_of_them():
    """Four buckets share a compile key: 25 calls in each suffice."""
    chooser, costs = world(plain=2e-3, fast=1e-3)
    costs.compiling.quote("fast", "code", 0.1)
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code")]
    assert calls_until_bought(chooser, [options] * 4, "fast", 500) == pytest.approx(100, abs=4)


def test_compilations_per_size_are_paid_one_by_one():
    """Four buckets with four compile keys: each needs its own savings."""
    chooser, costs = world(plain=2e-3, fast=1e-3)
    costs.compiling.quote("fast", "code", 0.1)
    options = [
        [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key=("code", bucket))]
        for bucket in range(4)
    ]
    assert calls_until_bought(chooser, options, "fast", 1000) == pytest.approx(400, abs=8)


def test_an_import_is_paid_by_everything_that_it_serves():
    """Two arms of one library, in two buckets, save 1 ms each: 200 ms are covered after 200 calls in total."""
    chooser, _ = world(plain=2e-3, first=1e-3, second=1e-3)
    options = [
        [Option("plain", "plain", 1000.0), Option(f"lib:{arm}", arm, 1000.0, startup=0.2)]
        for arm in ("first", "second")
    ]
    assert calls_until_bought(chooser, options, "lib:first", 1000) == pytest.approx(200, abs=4)


def test_a_gain_within_the_threshold_is_no_saving():
    """A gain of 5 % is not credited: the arm would not replace the incumbent."""
    chooser, costs = world(plain=1.05e-3, fast=1e-3)
    costs.compiling.quote("fast", "code", 1e-3)
    chooser.choose("slot", 0, [Option("plain", "plain", 1000.0)])
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code")]
    assert calls_until_bought(chooser, [options], "fast", 300) == 300


def test_in_all_at_most_about_twice_the_best_plan():
    """Whenever the calls end; the worst moment is just after buying."""
    price, slow, fast = 0.05, 1e-3, 1e-4
    chooser, costs = world(plain=slow, fast=fast)
    costs.compiling.quote("fast", "code", price)
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code")]
    spent, bought, worst = 0.0, False, 0.0
    for call in range(1, 300):
        choice = chooser.choose("slot", 0, options, explore=False)
        seconds = slow if choice.option.arm == "plain" else fast
        first = choice.option.arm == "fast" and not bought
        bought = bought or first
        spent += seconds + (price if first else 0.0)
        chooser.observe("slot", 0, choice.option, seconds + (price if first else 0.0), first=first)
        worst = max(worst, spent / min(call * slow, price + call * fast))
    assert bought
    assert worst < 2.1
