"""What a version offered, later ones offer too: every public name is there, every call that bound still binds."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import public_api

#: Made by ``benchmarks/make_api_record.py`` from a checkout of that version.
RECORDS = {path.stem.removeprefix("api-"): path for path in (Path(__file__).parent / "data").glob("api-*.json")}


#: Names of a version that later ones do not have, for the reason given.
REMOVED = {
    "hpfracc.solvers.ode.TensorExplicitRectangle": "ExplicitRectangle takes tensors",
    "hpfracc.solvers.ode.TensorImplicitRectangle": "ImplicitRectangle takes tensors",
    "hpfracc.solvers.ode.TensorImplicitTrapezoid": "ImplicitTrapezoid takes tensors",
    "hpfracc.solvers.ode.TensorPECE": "PECE takes tensors",
}


@pytest.fixture(scope="module")
def offered() -> dict[str, dict[str, Any]]:
    """Every public name of this version, as :func:`public_api.describe` tells it."""
    return {path: public_api.describe(value) for path, value in public_api.public_objects().items()}


@pytest.fixture(params=sorted({"0.1.0", *RECORDS}))
def record(request: pytest.FixtureRequest) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(RECORDS[request.param].read_text(encoding="utf-8"))
    for part in ("names", "calls"):
        told[part] = {path: value for path, value in told[part].items() if path not in REMOVED}
    return told


def losses(before: dict[str, Any], after: dict[str, Any], path: str) -> list[str]:
    """What ``after`` lacks of one name as ``before`` described it, as sentences."""
    found = []
    pairs = {path: (before["signature"], after["signature"])}
    for name, spelled in before.get("members", {}).items():
        if name not in after.get("members", {}):
            found.append(f"{path}.{name} is gone")
        else:
            pairs[f"{path}.{name}"] = (spelled, after["members"][name])
    for name, (old, new) in pairs.items():
        if old is not None and new is None:
            found.append(f"{name}{old} can no longer be called, or hides its signature")
        elif old is not None and new is not None:
            signatures = public_api.read_signature(old), public_api.read_signature(new)
            found += [f"{name}{problem}" for problem in public_api.broken_calls(*signatures)]
    return found


def test_every_public_name_is_there_and_takes_what_it_took(record: dict[str, Any], offered: dict[str, dict[str, Any]]):
    """Names, methods, attributes, parameters, their order and their defaults."""
    missing = sorted(record["names"].keys() - offered.keys())
    assert missing == []
    problems = [problem for path, before in record["names"].items() for problem in losses(before, offered[path], path)]
    assert problems == []


def test_results_have_the_attributes_they_had(record: dict[str, Any]):
    """Decisions, explanations and records, whose classes have no public path."""
    now = {path: public_api.describe(value) for path, value in public_api.returned_objects().items()}
    assert [problem for path, told in record["results"].items() for problem in losses(told, now[path], path)] == []


def test_every_recorded_call_still_binds(record: dict[str, Any], offered: dict[str, dict[str, Any]]):
    """Every spelling of a call in the README, the documentation, the examples and the tests of that version."""
    broken = []
    for path, calls in record["calls"].items():
        spelled = public_api.find_spelled(offered, path)
        signature = None if spelled is None else public_api.read_signature(spelled)
        broken += [
            f"{path} with {count} positional arguments and {', '.join(keywords) or 'no keyword'}"
            for count, keywords in calls
            if signature is None or not public_api.binds(signature, (count, tuple(keywords)))
        ]
    assert broken == []


def _old(a, b=1, /, c=2, *rest, d, e=None, **more): ...


def _keywords(x, y=1, *, z=2): ...


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        (_keywords, lambda x, *, z=2: ..., "(x, y)"),
        (_keywords, lambda y, x=1, *, z=2: ..., "stands elsewhere"),
        (_keywords, lambda x, y=1, *, z: ..., "missing a required"),
        (_keywords, lambda x, y=1, *, z=3: ..., "z was 2 where it was not given, and is 3"),
        (_keywords, lambda x, y=1, more=None, *, z=2, further=None: ..., None),
        (_old, lambda a, b=1, /, c=2, *, d, e=None, **more: ..., "too many positional"),
        (_old, lambda a, b=1, /, c=2, *rest, d, e=None: ..., "an_option_of_the_user"),
    ],
)
def test_a_lost_call_is_noticed(before: Callable[..., Any], after: Callable[..., Any], complaint: str | None):
    """Each way to break callers is reported; further options are not."""
    found = list(public_api.broken_calls(inspect.signature(before), inspect.signature(after)))
    assert bool(found) == (complaint is not None)
    assert complaint is None or any(complaint in problem for problem in found)
