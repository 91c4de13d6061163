"""The rent-or-buy account: prices of compiling, savings, and when buying pays."""

from __future__ import annotations

import pytest

from hpfracc._config import get_settings
from hpfracc.engine.selection import knowledge
from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Chooser
from hpfracc.engine.selection.rent_or_buy import RentOrBuy, compile_account

KEY = ("op", "numba:direct@cpu", "host", "float64")


def test_what_was_bought_here_is_free_in_every_family():
    """Another start of the same kernel pays nothing."""
    account = RentOrBuy()
    account.buy(KEY, "code", 0.5)
    assert account.price(KEY, "code") == 0.0
    assert account.price(("op", "numba:direct@cpu", "device", "float64"), "code") == 0.0
    assert account.is_bought("code") and account.is_bought(None) and not account.is_bought("other")


def test_a_quoted_price_is_still_to_be_paid():
    """For example a compile time from wisdom."""
    account = RentOrBuy()
    account.quote(KEY, "code", 0.5, 16.0)
    assert account.price(KEY, "code") == 0.5


def test_a_new_item_costs_the_median_of_its_neighbours():
    """The first purchase, which includes the library's start, is not taken as typical."""
    account = RentOrBuy()
    for x, seconds in ((16.0, 0.350), (256.0, 0.001), (4096.0, 0.004), (65536.0, 0.003), (1e8, 0.9)):
        account.quote(KEY, x, seconds, x)
    assert account.price(KEY, "new", 64.0) == 0.004
    assert account.price(KEY, "new", 16384.0) == 0.003
    assert account.price(KEY, "new") == 0.004  # without its work: the median of all


@pytest.mark.parametrize(
    ("prior", "expected"), [((KEY, 2.0), 2.0), (("numba:*", 1.5), 1.5), (("jax:*", 1.5), 0.0), ((None, 0.0), 0.0)]
)
def test_without_quotes_the_prior_counts(prior: tuple[object, float], expected: float):
    """Of the family, or of a pattern of arm names; 0 without a prior."""
    account = RentOrBuy()
    account.set_prior(*prior)
    assert account.price(KEY, "code") == expected


def test_the_prior_of_a_family_precedes_a_pattern():
    """And quotes precede both."""
    account = RentOrBuy()
    account.set_prior("numba:*", 1.0)
    account.set_prior(KEY, 0.0)
    assert account.price(KEY, "code") == 0.0
    account.quote(KEY, "other", 3.0)
    assert account.price(KEY, "code") == 3.0


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


def test_a_purchase_without_a_time_says_nothing_of_others():
    """The item is free from then on; the family keeps its prior."""
    account = RentOrBuy()
    account.set_prior("family", 2.0)
    account.buy("family", "first")
    assert (account.price("family", "first"), account.price("family", "second")) == (0.0, 2.0)


def test_the_engine_and_everyone_else_share_one_account():
    """What a plan compiles is bought for all; a reset of the engine's knowledge forgets it."""
    settings = get_settings()
    assert knowledge.knowledge_for(settings).costs.compiling is compile_account
    compile_account.buy("family", "item", 0.5)
    assert knowledge.knowledge_for(settings).costs.compiling.is_bought("item")
    knowledge.reset()
    assert not compile_account.is_bought("item")


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


@pytest.mark.parametrize("timed", [True, False])
def test_compiled_once_the_saved_time_covers_it(timed: bool):
    """1 ms saved a call and 100 ms to compile: after 100 calls, timed or not."""
    chooser, costs = world(plain=2e-3, fast=1e-3)
    costs.compiling.quote("fast", "code", 0.1)
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code")]
    assert calls_until_bought(chooser, [options], "fast", 500, timed=timed) == pytest.approx(100, abs=2)


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


def test_importing_and_compiling_add_up():
    """Both must be covered."""
    chooser, costs = world(plain=2e-3, fast=1e-3)
    costs.compiling.quote("fast", "code", 0.1)
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code", startup=0.2)]
    assert calls_until_bought(chooser, [options], "fast", 1000) == pytest.approx(300, abs=4)


def test_a_gain_within_the_threshold_is_no_saving():
    """A gain of 5 % is not credited: the arm would not replace the incumbent."""
    chooser, costs = world(plain=1.05e-3, fast=1e-3)
    costs.compiling.quote("fast", "code", 1e-3)
    chooser.choose("slot", 0, [Option("plain", "plain", 1000.0)])
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code")]
    assert calls_until_bought(chooser, [options], "fast", 300) == 300


def test_a_single_call_that_saves_more_than_compiling_takes_pays_at_once():
    """One second against 0.1 s and a millisecond."""
    chooser, costs = world(plain=1.0, fast=1e-3)
    costs.compiling.quote("fast", "code", 0.1)
    options = [Option("plain", "plain", 1000.0), Option("fast", "fast", 1000.0, compile_key="code")]
    assert chooser.choose("slot", 0, options).option.arm == "fast"


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
