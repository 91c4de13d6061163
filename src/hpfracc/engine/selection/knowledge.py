"""The engine's knowledge: costs, transfers and failures, initialised from the packaged prior and the wisdom.

Arms that failed are not used for a while, then probed (a circuit breaker).

There is one object per wisdom folder, so usually one per process. It turns arms into options with predicted costs, and
measured times into samples, in memory and on disk.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from hpfracc._config import Settings
from hpfracc._interrupts import Guarded
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm
from hpfracc.engine.selection.costs import CostModel, Option, TransferModel
from hpfracc.engine.selection.policy import Chooser
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.engine.selection.request import PREPARED, CostKey, Request
from hpfracc.engine.selection.wisdom import STEM, Wisdom, continuing, shares_records, warn_once
from hpfracc.engine.selection.wisdom_records import Kind, Record
from hpfracc.errors import ConfigurationError, InvalidInputError
from hpfracc.profiling.recorder import shared as spans

_DEVICE_NUMBER = re.compile(r"(?<=@)(cuda):\d+")
_WORKERS = re.compile(r"x\d+$")


def prior_knots(operation: str, arm: Arm, start: str, dtype: str) -> list[tuple[float, float]]:
    """Points (work, seconds) for an arm by the prior; without any, those of another dtype, scaled by its bytes."""
    starts = load_prior()["knots"].get(operation, {}).get(general_name(arm), {})
    for other, points in sorted(starts.get(start, {}).items(), key=lambda pair: pair[0] != dtype):
        scale = 1.0 if other == dtype else np.dtype(dtype).itemsize / np.dtype(other).itemsize
        return [(x, seconds * scale) for x, seconds in points]
    return []


def general_name(arm: Arm) -> str:
    """The arm's name without the device's number and the number of workers, which differ between machines."""
    return _WORKERS.sub("x*", _DEVICE_NUMBER.sub(r"\1", arm.name))


@functools.cache
def load_prior() -> dict[str, Any]:
    """Knots, compile times and transfer rates measured elsewhere and packaged with the library.

    ``prior.json`` is created by ``benchmarks/make_prior.py`` from calibrations of the machines that it names. It must
    have the right shape of the curves and identify hopeless arms; a factor of two does not matter.
    """
    text = resources.files("hpfracc.engine.selection").joinpath("prior.json").read_text(encoding="utf-8")
    prior: dict[str, Any] = json.loads(text)
    return prior


logger = logging.getLogger("hpfracc.engine")

#: Seconds for which an arm is not used after its first failure; doubled by each further one, up to the longest.
_FIRST_REST, _LONGEST_REST = 1.0, 600.0
#: Seconds in which the byte ceiling of an out-of-memory error doubles, because free memory changes.
_FADE = 60.0
#: A ceiling that has grown by this factor is dropped.
_FORGOTTEN = 4.0


class _Trouble(NamedTuple):
    failures: int
    until: float
    error: str


class CircuitBreaker(Guarded):
    """Remembers failures, unsupported kinds of work, and byte ceilings. Thread-safe.

    Parameters
    ----------
    clock : callable
        A monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._troubles: dict[Hashable, _Trouble] = {}
        self._ceilings: dict[str, tuple[int, float]] = {}

    def allows(self, key: Hashable) -> str | None:
        """None if the arm may be used, otherwise the reason why not.

        After this time the arm is half-open: a success closes the breaker, a failure doubles the time.
        """
        trouble = self._troubles.get(key)
        if trouble is None:
            return None
        rest = trouble.until - self._clock()
        if rest <= 0.0:
            return None
        if rest == math.inf:
            return f"does not support this ({trouble.error})"
        times = "once" if trouble.failures == 1 else f"{trouble.failures} times"
        return f"failed {times}, last with {trouble.error}; tried again in {rest:.0f} s"

    def failure(self, key: Hashable, error: str) -> None:
        """Record a failure: the arm is not used, for longer each time. Failures of concurrent calls count as one."""
        with self._lock:
            before = self._troubles.get(key)
            if before is not None and before.until > self._clock():
                self._troubles[key] = before._replace(error=error)
                return
            failures = 1 if before is None else before.failures + 1
            rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (failures - 1))
            self._troubles[key] = _Trouble(failures, self._clock() + rest, error)

    def success(self, key: Hashable) -> None:
        """Record a success, which clears earlier failures."""
        if key in self._troubles:
            with self._lock:
                self._troubles.pop(key, None)

    def unsupported(self, key: Hashable, error: str) -> None:
        """Record that an arm does not support a kind of work, which does not change."""
        with self._lock:
            self._troubles[key] = _Trouble(1, math.inf, error)

    def exhausted(self, device: str, need: int) -> None:
        """Record that ``device`` ran out of memory at ``need`` bytes."""
        with self._lock:
            known = self.ceiling(device)
            self._ceilings[device] = (need if known is None else min(known, need), self._clock())

    def ceiling(self, device: str) -> int | None:
        """Bytes at which ``device`` is expected to run out of memory; grows with time, then None."""
        known = self._ceilings.get(device)
        if known is None:
            return None
        growth = 2.0 ** ((self._clock() - known[1]) / _FADE)
        return None if growth >= _FORGOTTEN else int(known[0] * growth)


#: A first call that exceeds the prediction by this factor, and by these seconds, is not explained by warming up.
_FAR_OFF, _MAX_WARMING = 4.0, 1.0


class Knowledge(Guarded):
    """Costs and failures of every arm, loaded from wisdom and saved to it. Thread-safe.

    Parameters
    ----------
    wisdom : Wisdom
        Storage of measured times.
    """

    def __init__(self, wisdom: Wisdom) -> None:
        super().__init__()
        self.wisdom = wisdom
        self.costs = CostModel(compile_account)
        self.chooser = Chooser(self.costs)
        self.transfers = TransferModel(load_prior()["transfers"])
        self.breaker = CircuitBreaker()
        self.fallbacks: Counter[tuple[str, str, str]] = Counter()
        self._primed: set[CostKey] = set()
        #: Keys whose knots were measured with the operands on the device: transfers must be added.
        self._without_transfer: set[CostKey] = set()
        self._stored: dict[tuple[str, str], list[Record]] = {}
        #: Ids of the records that were read, written or taken from other processes.
        self._ids: set[str] = set()
        for pattern, seconds in load_prior()["compile"].items():
            self.costs.compiling.set_prior(pattern, seconds)
        with continuing(self.wisdom.path, "nothing is known from it"):
            for record in self.wisdom.load():
                self._store(record)

    def _store(self, record: Record) -> None:
        self._ids.add(record.id)
        if record.kind != "transfer":
            self._stored.setdefault((record.operation, record.arm), []).append(record)
        elif record.fingerprint == _gpu_fingerprint(record.route or ""):
            self.transfers.observe(record.route or "", record.nbytes or 0, record.seconds)

    def records(self) -> list[Record]:
        """The records read at the start of this process or received since, without transfer times."""
        with self._lock:
            return [record for records in self._stored.values() for record in records]

    def learn_from(self, records: Iterable[Record]) -> int:
        """Add measurements of other processes to the wisdom; returns the number of new ones.

        Those of another machine, which have another fingerprint, are stored and have no effect here.
        """
        if self.wisdom.read_only or self.wisdom.path is None:
            return 0
        with self._lock:
            new = [record for record in records if record.id not in self._ids]
            for record in new:
                self._store(record)
            for key in self._primed:
                self._take(key, new)
        self.wisdom.append(new, own=False)
        return len(new)

    def option(self, request: Request, arm: Arm) -> Option:
        """The arm as an option, with its work, transfers and compile key."""
        key = request.cost_key(arm)
        if key not in self._primed:
            self._prime(request, arm, key)
        call, settings, transfer = request.call, request.settings, 0.0
        if not arm.on_host and request.placement.device == "cpu":
            transfer = self.transfers.estimate(f"host->{arm.device}", call.input_bytes)
            transfer += self.transfers.estimate(f"{arm.device}->host", call.output_bytes)
        return Option(
            arm=arm.name,
            key=key,
            x=request.primitive.work(call, arm.algorithm),
            transfer=transfer,
            extra=transfer if key in self._without_transfer else 0.0,
            # What is already compiled or imported differs from run to run.
            compile_key=None if settings.deterministic else request.compile_key(arm),
            startup=0.0 if settings.deterministic else registry.import_cost(arm.backend),
            watts=self.watts(call.operation, arm) if settings.objective == "energy" else None,
        )

    def _prime(self, request: Request, arm: Arm, key: CostKey) -> None:
        """Load the knowledge about a key before its first use: packaged knots, then times measured here."""
        with self._lock:
            if key in self._primed:
                return
            operation, start, dtype = request.call.operation, request.placement.start, request.call.dtype
            names = tuple(dict.fromkeys((operation, request.operation)))
            found = [prior_knots(name, arm, start, dtype) for name in reversed(names)]
            if not any(found) and start == "host" and not arm.on_host:
                found = [prior_knots(name, arm, "device", dtype) for name in reversed(names)]
                self._without_transfer.add(key)
            for x, seconds in next(filter(None, found), []):
                self.costs.add_knot(key, x, seconds, prior=True)
            if arm.spec.compiles == "never":
                self.costs.compiling.set_prior(key, 0.0)
            with continuing(self.wisdom.path, f"less is known of {arm.name}"):
                self._take(key, self._stored.get((request.operation, arm.name), ()))
            self._primed.add(key)

    def _take(self, key: CostKey, records: Iterable[Record]) -> None:
        """Learn what the records say about a key."""
        operation, arm, start, dtype = key
        fingerprint = _fingerprint(operation.removesuffix(PREPARED), arm)
        for record in records:
            if (record.operation, record.arm, record.fingerprint) != (operation, arm, fingerprint):
                continue
            if record.kind == "compile":
                self.costs.compiling.quote(key, (*key, record.id), record.seconds, record.x)
            elif (record.start, record.dtype) == (start, dtype) and record.x is not None:
                if record.kind == "knot":
                    self._without_transfer.discard(key)
                    self.costs.add_knot(key, record.x, record.seconds)
                elif record.kind == "sample" and record.bucket is not None:
                    self.costs.observe(key, record.bucket, record.x, record.seconds)

    def is_first(self, option: Option) -> bool:
        """Whether the next call of ``option`` is the first of its compilation in this process."""
        return not self.costs.compiling.is_bought(option.compile_key)

    def observe(self, request: Request, option: Option, seconds: float, *, first: bool, calls: int) -> None:
        """Learn from a timed call that stands for ``calls`` calls."""
        bucket = request.call.bucket
        if not first:
            self.chooser.observe(request.slot, bucket, option, seconds, first=False, calls=calls)
            self._keep(request, option, "sample", seconds)
            return
        run = self.costs.estimate(option.key, bucket, option.x, option.extra)
        self.chooser.observe(request.slot, bucket, option, seconds, first=True, calls=calls)
        arm = _find_arm(request.call.operation, option.arm)
        if arm is None or arm.spec.compiles != "never":
            self._keep(request, option, "compile", seconds if run.source == "none" else max(0.0, seconds - run.seconds))
        elif run.source != "none" and seconds > max(_FAR_OFF * run.seconds, run.seconds + _MAX_WARMING):
            # Nothing was compiled, so the next call will take as long: count it as a run. Otherwise the first call of
            # an arm that compiles nothing is mostly a run, and useless to other processes.
            self.costs.observe(option.key, bucket, option.x, seconds)
            self._keep(request, option, "sample", seconds)

    def tally(self, request: Request, option: Option, calls: int) -> None:
        """Count calls that could not be timed."""
        self.chooser.tally(request.slot, request.call.bucket, option, calls)

    def add_knot(self, request: Request, option: Option, seconds: float) -> None:
        """Learn a calibrated time."""
        with self._lock:
            key = cast(CostKey, option.key)
            self._without_transfer.discard(key)
            self.costs.add_knot(key, option.x, seconds)
        self._keep(request, option, "knot", seconds)

    def add_compile(self, request: Request, option: Option, seconds: float) -> None:
        """Learn a compile time measured in calibration, outside the user's calls."""
        self.costs.compiling.buy(option.key, option.compile_key, seconds, option.x)
        self._keep(request, option, "compile", seconds)

    def add_power(self, request: Request, option: Option, watts: float, seconds: float) -> None:
        """Learn the power of an arm's device, measured while it ran for ``seconds``."""
        record = self._keep(request, option, "power", seconds, x=watts)
        if record is not None:
            with self._lock:
                self._store(record)

    def watts(self, operation: str, arm: Arm) -> float | None:
        """Power of the device while the arm runs; that of other arms there if it was not measured; None if unknown."""
        with self._lock:
            found: list[float] = []
            for (name, other), records in self._stored.items():
                powers = [record for record in records if record.kind == "power"]
                known = _find_arm(name, other) if powers else None
                if known is None or known.device != arm.device:
                    continue
                newest = max(powers, key=lambda record: record.time)
                if newest.fingerprint == registry.fingerprint(name, known):
                    if (name, other) == (operation, arm.name):
                        return newest.x
                    found.append(newest.x or 0.0)
        return sum(found) / len(found) if found else None

    def observe_transfer(self, route: str, nbytes: int, seconds: float) -> None:
        """Learn from a copy."""
        self.transfers.observe(route, nbytes, seconds)
        fingerprint = _gpu_fingerprint(route)
        self._write_down("transfer", ("", "", "", ""), fingerprint, seconds=seconds, nbytes=nbytes, route=route)

    def _keep(self, request: Request, option: Option, kind: Kind, seconds: float, **more: Any) -> Record | None:
        fingerprint = _fingerprint(request.call.operation, option.arm)
        if fingerprint is None:
            return None
        facts = {"x": option.x, "bucket": request.call.bucket, "seconds": seconds} | more
        return self._write_down(kind, cast(CostKey, option.key), fingerprint, **facts)

    def _write_down(self, kind: Kind, key: CostKey, fingerprint: str, **facts: Any) -> Record | None:
        """Append a measurement to the wisdom, unless it exceeds the limits of a record (such as a very long name)."""
        named: dict[str, Any] = dict(zip(("operation", "arm", "start", "dtype"), key, strict=True))
        try:
            record = Record(kind=kind, fingerprint=fingerprint, **named, **facts)
        except InvalidInputError as error:
            logger.debug("a measurement is not kept: %s", error)
            return None
        if shares_records():
            self._ids.add(record.id)  # it may be received again from other processes
        self.wisdom.append([record])
        return record

    def note_fallback(self, operation: str, failed: str, taken: str, kind: str, error: BaseException) -> None:
        """Count a fallback, and log the first of its kind at INFO."""
        key = operation, failed, kind
        with self._lock:
            self.fallbacks[key] += 1
            first = self.fallbacks[key] == 1
        text = registry.describe_failure(error)
        what = {"operation": operation, "failed": failed, "taken": taken, "kind": kind}
        spans.event(f"{failed} failed", "fallback", what, text)
        if first:
            logger.info("%s: %s %s (%s); falling back to %s", operation, failed, kind, text, taken)


def _find_arm(operation: str, name: str) -> Arm | None:
    """The arm of that name, if it exists on this machine."""
    return next((known for known in registry.arms(operation) if known.name == name), None)


def _fingerprint(operation: str, name: str) -> str | None:
    """The fingerprint of the arm of that name, if it exists on this machine."""
    arm = _find_arm(operation, name)
    return None if arm is None else registry.fingerprint(operation, arm)


@functools.cache
def _gpu_fingerprint(route: str) -> str:
    """The fingerprint of the GPU at one end of a route such as ``"host->cuda:0"``."""
    source, _, target = route.partition("->")
    return hardware.fingerprint("transfer", target if source == "host" else source, "", 1, "")


def resolve_path(setting: str | None) -> Path | None:
    """The path of the setting ``wisdom`` (or ``HPFRACC_WISDOM``).

    Parameters
    ----------
    setting : str or None
        ``"off"``; a folder; a ``.json`` file, which is then the merged file, with the others in its folder; None for
        the user's cache folder.

    Returns
    -------
    Path or None
        An absolute path; None for ``"off"``, and for an account without a home folder.
    """
    text = (setting or "").strip()
    if not text:
        return _default()
    if text.lower() == "off":
        return None
    text = os.path.expanduser(text)
    if text.startswith("~"):
        raise ConfigurationError(f"wisdom={setting!r}: the home folder is unknown; write the full path")
    with contextlib.suppress(UnicodeEncodeError):
        if b"\0" not in os.fsencode(text):
            return Path(text).absolute()
    raise ConfigurationError(f"wisdom={setting!r} has characters that are invalid in a path; name another folder")


def _default() -> Path | None:
    from platformdirs import user_cache_path  # takes 20 ms, and only the default needs it

    with contextlib.suppress(RuntimeError):  # later versions signal a missing home folder in this way
        path = user_cache_path("hpfracc") / STEM
        if not str(path).startswith("~"):
            return path.absolute()
    words = "this account has no home folder, so what hpfracc learns is not stored; set HPFRACC_WISDOM to a folder "
    warn_once("homeless", "", f"{words}that can be written, or to 'off'")
    return None


_guard = Guarded()
#: The knowledge of this process by wisdom folder, and by the setting as written: resolving it takes longer than a
#: decision.
_known: dict[tuple[Path | None, bool], Knowledge] = {}
_by_setting: dict[tuple[str | None, bool], Knowledge] = {}


def knowledge_for(settings: Settings) -> Knowledge:
    """The knowledge for these settings. Deterministic runs have a separate one, which never changes."""
    key = settings.wisdom, settings.deterministic
    found = _by_setting.get(key)
    if found is None:
        with _guard._lock:
            place = resolve_path(settings.wisdom), settings.deterministic
            if place not in _known:
                _known[place] = Knowledge(Wisdom(place[0], read_only=settings.deterministic))
            found = _by_setting[key] = _known[place]
    return found


def reset() -> None:
    """Discard everything learned in this process; files on disk are kept."""
    with _guard._lock:
        _known.clear()
        _by_setting.clear()
    compile_account.clear()
