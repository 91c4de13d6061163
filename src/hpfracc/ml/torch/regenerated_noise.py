"""Paths that store neither noise nor activations for the backward pass, for PyTorch.

Steps are taken in blocks, each of which stores its initial state. The backward pass recomputes each block and
regenerates its noise from the key: random numbers depend on the key, the path and their index alone, so they are
bitwise the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hpfracc._config import config
from hpfracc.ml.fsde_models import Steps
from hpfracc.solvers.ode.tensors.on_torch.buffers import Buffers
from hpfracc.solvers.sde.stepping import step_in_blocks

__all__ = ["along_regenerated_noise"]

#: Steps of a block. The memory, 60 numbers per component of the state in the Volterra model, is stored once per block.
BLOCK = 32


def along_regenerated_noise(draw: Callable[[Any], Tensor], steps: Steps, key: Any, *, buffers: Buffers) -> Tensor:
    """The paths along the noise ``draw(key)``.

    Parameters
    ----------
    draw : callable
        Returns the noise, shape (steps, paths, noises); if it depends on a learned Hurst index, it is stored.
    steps : Steps
        The equation and its steps.
    key : array
        Key of the random numbers.
    buffers : Buffers
        Buffers of the modules that are called; the backward pass leaves them unchanged.
    """
    noise = _Noise(draw, key)
    found: Tensor = step_in_blocks(*steps, noise.rows, BLOCK, partial(_run, buffers))
    noise.forget()
    return found


class _Noise:
    """Noise that is drawn on demand and released after the last block has used it."""

    def __init__(self, draw: Callable[[Any], Tensor], key: Any) -> None:
        self._draw, self._key = draw, key
        self._recorded = False  # whether the forward pass is complete
        # Drawn outside the blocks, because it may depend on learned parameters.
        self._whole: Tensor | None = self._drawn()

    def _drawn(self) -> Tensor:
        with _same_arms():
            return self._draw(self._key)

    def rows(self, begin: int, end: int) -> Tensor:
        """The increments of a range of steps."""
        if self._whole is None:
            self._whole = self._drawn()
        found = self._whole[begin:end]
        if self._recorded and not begin:  # the backward pass needs the first block last
            self._whole = None
        return found

    def forget(self) -> None:
        """End the forward pass; noise that carries a gradient stays in its graph."""
        assert self._whole is not None
        if not self._whole.requires_grad:
            self._whole, self._recorded = None, True


def _run(buffers: Buffers, function: Callable[..., Any], *tensors: Tensor) -> Any:
    # If the functions use the engine, it must choose the same arms both times.
    return checkpoint(
        function, *tensors, use_reentrant=False, context_fn=lambda: (_same_arms(), _same_arms(buffers.replayed()))
    )


@contextlib.contextmanager
def _same_arms(also: contextlib.AbstractContextManager[None] | None = None) -> Iterator[None]:
    """Deterministic choices within the block. A plain call of ``config(...)`` would change the whole process."""
    with config(deterministic=True), also or contextlib.nullcontext():
        yield
