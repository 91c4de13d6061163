"""The circuit breaker: arms that failed rest, longer each time, and are probed; byte ceilings fade."""

from __future__ import annotations

import pytest

from hpfracc.engine.selection.knowledge import CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def test_a_failure_opens_it_and_time_closes_it(breaker: CircuitBreaker, clock: Clock) -> None:
    """The reason names the error and the time to the next probe; other arms are not affected."""
    assert breaker.allows("arm") is None
    breaker.failure("arm", "RuntimeError: gone")
    words = breaker.allows("arm")
    assert words is not None and "RuntimeError: gone" in words and "tried again in" in words
    assert breaker.allows("other") is None
    clock.now += 1000.0
    assert breaker.allows("arm") is None


def test_unsupported_work_stays_masked(breaker: CircuitBreaker, clock: Clock) -> None:
    """Only work of that kind."""
    breaker.unsupported(("fft", "arm", "complex64"), "NotImplementedError")
    clock.now += 1e9
    assert "NotImplementedError" in str(breaker.allows(("fft", "arm", "complex64")))
    assert breaker.allows(("fft", "arm", "float64")) is None


def test_the_byte_ceiling_fades(breaker: CircuitBreaker, clock: Clock) -> None:
    """It starts at the size that failed, rises with time, and is dropped."""
    assert breaker.ceiling("cuda:0") is None
    breaker.exhausted("cuda:0", 1000)
    assert breaker.ceiling("cuda:0") == 1000
    breaker.exhausted("cuda:0", 5000)
    assert breaker.ceiling("cuda:0") == 1000
    clock.now += 60.0
    risen = breaker.ceiling("cuda:0")
    assert risen is not None and risen > 1500
    clock.now += 600.0
    assert breaker.ceiling("cuda:0") is None
