"""What works beyond this process: plugged in by the package, used by lower floors.

Operators and batches lie below :mod:`hpfracc.distributed`, which knows Dask. They hand chunked arrays and executors to
what is registered here; it is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["ClusterSupport", "cluster_support", "plug_in"]


class ClusterSupport(Protocol):
    """What :mod:`hpfracc.distributed` does for the floors below."""

    def run_pieces(
        self,
        executor: Any,
        run: Callable[..., list[Any]],
        items: Sequence[Any],
        what: str,
        advance: Callable[[int], None] | None = None,
    ) -> list[Any]:
        """Run pieces of a batch on an executor."""


_loader: Callable[[], ClusterSupport] | None = None


def plug_in(loader: Callable[[], ClusterSupport]) -> None:
    """Register how the support is imported."""
    global _loader
    _loader = loader


def cluster_support() -> ClusterSupport:
    """The support, imported at first use."""
    assert _loader is not None, "the package registers it when it is imported"
    return _loader()
