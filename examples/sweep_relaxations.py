"""Sweep over 100,000 equations D^alpha y = -rate y, and plot their values at t = 1 as a surface.

Run with ``python examples/sweep_relaxations.py``, with ``--workers 4`` on a local Dask cluster, or with ``--scheduler
tcp://host:8786`` on a running one. ``--store DIR`` stores the results; the same command continues an interrupted run.
"""

from __future__ import annotations

import argparse
import contextlib

import numpy as np

import hpfracc as hf


# [start]
@hf.distributed.stacked
def relax(alpha, rate):
    """Values at t = 1 of many equations, in one call."""
    fall, y0 = rate[:, None], np.ones((len(alpha), 1))
    return hf.solve_fode(lambda t, y: -fall * y, (0.0, 1.0), y0, alpha[:, None], step=0.05, estimate=False).y[:, 0, -1]


# [end]


def main() -> None:
    """Run the sweep, compare one item with its closed form, and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=250, help="number of orders between 0.3 and 1")
    parser.add_argument("--rates", type=int, default=400, help="number of rates between 0.1 and 4")
    parser.add_argument("--workers", type=int, default=0, help="processes of a local Dask cluster")
    parser.add_argument("--scheduler", help="address of a Dask scheduler")
    parser.add_argument("--store", help="folder for the results")
    parser.add_argument("--picture", help="file for the surface, such as surface.png")
    given = parser.parse_args()
    items = hf.grid(alpha=np.linspace(0.3, 1.0, given.orders), rate=np.linspace(0.1, 4.0, given.rates))
    with contextlib.ExitStack() as stack:
        executor = given.scheduler
        if given.workers:
            from distributed import Client, LocalCluster

            cluster = stack.enter_context(
                LocalCluster(n_workers=given.workers, threads_per_worker=1, dashboard_address=":0")
            )
            executor = stack.enter_context(Client(cluster))
        result = hf.sweep(relax, items, executor=executor, store=given.store, batch=2000)
    print(result)
    alpha, rate = items[len(items) // 2]["alpha"], items[len(items) // 2]["rate"]
    exact = hf.mittag_leffler(-rate, alpha)
    print(f"alpha={alpha:.3f}, rate={rate:.3f}: {result.values.flat[len(items) // 2]:.6f}, exact {exact:.6f}")
    if given.picture:
        result.plot(kind="surface").figure.savefig(given.picture)


if __name__ == "__main__":
    main()
