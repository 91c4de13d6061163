"""What tests send to other processes, in a module that is imported there quickly."""

from __future__ import annotations

from typing import Any

import hpfracc as hf
from hpfracc import errors


class StubbornError(Exception):
    """An exception of another library that cannot be rebuilt from its arguments."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def an_error(kind: type[BaseException]) -> BaseException:
    more: dict[type, tuple[Any, ...]] = {
        errors.AllBackendsFailedError: ({"numpy": ValueError("no"), "torch": StubbornError(3, "gone")},),
        errors.BatchItemError: (7,),
    }
    made = kind("what was wrong", *more.get(kind, ()))
    made.add_note("a note")
    made.__cause__ = ExceptionGroup("all", [ValueError("no"), StubbornError(3, "gone")])
    return made


@hf.operation
def doubled(x: Any) -> Any:
    return 2 * x


def work(task: tuple[Any, ...]) -> Any:
    tool, *arguments = task
    return tool(*arguments)


def fail(kind: str) -> Any:
    raise an_error(getattr(errors, kind))


def give_back(value: Any) -> Any:
    return value
