"""Overhead of a sweep on a local cluster against a serial loop, and the scheduler's cost with many workers.

``python benchmarks/clusters.py`` compares tasks of 60 and 250 ms on one worker process with the same calls in a loop,
in one run, alternating. Tasks sleep, so their length does not depend on how busy the machine is. Two figures: the wall
time beyond that of the loop, which needs a quiet machine, and the processor time of all processes (client, scheduler,
worker) beyond that during the loop, when the cluster idles: what a task costs where nobody else computes. ``--farm
50,200`` starts so many workers in this process over TCP and measures tasks that do
nothing; the prediction of the cost model stands beside it. ``--memory`` sends 3 GiB through two workers of 600 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import statistics
import time

import numpy as np
import psutil

import hpfracc as hf
from hpfracc.distributed.dask_runner import scheduler_cost


def busy(x: float, seconds: float) -> float:
    """Wait for some time: a task whose length does not depend on how busy the machine is."""
    time.sleep(seconds)
    return x


def processor_time() -> float:
    """Seconds of this process and of its children."""
    own = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (own, *own.children(recursive=True)))


def overhead(milliseconds: int, count: int, rounds: int) -> None:
    from distributed import Client, LocalCluster

    items = hf.points(x=np.arange(float(count)), seconds=np.full(count, milliseconds / 1000.0))
    walls, shares = [], []
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        hf.sweep(busy, items, executor=client, batch=1)
        for _ in range(rounds):
            begin, before = time.perf_counter(), processor_time()
            for index in range(count):
                busy(**items[index])
            serial, idle = time.perf_counter() - begin, processor_time() - before
            begin, before = time.perf_counter(), processor_time()
            hf.sweep(busy, items, executor=client, batch=1)
            walls.append((time.perf_counter() - begin) / serial - 1.0)
            shares.append((processor_time() - before - idle) / serial)
    for what, found in (("wall time", walls), ("processor time", shares)):
        told = ", ".join(f"{each:.1%}" for each in found)
        print(f"{milliseconds:4d} ms a task, {count} tasks: {statistics.median(found):6.1%} of {what} beyond the loop, "
              f"least {min(found):.1%} ({told})", flush=True)  # fmt: skip


async def farm(workers: int, tasks: int) -> None:
    from distributed import Client, Scheduler, Worker

    async with Scheduler(dashboard_address="127.0.0.1:0", host="127.0.0.1", protocol="tcp://") as scheduler:
        made = [
            Worker(scheduler.address, nthreads=1, dashboard_address="127.0.0.1:0", memory_limit=0)
            for _ in range(workers)
        ]
        await asyncio.gather(*made)
        async with Client(scheduler.address, asynchronous=True) as client:
            await client.gather(client.map(float, range(4 * workers), pure=False))  # connections, imports
            begin = time.process_time()
            await client.gather(client.map(float, range(tasks), pure=False))
            seconds = (time.process_time() - begin) / tasks
        await asyncio.gather(*(each.close() for each in made))
    predicted = scheduler_cost(workers)
    print(f"{workers:5d} workers: {seconds * 1e3:.2f} ms of processor time a task, all in one process (scheduler, "
          f"client and workers); the model has {predicted * 1e3:.2f} ms for the scheduler", flush=True)  # fmt: skip


def memory(gibibytes: float) -> None:
    import dask.array as da
    from distributed import Client, LocalCluster

    points, rows = 1 << 16, int(gibibytes * 2**30 / 8 / (1 << 16))
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": "600MiB"}
    with LocalCluster(**options) as cluster, Client(cluster):
        signal = da.random.default_rng(0).standard_normal((rows, points), chunks=(32, points))
        begin = time.perf_counter()
        total = float(abs(hf.caputo(signal, step=1e-3, alpha=0.5)).max(axis=1).sum().compute())
        print(
            f"{signal.nbytes / 2**30:.2f} GiB through 2 x 600 MiB in {time.perf_counter() - begin:.0f} s ({total:.6g})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--farm", default="", help="numbers of workers, such as 50,200")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB to send through two workers of 600 MiB")
    given = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), platform.platform(), f"{os.cpu_count()} cores")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    for milliseconds, count in ((60, 40), (250, 12)):
        overhead(milliseconds, count, given.rounds)
    for workers in filter(None, given.farm.split(",")):
        asyncio.run(farm(int(workers), 5000))
    if given.memory:
        memory(given.memory)


if __name__ == "__main__":
    main()
