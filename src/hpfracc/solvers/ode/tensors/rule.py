"""The common form of fixed-step methods for PyTorch and JAX, and their weights.

Weights are computed in the library of the order, so that it can be differentiated.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

from hpfracc._reading import choice
from hpfracc._xp import Namespace, convert_like, namespace_of

__all__ = ["ADJOINTS", "Sums", "TensorRule", "check_adjoint", "convert_like", "make_sums"]


#: ``"auto"``: the one that takes the least time and has the derivative. ``"recomputed"``: blocks are recomputed in the
#: backward pass. ``"stored"``: the steps are transposed, from stored
#: states. ``"direct"``: autograd stores everything.
ADJOINTS = ("auto", "recomputed", "stored", "direct")


def check_adjoint(adjoint: str) -> None:
    """Raise an error for an unknown adjoint."""
    choice("adjoint", adjoint, ADJOINTS)


class Sums(NamedTuple):
    """The weights of a rule's history sums, as flat data that can be passed to a program.

    Attributes
    ----------
    sequences : tuple of arrays
        Each ``w[0 .. N]`` of shape (N + 1, ...): ``sum_j w[n - j] f_j`` is known before step n.
    first : array or None
        Additional weight of the value at t0 in the last sum, shape (N + 1, ...).
    newest : array or None
        Weight of the value at step n in the last sum.
    """

    sequences: tuple[Any, ...]
    first: Any
    newest: Any


class TensorRule(Protocol):
    """A fixed-step method, as steps on tensors read it: :class:`~hpfracc.solvers.ode.fixed.solve.StepMethod`."""

    @property
    def name(self) -> str:
        """Name of the method."""

    @property
    def implicit(self) -> bool:
        """Whether the equation of a step is solved by Newton's method."""

    @property
    def starts_blind(self) -> bool:
        """Whether the right-hand side at t0 has no weight and is not evaluated."""

    @property
    def corrections(self) -> int:
        """Corrections of an explicit step."""

    @property
    def adjoint(self) -> str:
        """How the gradient is computed: one of ``ADJOINTS``."""

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """The sequences for step 1, and the additional weights of the first value or None."""


def make_sums(rule: TensorRule, alpha: Any, steps: int, step: float, like: Any) -> Sums:
    """The weights in float64 of the order's own library, then in the library, dtype and device of ``like``."""
    xp = namespace_of(alpha)
    with xp.scope():
        order = xp.array(alpha)
        sequences, first = rule.weights(xp, order, steps + 1)
        scale = xp.exp(order * math.log(step))
        made = tuple(convert_like(each * scale, like) for each in sequences)
        explicit = not rule.implicit and not rule.corrections
        return Sums(
            made, None if first is None else convert_like(first * scale, like), None if explicit else made[-1][0]
        )
