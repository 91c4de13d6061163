"""Work areas are asked from a cuFFT that is there, of large transforms alone; no failure of it comes through."""

# ruff: noqa: N802 -- the functions that stand in have the names of those they stand in for

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest

from hpfracc.engine.backends import cufft
from hpfracc.engine.primitives.base import Transform

MAPS = """7f00-7f01 r--p 00000000 08:01 42   /usr/lib/libcufftw.so.12
7f01-7f02 r-xp 00000000 08:01 43   /opt/my env/lib/libcufft.so.12
7f02-7f03 r-xp 00000000 08:01 44   /usr/lib/libcudart.so.13
7f03-7f04 rw-p 00000000 00:00 0    [heap]
7f04-7f05 r-xp 00000000 08:01 45   /usr/lib/libcuda.so.580.1
"""
LARGE = ("Z2Z", (2_000_000,), 3)
LARGE_TRANSFORM = Transform((2_000_000,), 3, "complex128")


class Driver:
    """Stands in for the driver: one context in this thread, or one of device 0, or none."""

    def __init__(self, current: int = 1, primary: bool = False, status: int = 0) -> None:
        self.current, self.primary, self.status = current, primary, status

    def cuCtxGetCurrent(self, context: Any) -> int:
        context._obj.value = self.current or None
        return self.status

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:
        active._obj.value = int(self.primary and device == 0)
        return 0


class Library:
    """Stands in for cuFFT: a work area of 5 bytes a point, and statuses that may say failure."""

    def __init__(self, **statuses: int) -> None:
        self.statuses, self.plans, self.live, self.layouts = statuses, 0, set[int](), list[Any]()

    def cufftCreate(self, plan: Any) -> int:
        self.plans += 1
        plan._obj.value = self.plans
        self.live.add(self.plans)
        return self.statuses.get("create", 0)

    def cufftSetAutoAllocation(self, plan: Any, allocate: int) -> int:
        assert allocate == 0
        return self.statuses.get("allocation", 0)

    def cufftXtMakePlanMany(self, plan: Any, rank: int, points: Any, *rest: Any) -> int:
        embed, step, distance, into, embed_out, _, _, out, batch, size, work = rest
        assert isinstance(batch, ctypes.c_longlong) and rank == len(points) and (embed is None) == (embed_out is None)
        self.layouts.append((step.value, distance.value, into, out, work))
        size._obj.value = 5 * batch.value
        for n in points:
            size._obj.value *= n
        return self.statuses.get("plan", 0)

    def cufftDestroy(self, plan: Any) -> int:
        self.live.remove(plan.value)
        return 0


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process of its own, which has loaded these libraries."""

    def to(library: Any, driver: Any) -> cufft.Cufft:
        fresh, found = cufft.Cufft(), {"libcufft": library, "libcuda": driver}
        monkeypatch.setattr(fresh, "_loaded", found.get)
        monkeypatch.setattr(cufft, "_CUFFT", fresh)
        return fresh

    return to


def test_asks_once_and_destroys_the_plan(connect: Any) -> None:
    """The answer is kept, and nothing is left behind."""
    library = Library()
    connect(library, Driver())
    assert cufft.work_area(*LARGE) == cufft.work_area(*LARGE) == cufft.work_bytes(LARGE_TRANSFORM) == 5 * 6_000_000
    assert library.plans == 1 and not library.live
    assert library.layouts == [(1, 0, 5, 5, 5)]


def test_small_ones_are_not_asked(connect: Any) -> None:
    """Nor are empty ones, of which there are no plans."""
    library = Library()
    connect(library, Driver())
    assert cufft.work_bytes(Transform((1000,), 10, "float32")) == 10 * 501 * 8
    assert cufft.work_bytes(Transform((0,), 10, "complex128")) == 0
    assert cufft.work_bytes(Transform((10,), 0, "complex128")) == 0
    assert library.plans == 0


@pytest.mark.parametrize("status", ["create", "allocation", "plan"])
def test_an_error_is_no_answer(connect: Any, status: str) -> None:
    """The rule answers instead, and the plan, if there is one, is destroyed; the next one is asked again."""
    library = Library(**{status: 2})
    connect(library, Driver())
    assert cufft.work_area(*LARGE) is None
    assert cufft.work_bytes(LARGE_TRANSFORM) == 6_000_000 * 16
    assert library.plans == 2 and (status == "create" or not library.live)
    library.statuses.clear()
    assert cufft.work_area(*LARGE) == 5 * 6_000_000


def test_what_a_library_raises_is_no_answer(connect: Any) -> None:
    """A library without the functions, or with others of that name."""
    connect(object(), Driver())
    assert cufft.work_area(*LARGE) is None
    connect(Library(), object())
    assert cufft.work_area(*LARGE) is None


@pytest.mark.parametrize(
    ("library", "driver"),
    [
        (None, Driver()),
        (Library(), None),
        (Library(), Driver(current=0)),  # a thread without a context, on a GPU that is not in use
        (Library(), Driver(status=3)),  # a driver that was never initialised, as in a forked child
    ],
)
def test_no_context_is_created(connect: Any, library: Any, driver: Any) -> None:
    """Where a plan would create one there is none, and no answer."""
    connect(library, driver)
    assert cufft.work_area(*LARGE) is None
    assert library is None or library.plans == 0


def test_a_thread_without_context_has_that_of_device_0(connect: Any) -> None:
    """If it is in use already."""
    connect(Library(), Driver(current=0, primary=True))
    assert cufft.work_area(*LARGE) is not None


def test_answers_are_bounded(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, and one that was asked for again is not the oldest."""
    monkeypatch.setattr(cufft, "_MAX_KEPT", 3)
    library = Library()
    fresh = connect(library, Driver())
    for batch in (1, 2, 3, 1, 4):
        cufft.work_area("Z2Z", (10,), batch)
    assert [key[2] for key in fresh._kept] == [3, 1, 4] and library.plans == 4


def test_threads_share_the_answers(connect: Any) -> None:
    """Each question is asked once, from however many threads."""
    library = Library()
    connect(library, Driver())
    found: list[int | None] = []

    def ask() -> None:
        found.extend(cufft.work_area("Z2Z", (10,), batch) for batch in range(1, 51))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(4 * [50 * batch for batch in range(1, 51)]) and library.plans == 50


def test_libraries_are_those_that_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of the file, whatever its folder; a miss is remembered until another module is there."""
    assert cufft._path_in(MAPS, "libcufft") == "/opt/my env/lib/libcufft.so.12"
    assert cufft._path_in(MAPS, "libcuda") == "/usr/lib/libcuda.so.580.1"
    assert cufft._path_in(MAPS.replace("libcufft.so.12", "libcufft-1a2b.so"), "libcufft") is not None
    assert cufft._path_in("", "libcufft") is None
    looks = []
    monkeypatch.setattr(cufft, "_maps", lambda: looks.append(1) or "")
    fresh = cufft.Cufft()
    assert fresh._loaded("libcufft") is None and fresh._loaded("libcufft") is None
    assert len(looks) == 1
    monkeypatch.setitem(cufft.sys.modules, "a module that was not there", cufft)
    assert fresh._loaded("libcufft") is None
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("kind", "lengths", "batch", "mib"),
    [  # as cuFFT 12 said on an H200
        ("Z2Z", (1999,), 4000, 0.0),
        ("C2C", (4096,), 3000, 0.0),
        ("C2C", (30_000,), 300, 68.7),
        ("Z2Z", (1_041_666,), 3, 192.0),
        ("D2Z", (1_041_666,), 3, 119.8),
        ("R2C", (1_048_576,), 8, 32.0),
        ("R2C", (2048,), 6250, 0.0),
        ("D2Z", (1800,), 8750, 120.2),
        ("C2R", (1009,), 8000, 61.6),
        ("D2Z", (2500, 2500), 1, 47.7),
        ("Z2D", (64, 64, 64), 90, 0.0),
    ],
)
def test_the_rule(kind: str, lengths: tuple[int, ...], batch: int, mib: float) -> None:
    """What most lengths take, where cuFFT cannot be asked."""
    assert cufft._by_rule(kind, lengths, batch) / 2**20 == pytest.approx(mib, rel=0.01)
