"""Error estimates hold on random problems with known truth: a few in `make test`, 200 a family in the slow set."""

import pytest

from benchmarks._trust.campaign import Outcome, Report, run
from benchmarks.trust import families

FAMILIES = families()


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_is_hidden_in_a_few_problems(name):
    """No success hides an error 100 times the tolerance, and nothing is missing without a reason."""
    report = run(name, FAMILIES[name], range(1))
    assert [each for each in report.outcomes if each.is_hidden or each.is_silent] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_estimates_hold(name):
    """At most three times the estimate in 99 % of 200 problems, and nothing hidden."""
    assert run(name, FAMILIES[name], range(200)).faults() == []


def test_the_bars_see_what_they_should():
    """A report names hidden errors, estimates that are too small, and missing reasons."""
    good = Outcome("good", error=1e-6, estimate=1e-6, floor=1e-15, tolerance=1e-5)
    assert Report("family", [good]).faults() == []
    assert "hidden" in Report("family", [Outcome("p", 1e-2, 1e-2, 1e-15, tolerance=1e-5)]).faults()[0]
    assert "hidden" in Report("family", [Outcome("p", float("nan"), 1e-2, 1e-15)]).faults()[0]
    assert "within" in Report("family", [good, Outcome("p", 1e-2, 1e-5, 1e-15)]).faults()[0]
    assert "no reason" in Report("family", [Outcome("p", 1e-2, float("nan"), 1e-15)]).faults()[0]
    assert Report("family", [good, Outcome("p", 1e-2, float("nan"), 1e-15, reason="infinite at t0")]).faults() == []
