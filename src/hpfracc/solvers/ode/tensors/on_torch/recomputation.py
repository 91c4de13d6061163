"""Parts of a computation that store only their inputs and are recomputed in the backward pass.

``torch.utils.checkpoint`` keeps the graph nodes of each part, without the tensors. For small states the nodes take far
more memory than the states: 18 kB per step for a state of one number. Here a part is one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.ode.tensors.on_torch.newton import TWICE_IMPLICIT
from hpfracc.solvers.ode.tensors.on_torch.once import differentiable_once

__all__ = ["Surroundings", "recomputed", "surroundings_of"]

Part = Callable[..., tuple[torch.Tensor, ...]]
#: Returns a context in which a part is recomputed.
Surroundings = Callable[[], AbstractContextManager[Any]]


def recomputed(
    function: Part,
    values: tuple[torch.Tensor, ...],
    given: Sequence[torch.Tensor],
    leaves: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]] = ((), ()),
    surroundings: Surroundings = nullcontext,
    once: bool = False,
) -> tuple[torch.Tensor, ...]:
    """``values`` of ``function(*given)``, with their derivatives of any order.

    Parameters
    ----------
    function : callable
        Returns a tuple of tensors. It depends on no other tensors that carry a gradient, except for ``leaves``.
    values : tuple of tensors
        Its result, without derivatives.
    given : sequence of tensors
        Its arguments.
    leaves : two sequences of tensors
        Further tensors that the function depends on: the caller's, and the copies that the function uses.
    surroundings : callable
        Returns a context in which the function reproduces these values, from :func:`surroundings_of`.
    once : bool
        Whether the function solves implicit steps, which have first derivatives only; higher ones raise an error.
    """
    kind = _RecomputedOnce if once else _RecomputedPart
    found: tuple[torch.Tensor, ...] = kind.apply(
        function, [*values], len(given), list(leaves[1]), surroundings, *given, *leaves[0]
    )
    return found


class _RecomputedPart(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        function: Part,
        values: list[torch.Tensor],
        count: int,
        seen: list[torch.Tensor],
        surroundings: Surroundings,
        *given: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.function, ctx.count, ctx.seen, ctx.surroundings = function, count, seen, surroundings
        ctx.save_for_backward(*given)
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needed = ctx.needs_input_grad[5:]
        given = ctx.saved_tensors
        copies = [each.detach().requires_grad_(asked) for each, asked in zip(given[: ctx.count], needed, strict=False)]
        places = [place for place, asked in enumerate(needed) if asked]
        sources = [*copies, *ctx.seen]
        with ctx.surroundings():
            with torch.enable_grad():
                results = ctx.function(*copies)
            found = _gradients(results, [sources[place] for place in places], [given[place] for place in places], bars)
        whole: list[torch.Tensor | None] = [None] * (5 + len(given))
        for place, each in zip(places, found, strict=True):
            whole[5 + place] = each
        return tuple(whole)


class _RecomputedOnce(torch.autograd.Function):  # type: ignore[misc]
    forward = staticmethod(_RecomputedPart.forward)

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        given = [*ctx.saved_tensors, *bars]
        return tuple(differentiable_once(lambda: _RecomputedPart.backward(ctx, *bars), given, TWICE_IMPLICIT))


class _Attached(torch.autograd.Function):  # type: ignore[misc]
    """Results of a graph that begins at ``sources``, attached to the originals of these copies."""

    @staticmethod
    def forward(
        ctx: Any, results: list[torch.Tensor], sources: list[torch.Tensor], *originals: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.results, ctx.sources = results, sources
        ctx.save_for_backward(*originals)
        return tuple(each.detach() for each in results)

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, None, *_gradients(ctx.results, ctx.sources, ctx.saved_tensors, bars, retain=True))


def _gradients(
    results: Sequence[torch.Tensor],
    sources: list[torch.Tensor],
    originals: Sequence[torch.Tensor],
    bars: Sequence[torch.Tensor],
    retain: bool = False,
) -> list[torch.Tensor | None]:
    """Gradients in ``sources``; if they are differentiated later, as functions of ``originals`` and ``bars``."""
    graphed = torch.is_grad_enabled()
    pairs = [(each, bar) for each, bar in zip(results, bars, strict=True) if each.requires_grad]
    if not pairs or not sources:
        return [None] * len(sources)
    ends, given = [each for each, _ in pairs], [bar for _, bar in pairs]
    held = [bar.detach().requires_grad_() for bar in given] if graphed else given
    found = torch.autograd.grad(
        ends, sources, held, create_graph=graphed, retain_graph=graphed or retain, allow_unused=True
    )
    if not graphed:
        return list(found)
    there = [place for place, each in enumerate(found) if each is not None]
    whole: list[torch.Tensor | None] = [None] * len(sources)
    if there:
        attached = _Attached.apply([found[place] for place in there], [*sources, *held], *originals, *given)
        for place, each in zip(there, attached, strict=True):
            whole[place] = each
    return whole


def surroundings_of(buffers: Buffers, random: bool, device: torch.device) -> Surroundings:
    """Surroundings with the current buffers and, if ``random``, the current state of the random generators."""
    states: tuple[torch.Tensor, ...] = ()
    if random:
        states = (torch.get_rng_state(), *((torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()))
    replayed = buffers.replayed()

    @contextmanager
    def replay() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(replayed)
            if states:
                stack.enter_context(_with_generators(states, device))
            yield

    return replay


@contextmanager
def _with_generators(states: Sequence[torch.Tensor], device: torch.device) -> Iterator[None]:
    """Restore the states of the random generators for a block."""
    with torch.random.fork_rng(devices=[device] if len(states) > 1 else []):
        torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1], device)
        yield
