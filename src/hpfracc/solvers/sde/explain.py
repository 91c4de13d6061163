"""Explains how ``solve_fsde`` would simulate an equation, without drawing a number."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from hpfracc._arrays import library_of
from hpfracc.solvers.sde.methods import methods_for
from hpfracc.solvers.sde.solve import read_simulation


@dataclass(frozen=True, slots=True)
class SimulationExplanation:
    """How an equation would be simulated, and why.

    Attributes
    ----------
    method : str
        Name of the method.
    reason : str
        Why this method is used.
    order : str
        Its strong order, and where that holds.
    refused : dict
        The methods that do not support this equation, each with its reason.
    library, device, dtype : str
        Library, device and dtype of the state.
    steps : int
        Number of steps.
    step : float
        Length of a step.
    paths : int
        Number of paths.
    chunks, rows : int
        Number of chunks of paths, and paths per chunk.
    kept_bytes, chunk_bytes : int
        Memory of the result, as far as it is known in advance (0 for a function of the paths), and of a chunk.
    """

    method: str
    reason: str
    order: str
    refused: dict[str, str]
    library: str
    device: str
    dtype: str
    steps: int
    step: float
    paths: int
    chunks: int
    rows: int
    kept_bytes: int
    chunk_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    def __rich__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [
            f"solve_fsde: method {self.method!r}, because {self.reason}",
            f"  strong order: {self.order}",
            f"  steps: {self.steps:,} of {self.step:.6g}, on {self.library} ({self.device}, {self.dtype})",
            f"  paths: {self.paths:,} in {self.chunks:,} chunks of {self.rows:,}",
            f"  memory: {self.kept_bytes:,} bytes kept, {self.chunk_bytes:,} for a chunk",
        ]
        lines += [f"  not {name!r}: {reason}" for name, reason in self.refused.items()]
        return "\n".join(lines)


def explain_simulation(*args: Any, **kwargs: Any) -> SimulationExplanation:
    """What this call of ``solve_fsde`` would do.

    The arguments are read and checked as for a simulation: both functions are called once, with the initial value.
    """
    simulation = read_simulation(*args, **kwargs)
    method, traits = simulation.method, simulation.problem.traits
    ordinary = library_of(simulation.alpha) == "python" and simulation.alpha == 1.0
    known = methods_for(traits, ordinary=ordinary)
    reasons = {name: each.refuses(traits) for name, each in known.items()}
    refused = {name: why for name, why in reasons.items() if why is not None}
    reason = "it is the first that converges for this noise"
    if kwargs.get("method", "auto") != "auto":
        reason = "it was asked for by its name"
    elif not ordinary:
        reason = "the order is below 1, or differentiable"
    elif traits.additive or traits.jumps:
        reason = "the noise is additive" if traits.additive else "the noise jumps"
    source = simulation.source
    told = {"method": method.name, "reason": reason, "order": method.order, "refused": refused}
    where = {"library": source.library, "device": source.device, "dtype": source.dtype}
    work = {"steps": simulation.t.size - 1, "step": simulation.h, "paths": simulation.count}
    return SimulationExplanation(**told, **where, **work, **simulation.forecast()._asdict())  # type: ignore[arg-type]
