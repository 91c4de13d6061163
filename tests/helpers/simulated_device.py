"""A device that exists only as a queue: it works when it is told how long, and its clock may run fast or slow."""

from __future__ import annotations

from typing import Any


class Time:
    """Time that passes when it is told to: tests of times then hold on any machine."""

    def __init__(self) -> None:
        self.now = 1_000_000_000

    def perf_counter_ns(self) -> int:
        self.now += 100  # to look takes a moment, so that no two looks are alike
        return self.now

    def perf_counter(self) -> float:
        return self.perf_counter_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


class Mark:
    """A place in the queue: passed once the work before it is done."""

    def __init__(self, at: float) -> None:
        self.at = at


class SimulatedClock:
    """A device with one queue: ``work(seconds)`` enqueues. Its clock runs ``rate`` times as fast as the host's."""

    def __init__(
        self, time: Time, name: str = "simulated", *, marks: bool = True, rate: float = 1.0, device: str = "sim:0"
    ) -> None:
        self.time = time
        self.name = name
        self.marks = marks
        self.rate = rate
        self.device = device
        self.used = True
        self.done_at = 0.0
        self.waits = 0
        self.allocated = 0
        self.peak = 0
        self.made = 0
        self.pool: list[Mark] = []

    def work(self, seconds: float) -> None:
        self.done_at = max(self.done_at, self.time.perf_counter()) + seconds

    def allocate(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

    def in_use(self) -> bool:
        return self.used

    def resolve(self, device: str) -> str | None:
        return self.device if device in ("gpu", self.device) else None

    def mark(self, device: str) -> Any:
        if not self.marks:
            return None
        if self.pool:
            mark = self.pool.pop()
        else:
            mark = Mark(0.0)
            self.made += 1
        mark.at = max(self.done_at, self.time.perf_counter())
        return mark

    def mark_end(self, device: str) -> tuple[bool, Any]:
        return self.time.perf_counter() >= self.done_at, self.mark(device)

    def has_passed(self, mark: Mark) -> bool:
        return self.time.perf_counter() >= mark.at

    def seconds(self, first: Mark, second: Mark) -> float:
        assert self.has_passed(first) and self.has_passed(second)
        return (second.at - first.at) * self.rate

    def release(self, device: str, mark: Mark) -> None:
        self.pool.append(mark)

    def synchronize(self, device: str) -> None:
        self.waits += 1
        self.time.sleep(max(0.0, self.done_at - self.time.perf_counter()))

    def wait(self, value: Any) -> bool:
        if value != "array":
            return False
        self.synchronize(self.device)
        return True

    def memory(self, device: str) -> tuple[int, int | None]:
        return self.allocated, self.peak
