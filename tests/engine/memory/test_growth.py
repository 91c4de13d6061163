"""A leak is found and a warm-up is not, under the noise of ordinary work."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpfracc.engine.memory.host import find_growth

MB = 1e6


def series(shape: object, seconds: int = 300, noise: float = 3.0, seed: int = 0) -> list[tuple[float, float]]:
    """Readings once a second of ``shape(t)`` in MB, with temporaries that only ever add."""
    random = np.random.default_rng(seed)
    times = np.arange(float(seconds))
    spikes = random.exponential(noise, seconds) + 80 * (random.random(seconds) < 0.2)
    values = np.array([shape(t) for t in times]) + spikes  # type: ignore[operator]
    return list(zip(times.tolist(), (values * MB).tolist(), strict=True))


LEAKS = {
    "1 MB a second": lambda t: 500 + t,
    "after a warm-up": lambda t: 500 + 400 * (1 - math.exp(-t / 15)) + t,
    "in steps of 20 MB": lambda t: 500 + 20 * (t // 20),
    "100 kB a second": lambda t: 500 + 0.1 * t,
    "that speeds up": lambda t: 500 + t * t / 300,
}
SOUND = {
    "level": lambda t: 800,
    "a warm-up of a minute": lambda t: 200 + 900 * (1 - math.exp(-t / 20)),
    "a slow warm-up": lambda t: 200 + 900 * (1 - math.exp(-t / 70)),
    "a cache that fills and is full": lambda t: 300 + min(5 * t, 600),
    "one large allocation": lambda t: 300 + (700 if t > 150 else 0),
    "a saw": lambda t: 300 + (t % 30) * 10,
    "falling": lambda t: 900 - t,
    "10 kB a second": lambda t: 500 + 0.01 * t,
}


@pytest.mark.parametrize("name", LEAKS)
@pytest.mark.parametrize("seed", range(3))
def test_a_leak_is_called_one(name: str, seed: int) -> None:
    """Steady growth, also behind a warm-up and under temporaries of 80 MB."""
    found = find_growth(series(LEAKS[name], seed=seed))
    assert found.is_leak, found
    if name == "1 MB a second":
        assert found.bytes_per_second == pytest.approx(MB, rel=0.1)


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("seed", range(3))
def test_what_settles_is_no_leak(name: str, seed: int) -> None:
    """Warm-ups, caches, single allocations and saw teeth."""
    assert not find_growth(series(SOUND[name], seed=seed)).is_leak
