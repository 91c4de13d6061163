"""Reading the problems."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testset.expressions import NUMBERS, evaluate

FOLDER = Path(__file__).parent / "problems"
KINDS = ("operator", "function", "ode", "pde", "process", "price", "transfer", "material")
MADE_BY = ("closed form", "two methods", "published table")

Array = np.ndarray[Any, Any]


class NotExpressible(Exception):  # noqa: N818 - an answer, not an error
    """The library has no way to state the problem; the text says what is missing."""


@dataclass(frozen=True)
class Answer:
    """What a library found: values like those of the reference, its work, and the standard error if it is random."""

    values: Array
    evaluations: int = 0
    standard_error: float = 0.0


@dataclass(frozen=True)
class Problem:
    """A problem as it stands in its file."""

    path: Path
    table: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.stem

    @property
    def family(self) -> str:
        """The name of its folder."""
        return self.path.parent.name

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        return str(self.table["kind"])

    @property
    def parameters(self) -> dict[str, Any]:
        """Names and numbers."""
        return dict(self.table.get("parameters", {}))

    @property
    def given(self) -> dict[str, Any]:
        """What has to be solved."""
        return dict(self.table["problem"])

    @property
    def reference(self) -> dict[str, Any]:
        """What is known of the answer."""
        return dict(self.table["reference"])

    def number(self, key: str, default: Any = None) -> float:
        """A number of ``[problem]``, which may be a formula in the parameters."""
        return float(evaluate(self.given.get(key, default), NUMBERS | self.parameters))

    def numbers(self, value: Any) -> Any:
        """The same for nested lists of them."""
        if isinstance(value, list):
            return [self.numbers(each) for each in value]
        return float(evaluate(value, NUMBERS | self.parameters))

    @property
    def at(self) -> Array:
        """Where the answer is known, shape (points, variables)."""
        points = np.asarray(self.reference["at"], dtype=float)
        return points.reshape(len(points), -1)

    @property
    def values(self) -> Array:
        """The answer, shape (outputs, points)."""
        values = np.asarray(self.reference["values"], dtype=float)
        return values + 1j * np.asarray(self.reference["imaginary"]) if "imaginary" in self.reference else values

    def error(self, found: Array) -> float:
        """The largest error over the largest value, of the worst output."""
        values = self.values
        size = np.maximum(np.abs(values).max(axis=1, keepdims=True), 1e-300)
        return float(np.max(np.abs(np.asarray(found).reshape(values.shape) - values) / size))


@functools.cache
def all_problems() -> tuple[Problem, ...]:
    """Every problem, by family and name."""
    paths = sorted(FOLDER.glob("*/*.toml"))
    return tuple(Problem(path, tomllib.loads(path.read_text(encoding="utf-8"))) for path in paths)


def faults(problem: Problem) -> Iterator[str]:
    """What is missing in the file of a problem."""
    table, reference = problem.table, problem.table.get("reference", {})
    for key in ("kind", "title", "statement", "latex", "citation", "problem", "reference"):
        if not table.get(key):
            yield f"{key} is missing"
    if table.get("kind") not in KINDS:
        yield f"kind is {table.get('kind')!r}"
    if reference.get("made_by") not in MADE_BY:
        yield f"reference.made_by is {reference.get('made_by')!r}"
    if (reference.get("made_by") == "closed form") != ("exact" in reference):
        yield "reference.exact belongs to closed forms"
    if not isinstance(reference.get("confirmed"), bool) or not 1 <= reference.get("digits", 0) <= 16:
        yield "reference.confirmed and reference.digits are needed"
    shape = np.shape(reference.get("values", ()))
    if len(shape) != 2 or shape[1] != len(reference.get("at", ())):
        yield "reference.values has a row for each output and a column for each point"
