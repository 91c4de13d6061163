"""Arms that failed rest, longer each time, and get another chance; memory's ceiling fades."""

from __future__ import annotations

import pytest

from hpfracc.engine.selection.breaker import CircuitBreaker


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
    """The sentence names the error and when the arm is tried again; other arms are untouched."""
    assert breaker.allows("arm") is None
    breaker.failure("arm", "RuntimeError: gone")
    words = breaker.allows("arm")
    assert words is not None and "RuntimeError: gone" in words and "tried again in" in words
    assert breaker.allows("other") is None
    clock.now += 1000.0
    assert breaker.allows("arm") is None


def test_each_failed_probe_doubles_the_rest(breaker: CircuitBreaker, clock: Clock) -> None:
    """Until a bound; one success wipes the slate."""
    rests = []
    for _ in range(14):
        breaker.failure("arm", "x")
        begin = clock.now
        while breaker.allows("arm") is not None:
            clock.now += 0.5
        rests.append(clock.now - begin)
    assert rests[:4] == sorted(rests[:4]) and rests[3] == pytest.approx(8 * rests[0], abs=1.0)
    assert rests[-1] == rests[-2] <= 700.0
    breaker.success("arm")
    breaker.failure("arm", "x")
    clock.now += rests[0]
    assert breaker.allows("arm") is None


def test_unsupported_work_is_masked_for_good(breaker: CircuitBreaker, clock: Clock) -> None:
    """Of that kind only."""
    breaker.unsupported(("fft", "arm", "complex64"), "NotImplementedError")
    clock.now += 1e9
    assert "NotImplementedError" in str(breaker.masked(("fft", "arm", "complex64")))
    assert breaker.masked(("fft", "arm", "float64")) is None


def test_the_byte_ceiling_fades(breaker: CircuitBreaker, clock: Clock) -> None:
    """Just after running out it stands where it happened; then it rises, and is forgotten."""
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


def test_clear(breaker: CircuitBreaker) -> None:
    """Nothing is remembered."""
    breaker.failure("a", "x")
    breaker.unsupported("b", "x")
    breaker.exhausted("c", 1)
    breaker.clear()
    assert breaker.allows("a") is None
    assert breaker.masked("b") is None
    assert breaker.ceiling("c") is None
