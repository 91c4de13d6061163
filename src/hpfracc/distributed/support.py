"""What lower floors ask of this package, under the names of :class:`hpfracc._clusters.ClusterSupport`."""

from __future__ import annotations

from hpfracc.distributed.mapping import run_pieces

__all__ = ["run_pieces"]
