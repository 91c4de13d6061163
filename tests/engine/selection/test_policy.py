"""The policy, one property a test, on a simulated workload."""

from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Chooser
from hpfracc.errors import InvalidInputError

BUCKET = (0, 10)


def option(arm: str, x: float = 1000.0, **more: object) -> Option:
    return Option(arm=arm, key=("op", arm, "host", "float64"), x=x, **more)  # type: ignore[arg-type]


def play(
    chooser: Chooser, options: list[Option], times: dict[str, Callable[[int], float]], calls: int, **how: object
) -> list[str]:
    """The arm of each of ``calls`` calls, made as the engine makes them: choose, run, report."""
    taken: list[str] = []
    compiled: set[object] = set()
    while len(taken) < calls:
        choice = chooser.choose("slot", BUCKET, options, **how)  # type: ignore[arg-type]
        arm = choice.option.arm
        first = choice.option.compile_key is not None and choice.option.compile_key not in compiled
        compiled.add(choice.option.compile_key)
        repeats = min(choice.review_after + 1, calls - len(taken))
        seconds = times[arm](len(taken)) + (times["compile " + arm](0) if first else 0.0)
        chooser.observe("slot", BUCKET, choice.option, seconds, first=first, calls=repeats)
        taken += [arm] * repeats
    return taken


def steady(seconds: float) -> Callable[[int], float]:
    noise = itertools.cycle([1.0, 1.02, 0.99, 1.05, 1.01])
    return lambda _: seconds * next(noise)


def known(*knots: tuple[str, float]) -> tuple[Chooser, list[Option]]:
    costs = CostModel()
    options = []
    for arm, seconds in knots:
        made = option(arm)
        costs.add_knot(made.key, made.x, seconds)
        options.append(made)
    return Chooser(costs), options


def test_interpolates_between_knots_in_the_logarithm() -> None:
    """A power law is exact between two knots, and extrapolated with a bounded slope."""
    costs = CostModel()
    for x in (1e2, 1e4, 1e6):
        costs.add_knot("key", x, 1e-9 * x**1.1)
    for x in (1e3, 1e5):
        assert costs.estimate("key", BUCKET, x).seconds == pytest.approx(1e-9 * x**1.1, rel=1e-6)
    beyond = costs.estimate("key", BUCKET, 1e8).seconds
    assert 1e-9 * 1e8**0.9 < beyond < 1e-9 * 1e8**1.4
    assert costs.estimate("key", BUCKET, 10.0).seconds > 0.0
    assert math.isnan(costs.estimate("unknown", BUCKET, 1.0).seconds)


def test_samples_correct_the_knots_and_outliers_do_not() -> None:
    """Measured times outweigh calibration; one outlier in five, three times as long, does not count."""
    costs = CostModel()
    costs.add_knot("key", 1000.0, 1e-3)
    for number in range(32):
        costs.observe("key", BUCKET, 1000.0, 6e-3 if number % 5 == 4 else 2e-3)
    found = costs.estimate("key", BUCKET, 1000.0)
    assert found.source == "samples" and found.samples == 32
    assert found.seconds == pytest.approx(2e-3, rel=0.15)
    assert found.low <= found.seconds <= found.high


def test_an_intermittent_cost_counts() -> None:
    """The mean counts where it stays far above the typical time."""
    costs = CostModel()
    for number in range(32):
        costs.observe("key", BUCKET, 1000.0, 1e-3 if number % 2 else 2e-2)
    assert costs.estimate("key", BUCKET, 1000.0).seconds > 5e-3


def test_the_incumbent_stays_within_the_threshold() -> None:
    """An arm that is 5 % better does not replace it; one that is twice as fast does."""
    chooser, options = known(("slow", 2e-3), ("fast", 1e-3))
    assert chooser.choose("slot", BUCKET, options).option.arm == "fast"
    chooser, options = known(("first", 1.00e-3))
    play(chooser, options, {"first": steady(1e-3)}, 20)
    near = option("near")
    chooser.costs.add_knot(near.key, near.x, 0.95e-3)
    assert chooser.choose("slot", BUCKET, [*options, near], explore=False).option.arm == "first"
    better = option("better")
    chooser.costs.add_knot(better.key, better.x, 0.5e-3)
    assert chooser.choose("slot", BUCKET, [*options, near, better], explore=False).option.arm == "better"


def test_compiling_is_paid_once_it_would_have_paid_for_itself() -> None:
    """Ski rental: not before the saved time reaches the price, but soon after; at most about twice the best."""
    costs = CostModel()
    plain, compiled = option("plain"), option("compiled", compile_key="compiled")
    costs.add_knot(plain.key, plain.x, 1e-3)
    costs.add_knot(compiled.key, compiled.x, 1e-4)
    costs.compiling.quote(compiled.key, "compiled", 0.5)
    chooser = Chooser(costs)
    times = {"plain": steady(1e-3), "compiled": steady(1e-4), "compile compiled": steady(0.5)}
    taken = play(chooser, [plain, compiled], times, 3000)
    first = taken.index("compiled")
    assert 400 <= first <= 800  # 0.5 s / 0.9 ms = 556 calls
    assert taken[-1] == "compiled"


def test_first_calls_are_never_run_times() -> None:
    """The half second of compiling is recorded as compile time."""
    costs = CostModel()
    made = option("arm", compile_key="code")
    chooser = Chooser(costs)
    chooser.observe("slot", BUCKET, made, 0.5, first=True)
    chooser.observe("slot", BUCKET, made, 1e-3)
    assert costs.estimate(made.key, BUCKET, made.x).seconds == pytest.approx(1e-3, rel=0.01)
    assert costs.compiling.price(made.key, "code") == 0.0
    assert costs.compiling.price(made.key, "other code") == pytest.approx(0.5, rel=0.01)


def test_exploration_finds_what_calibration_got_wrong_and_costs_little() -> None:
    """The knots favour the slower arm; the cost of finding out is bounded."""
    chooser, options = known(("favourite", 1.0e-3), ("underrated", 1.3e-3), ("hopeless", 1.0))
    times = {"favourite": steady(1.0e-3), "underrated": steady(0.4e-3), "hopeless": steady(1.0)}
    taken = play(chooser, options, times, 4000)
    assert taken[-1] == "underrated"
    assert Counter(taken)["hopeless"] == 0
    chooser, options = known(("favourite", 1.0e-3), ("other", 1.3e-3))
    times = {"favourite": steady(1.0e-3), "other": steady(3.0e-3)}
    taken = play(chooser, options, times, 4000)
    extra = Counter(taken)["other"] * 2.0e-3
    assert extra <= 0.015 * 4000 * 1.0e-3


@pytest.mark.parametrize("how", [{"explore": False}, {"budget": 0.0}])
def test_no_exploration_where_it_is_switched_off(how: dict[str, object]) -> None:
    """Only the predicted best arm runs."""
    chooser, options = known(("favourite", 1.0e-3), ("underrated", 1.3e-3))
    times = {"favourite": steady(1.0e-3), "underrated": steady(0.4e-3)}
    assert set(play(chooser, options, times, 2000, **how)) == {"favourite"}


def test_frozen_choices_change_nothing() -> None:
    """The same choice every time, and nothing is remembered."""
    chooser, options = known(("a", 1.0e-3), ("b", 0.9e-3))
    answers = {chooser.choose("slot", BUCKET, options, frozen=True).option.arm for _ in range(50)}
    assert answers == {"b"}
    assert chooser.choose("slot", BUCKET, options, explore=False).option.arm == "b"


def test_a_frozen_choice_is_that_of_the_next_call() -> None:
    """Also where that call explores; asking does not postpone it."""
    chooser, options = known(("favourite", 1.0e-3), ("underrated", 1.3e-3))
    explored = []
    for _ in range(300):
        told = [chooser.choose("slot", BUCKET, options, frozen=True) for _ in range(2)]
        choice = chooser.choose("slot", BUCKET, options)
        assert told == [choice, choice]
        explored.append(choice.explored)
        chooser.observe("slot", BUCKET, choice.option, 1.0e-3 if choice.option.arm == "favourite" else 2.0e-3)
    assert 0 < sum(explored) < 20


def test_drift_is_noticed() -> None:
    """The incumbent becomes five times slower: the other arm takes over within a few reviews."""
    chooser, options = known(("early", 1.0e-3), ("late", 2.0e-3))
    times = {"early": lambda n: 1.0e-3 if n < 3000 else 5.0e-3, "late": steady(2.0e-3)}
    taken = play(chooser, options, times, 8000)
    assert Counter(taken[2000:3000])["early"] > 950
    assert Counter(taken[4500:])["late"] > 0.95 * len(taken[4500:])


def test_settled_choices_are_rarely_reviewed() -> None:
    """One call in 16 to 256 is timed once the bucket has settled."""
    chooser, options = known(("a", 1.0e-3), ("b", 3.0e-3))
    play(chooser, options, {"a": steady(1.0e-3), "b": steady(3.0e-3)}, 1000)
    assert chooser.choose("slot", BUCKET, options, explore=False).review_after >= 15


def test_nothing_to_choose_from() -> None:
    """No option is an error; without knowledge the first one is chosen."""
    chooser = Chooser(CostModel())
    with pytest.raises(InvalidInputError, match="no option"):
        chooser.choose("slot", BUCKET, [])
    assert chooser.choose("slot", BUCKET, [option("a"), option("b")], explore=False).option.arm == "a"
    with pytest.raises(InvalidInputError, match="seconds=nan"):
        chooser.costs.observe("key", BUCKET, 1.0, math.nan)


def test_eight_threads_observe_at_once() -> None:
    """No sample is lost until the ring is full."""
    chooser, options = known(("a", 1.0e-3), ("b", 2.0e-3))
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(300):
                choice = chooser.choose("slot", (0, number), options)
                chooser.observe("slot", (0, number), choice.option, 1e-3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number % 3,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert chooser.costs.estimate(options[0].key, (0, 0), options[0].x).samples == 32
