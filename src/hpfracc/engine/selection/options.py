"""What can be chosen, as the chooser weighs it, and its answer."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from hpfracc.engine.selection.cost import Estimate

__all__ = ["Choice", "Option", "Scored"]


@dataclass(frozen=True, slots=True)
class Option:
    """One arm that could take a call.

    Attributes
    ----------
    arm : str
        Its name.
    key : Hashable
        What its times are kept under in the cost model.
    x : float
        The work of this call.
    transfer : float
        Predicted seconds of transfers, used only with ``includes_transfer=False``.
    includes_transfer : bool
        Whether the knots of ``key`` were measured with the transfers that its start implies. If not, ``transfer`` is
        added to what the knots say. Samples always cover the whole call, so nothing is ever added to them.
    compile_key : Hashable or None
        Names the compilation this call needs; options with equal compile keys share it. None: nothing to compile.
    startup : float
        Seconds to import the library, 0 if it is loaded.
    library : str or None
        Whose import ``startup`` is; the part of ``arm`` before the colon where not given.
    """

    arm: str
    key: Hashable
    x: float
    transfer: float = 0.0
    includes_transfer: bool = True
    compile_key: Hashable | None = None
    startup: float = 0.0
    library: str | None = None

    @property
    def owner(self) -> str:
        """Whose import ``startup`` is."""
        return self.library if self.library is not None else self.arm.partition(":")[0]

    @property
    def on_host(self) -> bool:
        """Whether the arm's name says no other place."""
        _, _, device = self.arm.partition("@")
        return device.startswith("cpu") or not device

    @property
    def extra(self) -> float:
        """Seconds to add to what the knots of ``key`` say."""
        return 0.0 if self.includes_transfer else self.transfer


class Scored(NamedTuple):
    """An option with its estimate, its predicted seconds a call (``nan``: unknown), and those before its first one.

    ``compile`` are the seconds of compiling and importing that are still to come.
    """

    option: Option
    estimate: Estimate
    total: float
    compile: float

    @property
    def known(self) -> bool:
        """Whether anything is known of its run time."""
        return self.total == self.total  # not nan


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer, with everything it was decided from.

    Attributes
    ----------
    option, estimate
        What to run, and what it is predicted to take.
    reason : str
        One sentence.
    explored : bool
        Whether it is run to learn about it rather than because it is expected to be fastest.
    review_after : int
        How many further calls may take the same option without asking again.
    candidates : list of Scored
        All options, in the order given.
    """

    option: Option
    estimate: Estimate
    reason: str
    explored: bool
    review_after: int
    candidates: list[Scored]
