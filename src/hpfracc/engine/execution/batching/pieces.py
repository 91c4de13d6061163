"""One piece of a larger call: whether it fits, and running it as a call of its own, chosen as any other."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hpfracc.engine.backends import registry
from hpfracc.engine.execution.failure import Failure, classify, drop_frames
from hpfracc.engine.execution.plan import Plan
from hpfracc.engine.execution.planning import learns, make_plan, make_request
from hpfracc.engine.execution.pressure.ladder import ladder
from hpfracc.engine.execution.recovery import recover
from hpfracc.engine.primitives._operands import shape_of
from hpfracc.engine.primitives.base import ArraySpec, Primitive, dtype_of
from hpfracc.engine.selection.candidates import Request
from hpfracc.engine.selection.decide import decide
from hpfracc.engine.selection.decision import Decision
from hpfracc.engine.selection.knowledge import knowledge_for
from hpfracc.errors import BackendUnavailableError, OutOfMemoryError
from hpfracc.profiling.recorder import shared as spans

__all__ = ["Job", "PieceTooLargeError"]

#: How much slower than an arm without room the one that is taken may be; else smaller pieces give that arm room.
_HARDLY_SLOWER = 1.5


class PieceTooLargeError(Exception):
    """A piece ran out of memory; only seen inside the engine."""


class Job:
    """One call in pieces: what every piece shares, how many were run, and what was decided for the last.

    Parameters
    ----------
    primitive : Primitive
        The contract.
    params : dict
        Its parameters; a ``weights_key`` among them is kept apart.
    request : Request
        The whole call.
    limit : int, optional
        Bytes that one piece may take in all.
    """

    def __init__(
        self, primitive: Primitive, params: dict[str, Any], request: Request, limit: int | None = None
    ) -> None:
        self.primitive = primitive
        self.params = {name: value for name, value in params.items() if name != "weights_key"}
        self.key = params.get("weights_key")
        self.request = request
        self.backend = None if request.wish is None else request.wish.backend
        self.limit = limit
        #: The kernel that all pieces run on, as ``"numpy:fft"``, where that is fixed.
        self.kernel: str | None = None
        self.pieces = 0
        self.decision: Decision | None = None

    def fits(self, operands: tuple[Any, ...], reserved: int = 0, *, quick: bool = True) -> bool:
        """Whether some arm takes this piece; ``quick`` asks that none without room for it would be much quicker."""
        specs = tuple(ArraySpec(shape_of(array), dtype_of(array)) for array in operands)
        made = make_request(
            self.primitive,
            specs,
            self.params,
            backend=self.backend,
            placement=self.request.placement,
            limit=self.limit,
            kernel=self.kernel,
        )
        request = replace(made, reserved=reserved)
        try:
            verdict = decide(request, knowledge_for(request.settings), frozen=True)
        except (OutOfMemoryError, BackendUnavailableError):
            return False
        return not quick or not verdict.expected > _HARDLY_SLOWER * verdict.rival

    def run(self, operands: tuple[Any, ...], key: Any = None, *, quick: bool = False) -> Any:
        """One piece; :class:`PieceTooLargeError` where its memory ran out.

        ``quick`` treats a piece so, too, for which a much quicker arm has no room: a smaller piece gives it some.
        """
        params = self.params if key is None else {**self.params, "weights_key": key}
        try:
            plan = make_plan(
                self.primitive,
                operands,
                self.params,
                backend=self.backend,
                prepared=key is not None,
                limit=self.limit,
                kernel=self.kernel,
            )
        except OutOfMemoryError as error:
            raise PieceTooLargeError(str(error)) from None
        if quick and plan.in_chunks is not None:
            raise PieceTooLargeError(plan.in_chunks)
        bound = plan.bound
        begin = time.perf_counter()
        try:
            with spans.span(self.primitive.name, "batch", metadata={"piece": self.pieces + 1}):
                result = bound.run(*operands, **params)
        except Exception as error:
            adapter = registry.adapter(bound.arm.backend)
            if classify(error, adapter) is Failure.MEMORY:
                drop_frames(error)
                adapter.release_memory(bound.arm.device)
                ladder.climb(bound.arm.device, highest="library caches")
                raise PieceTooLargeError(registry.describe_failure(error)) from None
            try:
                result = recover(plan, bound, operands, params, error)
            except OutOfMemoryError as short:
                raise PieceTooLargeError(str(short)) from None
        else:
            self._learn(plan, time.perf_counter() - begin)
        self.pieces += 1
        self.decision = plan.decision
        return result

    def _learn(self, plan: Plan, seconds: float) -> None:
        """Pieces are calls like others, as far as the host's clock sees their end."""
        arm, request = plan.bound.arm, plan.request
        stays = request.placement.library == arm.backend and not plan.bound.moves
        if learns(request) and not (stays and registry.adapter(arm.backend).is_asynchronous(arm.device)):
            first = plan.knowledge.is_first(plan.option)
            plan.knowledge.observe(request, plan.option, seconds, first=first, calls=1)
