"""Overhead of a sweep on a local cluster against a serial loop, and the scheduler's cost with many workers.

``python benchmarks/clusters.py`` compares tasks of 60 and 250 ms on one worker process with the same calls in a loop,
in one run, alternating. Tasks sleep, so their length does not depend on how busy the machine is. Two figures: the wall
time beyond that of the loop, which needs a quiet machine, and the processor time of all processes (client, scheduler,
worker) beyond that during the loop, when the cluster idles: what a task costs where nobody else computes.

``--farm 50,200`` starts so many workers in this process over TCP and measures what tasks that do nothing cost the
scheduler, which has a process of its own; the prediction of the cost model stands beside it. ``--memory 3`` sends 3 GiB
through two workers of 600 MiB. ``--gpus 4`` compares one and two processes on the GPUs, which needs no Dask, with the
power of the devices.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import statistics
import time
from multiprocessing import get_context
from typing import Any

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


def serve_scheduler(pipe: Any) -> None:
    """A scheduler in a process of its own, until the pipe is closed; its address is sent."""
    from distributed import Scheduler

    logging.getLogger("distributed").setLevel(logging.ERROR)

    async def serve() -> None:
        async with Scheduler(dashboard_address="127.0.0.1:0", host="127.0.0.1", protocol="tcp://") as scheduler:
            pipe.send(scheduler.address)
            await asyncio.get_running_loop().run_in_executor(None, pipe.poll, None)

    asyncio.run(serve())


async def farm(workers: int, tasks: int, rounds: int = 5) -> None:
    """Processor time of the scheduler alone for a task that does nothing, with its workers in this process."""
    import dask
    from distributed import Client, Worker

    logging.getLogger("distributed").setLevel(logging.ERROR)
    # Monitors of so many workers in one process would take all of its time.
    dask.config.set(
        {"distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "1h"}
    )
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve_scheduler, args=(there,), daemon=True)
    process.start()
    address = here.recv()
    watched = psutil.Process(process.pid)
    made = [Worker(address, nthreads=1, dashboard_address=None, memory_limit=0) for _ in range(workers)]
    await asyncio.gather(*made)
    found = []
    async with Client(address, asynchronous=True) as client:
        await client.gather(client.map(float, range(4 * workers), pure=False))  # connections, imports
        for _ in range(rounds):
            begin = sum(watched.cpu_times()[:2])
            await client.gather(client.map(float, range(tasks // rounds), pure=False))
            found.append((sum(watched.cpu_times()[:2]) - begin) / (tasks // rounds))
    # In this order: a heartbeat that meets a closed connection is reported with its traceback.
    for each in made:
        each.periodic_callbacks["heartbeat"].stop()
    await asyncio.sleep(2.0)
    for each in made:
        await each.close()
    here.send(None)
    process.join()
    print(f"{workers:5d} workers, {tasks} tasks: {statistics.median(found) * 1e3:.2f} ms of the scheduler's processor "
          f"time a task ({min(found) * 1e3:.2f} to {max(found) * 1e3:.2f}); the model has "
          f"{scheduler_cost(workers) * 1e3:.2f} ms", flush=True)  # fmt: skip


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


def gpu_worker(seconds: float) -> tuple[int, int | None, str, str]:
    """Convolutions that a process does on its GPU in some seconds, its memory limit there, its GPU, its device."""
    import torch

    from hpfracc.distributed import claims
    from hpfracc.engine.memory.budget import get_budget

    claims.use_own_gpu(None)
    claim = claims.claimed()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    signal = torch.ones(64, 1 << 14, dtype=torch.float64, device=device)
    weights = 1.0 / torch.arange(1.0, (1 << 14) + 1.0, dtype=torch.float64, device=device)
    hf.causal_convolution(weights, signal)
    time.sleep(1.0)  # until the other process has claimed it too
    claims.limit_gpu()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(16):
            found = hf.causal_convolution(weights, signal)
        float(found[0, -1])  # waits for the device
        count += 16
    return count, get_budget().caps().get("cuda:0"), "none" if claim is None else f"{claim.gpu.uuid[:12]}", device


def gpus(seconds: float) -> None:
    """One and two processes on the GPUs of this machine, and the power of its devices, idle and busy."""
    from concurrent.futures import ProcessPoolExecutor

    from hpfracc.profiling.clocks import energy_counters
    from hpfracc.profiling.energy import EnergyMeter

    counters, reason = energy_counters()
    print(f"energy counters: {', '.join(counters) or 'none'} {reason}", flush=True)
    with EnergyMeter() as idle:
        time.sleep(2.0)
    for processes in (1, 2):
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool, EnergyMeter() as meter:
            found = [each.result() for each in [pool.submit(gpu_worker, seconds) for _ in range(processes)]]
        rate = sum(count for count, *_ in found) / seconds
        told = "; ".join(f"{gpu} on {device}, at most {limit} bytes" for _, limit, gpu, device in found)
        print(f"{processes} processes: {rate:,.0f} convolutions a second ({told})", flush=True)
    for name in counters:
        print(f"{name}: {idle.joules[name] / idle.seconds:.0f} W idle, {meter.joules[name] / meter.seconds:.0f} W on "
              "average with two processes, their start included", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--farm", default="", help="numbers of workers, such as 50,200")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB to send through two workers of 600 MiB")
    parser.add_argument("--gpus", type=float, default=0.0, help="seconds of one and two processes on the GPUs")
    given = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), platform.platform(), f"{os.cpu_count()} cores")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if given.gpus:
        gpus(given.gpus)
    for milliseconds, count in ((60, 40), (250, 12)) if given.rounds else ():
        overhead(milliseconds, count, given.rounds)
    for workers in filter(None, given.farm.split(",")):
        asyncio.run(farm(int(workers), 5000))
    if given.memory:
        memory(given.memory)


if __name__ == "__main__":
    main()
