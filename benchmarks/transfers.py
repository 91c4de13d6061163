"""Copies between host and GPU: the engine's staged copies and the plain ones of PyTorch and CuPy, in GB/s.

Run with ``python benchmarks/transfers.py [--largest 10000000] [--seconds 0.5] [--chunk-mib 2 4 8] [--slots 3 4]``;
``--chunk-mib`` and ``--slots`` also measure other ring configurations.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from _common import heading, print_table, show, timed_in_rounds, write_json

from hpfracc._optional import is_installed
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Adapter
from hpfracc.engine.memory import staging

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
DEVICE = "cuda:0"


def ways(adapter: Adapter, array: np.ndarray) -> tuple[dict[str, Callable[[], Any]], dict[str, Callable[[], Any]]]:
    """All copies to and from the GPU for one array; each is complete when it returns."""

    def send() -> None:
        adapter.from_host(array, DEVICE)
        adapter.synchronize(DEVICE)

    resident = adapter.from_host(array, DEVICE)
    into = {"staged": send}
    out = {"staged": lambda: adapter.to_host(resident)}
    if adapter.name == "torch":
        import torch

        source = torch.from_numpy(array)
        pinned = source.pin_memory()
        landing = torch.empty_like(source, pin_memory=True)

        def plain_in() -> None:
            source.cuda()
            adapter.synchronize(DEVICE)

        def pinned_in() -> None:
            pinned.to(DEVICE, non_blocking=True)
            adapter.synchronize(DEVICE)

        def pinned_out() -> None:
            landing.copy_(resident, non_blocking=True)
            adapter.synchronize(DEVICE)

        into |= {"plain": plain_in, "pinned already": pinned_in}
        out |= {"plain": lambda: resident.cpu().numpy(), "pinned already": pinned_out, "ring": ring_out(resident)}
    else:
        import cupy

        def cupy_in() -> None:
            cupy.asarray(array)
            adapter.synchronize(DEVICE)

        into["plain"] = cupy_in
        out["plain"] = lambda: cupy.asnumpy(resident)
    return into, out


def ring_out(resident: Any) -> Callable[[], Any]:
    """The copy to the host without pinned results: through the ring into newly allocated memory."""
    from hpfracc.engine.backends.torch import transfers

    lane = transfers.lane(resident.device)
    closed = staging.PinnedLedger(0)

    def fetch() -> Any:
        lane.ledger, kept = closed, lane.ledger
        try:
            return transfers.download(resident)
        finally:
            lane.ledger = kept

    return fetch


def try_ring(chunk: int, slots: int) -> None:
    """Replace PyTorch's ring by one of another configuration."""
    import torch

    from hpfracc.engine.backends.torch import transfers

    lane = transfers.lane(torch.device(DEVICE))
    lane.ring = staging.StagingRing(transfers.CudaLink(), slots=slots, chunk=chunk)


def measure(adapter: Adapter, sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    """Times of all copies at all sizes."""
    rows = []
    for n in sizes:
        into, out = ways(adapter, np.random.default_rng(0).standard_normal(n))
        rows.append(
            {"doubles": n, "in": timed_in_rounds(into, seconds), "out": timed_in_rounds(out, seconds)},
        )
    return rows


def report(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one line per size and direction."""
    print(f"\n{title}")
    for way in ("in", "out"):
        names = list(rows[0][way])
        print_table(
            (f"doubles, {way}", *names),
            [
                (
                    f"{row['doubles']:,}",
                    *(f"{show(row[way][name])} {8e-9 * row['doubles'] / row[way][name]:.1f} GB/s" for name in names),
                )
                for row in rows
            ],
        )


def main() -> None:
    """Print a table for each library that sees a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each size and direction")
    parser.add_argument("--chunk-mib", type=float, nargs="*", default=[])
    parser.add_argument("--slots", type=int, nargs="*", default=[])
    options = parser.parse_args()
    sizes = [n for n in SIZES if n <= options.largest]
    print(heading("Transfers between host and GPU, float64"))
    data: dict[str, Any] = {}
    for name in ("torch", "cupy"):
        if not is_installed(name) or DEVICE not in registry.adapter(name).devices():
            print(f"\n{name}: no device {DEVICE}, nothing to measure")
            continue
        adapter = registry.adapter(name)
        data[name] = measure(adapter, sizes, options.seconds)
        report(f"{name}, as the engine does it", data[name])
        if name == "torch" and (options.chunk_mib or options.slots):
            forms = product(options.chunk_mib or [staging.CHUNK_BYTES / 2**20], options.slots or [staging.SLOTS])
            for chunk, slots in forms:
                try_ring(int(chunk * 2**20), slots)
                title = f"{name}, {slots} slots of {chunk:g} MiB"
                data[title] = measure(adapter, sizes[-1:], options.seconds)
                report(title, data[title])
    if data:
        write_json("transfers", data)


if __name__ == "__main__":
    main()
