"""Overhead of a sweep on a local cluster against a serial loop, and the scheduler's cost with many workers.

``python benchmarks/clusters.py`` compares tasks of 60 and 250 ms on one worker process with the same calls in a loop,
in one run, alternating. Tasks sleep, so their length does not depend on how busy the machine is. Two figures: the wall
time beyond that of the loop, which needs a quiet machine, and the processor time of all processes (client, scheduler,
worker) beyond that during the loop, when the cluster idles: the cost of a task on an otherwise idle machine.

``--farm 50,200`` starts 50, then 200 workers in this process over TCP and measures what tasks that do nothing cost the
scheduler, which has a process of its own; the prediction of the cost model stands beside it. ``--memory 3`` sends 3 GiB
through two workers of 600 MiB.

Without Dask: ``--gpus 4`` runs one and two processes on a GPU, with arrays that are
spilled to the host. ``--energy 3`` measures the power of arms, and the joules of the calls that ``objective="energy"``
chooses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import statistics
import time
from multiprocessing import get_context
from typing import Any

import numpy as np

import hpfracc as hf
from hpfracc.distributed.dask_runner import scheduler_cost
from hpfracc.engine.execution.pressure.ladder import ladder


def busy(x: float, seconds: float) -> float:
    """Wait for some time: a task whose length does not depend on how busy the machine is."""
    time.sleep(seconds)
    return x


def processor_time() -> float:
    """Seconds of this process and of its children."""
    import psutil

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
    import psutil
    from distributed import Client, Worker

    logging.getLogger("distributed").setLevel(logging.ERROR)
    # The monitors of many workers in one process would take all of its time.
    dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "1h"})
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


def memory(gibibytes: float, time_chunks: bool) -> None:
    """An array through two workers that hold a part of it: in chunks of rows, or in chunks of time."""
    import dask.array as da
    from distributed import Client, LocalCluster

    points, rows = 1 << 16, int(gibibytes * 2**30 / 8 / (1 << 16))
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": "600MiB"}
    with LocalCluster(**options) as cluster, Client(cluster):
        chunks = (256, points // 8) if time_chunks else (32, points)
        signal = da.random.default_rng(0).standard_normal((rows, points), chunks=chunks)
        print(hf.explain(hf.caputo, signal, step=1e-3, alpha=0.5), flush=True)
        begin = time.perf_counter()
        total = float(abs(hf.caputo(signal, step=1e-3, alpha=0.5)).max(axis=1).sum().compute())
        print(
            f"{signal.nbytes / 2**30:.2f} GiB through 2 x 600 MiB in {time.perf_counter() - begin:.0f} s ({total:.6g})"
        )


#: Bytes that each process keeps on the GPU, and that are spilled to the host.
KEPT = 8 << 30


def gpu_worker(seconds: float) -> dict[str, Any]:
    """How fast one process of several on a GPU convolves, and what it spills to the host."""
    import torch

    from hpfracc.distributed import worker
    from hpfracc.engine.memory.budget import get_budget

    gpu = worker.use_own_gpu()
    if not torch.cuda.is_available():
        return {"gpu": "none"}
    signal = torch.ones(64, 1 << 14, dtype=torch.float64, device="cuda")
    weights = 1.0 / torch.arange(1.0, (1 << 14) + 1.0, dtype=torch.float64, device="cuda")
    expected = hf.causal_convolution(weights, signal)
    found: dict[str, Any] = {"gpu": "the only one" if gpu is None else gpu.uuid[:12]}
    found["limit"] = get_budget().read("cuda:0")
    count, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        for _ in range(16):
            again = hf.causal_convolution(weights, signal)
        float(again[0, -1])  # waits for the device
        count += 16
    found["rate"] = count / (time.perf_counter() - begin)

    # Spilling: arrays that are kept are moved to the host when room is asked for, and come back on use.
    kept = hf.memory.Spillable(torch.full((KEPT // 8,), 0.1, dtype=torch.float64, device="cuda"))
    found["limit beside"] = get_budget().read("cuda:0")
    free = torch.cuda.mem_get_info()[0]
    begin = time.perf_counter()
    # As much room as there can never be: all rungs of the clean-up are climbed.
    report = ladder.climb("cuda:0", highest="device buffers to the host")
    found["spill"] = {
        "spilled": kept.spilled,
        "seconds": time.perf_counter() - begin,
        "freed": max(0, torch.cuda.mem_get_info()[0] - free),
        "rungs": [f"{rung.name}: {rung.released} bytes {rung.error}".strip() for rung in report.rungs],
    }
    begin = time.perf_counter()
    back = kept.get()
    found["spill"] |= {"back": time.perf_counter() - begin, "same": bool((back == 0.1).all())}
    del back, kept
    torch.cuda.empty_cache()

    # A call from the host that does not fit into the limit goes another way, with the same values.
    rows = np.ones((64, 1 << 18))
    short = 1.0 / np.arange(1.0, (1 << 18) + 1.0)
    right = hf.causal_convolution(short, rows, backend="numpy")
    get_budget().cap("cuda:0", 256 << 20)
    values = hf.causal_convolution(short, rows)
    chosen = hf.last_decision()
    error = float(np.abs(values - right).max())
    found["small limit"] = {"arm": chosen.arm, "error": error}
    found["error"] = float((expected - again).abs().max())
    return found


def gpus(seconds: float) -> None:
    """One and two processes on the GPUs of this machine, and the power of its devices, idle and busy."""
    from concurrent.futures import ProcessPoolExecutor

    from hpfracc.profiling.clocks import EnergyMeter, energy_counters

    counters, reason = energy_counters()
    print(f"energy counters: {', '.join(counters) or 'none'}; {reason}", flush=True)
    with EnergyMeter() as idle:
        time.sleep(2.0)
    for name in counters:
        print(f"{name}: {idle.joules[name] / idle.seconds:.0f} W idle", flush=True)
    for processes in (1, 2):
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool, EnergyMeter() as meter:
            found = [each.result() for each in [pool.submit(gpu_worker, seconds) for _ in range(processes)]]
        if any(each["gpu"] == "none" for each in found):
            print("no GPU", flush=True)
            return
        rate = sum(each["rate"] for each in found)
        print(f"{processes} process{'es' if processes > 1 else ''}: {rate:,.0f} convolutions a second", flush=True)
        for each in found:
            print("  " + json.dumps(each), flush=True)
        for name in counters:
            print(f"  {name}: {meter.joules[name] / meter.seconds:.0f} W on average, start and spilling included",
                  flush=True)  # fmt: skip


def energy(seconds: float) -> None:
    """Power of the arms of a convolution, and joules a call of the arms that time and energy choose."""
    from hpfracc.engine.execution.calibration import calibrate
    from hpfracc.errors import ConfigurationError
    from hpfracc.profiling.clocks import EnergyMeter

    try:
        report = calibrate(["causal_convolution"], energy=True)
    except ConfigurationError as error:
        print(error)
        return
    for each in report.powers:
        print(f"{each.arm:24} {each.watts:6.0f} W over {each.seconds:.1f} s", flush=True)
    for points in (1 << 10, 1 << 14, 1 << 18, 1 << 22):
        weights, signal = 1.0 / np.arange(1.0, points + 1.0), np.ones(points)
        for objective in ("time", "energy"):
            with hf.config(objective=objective, exploration_budget=0.0):
                hf.causal_convolution(weights, signal)
                decision = hf.last_decision()
                count, begin = 0, time.perf_counter()
                with EnergyMeter() as meter:
                    while time.perf_counter() < begin + seconds:
                        hf.causal_convolution(weights, signal)
                        count += 1
            told = ", ".join(f"{1e3 * each / count:.3g} mJ on {name}" for name, each in meter.joules.items())
            print(f"{points:8d} points, objective={objective:6} {decision.arm:24} "
                  f"{1e3 * meter.seconds / count:.3g} ms and {told} a call", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--farm", default="", help="numbers of workers, such as 50,200")
    parser.add_argument("--memory", type=float, default=0.0, help="GiB to send through two workers of 600 MiB")
    parser.add_argument("--time-chunks", action="store_true", help="with --memory: chunks of time instead of rows")
    parser.add_argument("--gpus", type=float, default=0.0, help="seconds of one and two processes on the GPUs")
    parser.add_argument("--energy", type=float, default=0.0, help="seconds for each arm that is compared, at least 2")
    given = parser.parse_args()
    print(time.strftime("%Y-%m-%d"), platform.platform(), f"{os.cpu_count()} cores")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    if given.gpus:
        gpus(given.gpus)
    if given.energy:
        energy(given.energy)
    for milliseconds, count in ((60, 40), (250, 12)) if given.rounds else ():
        overhead(milliseconds, count, given.rounds)
    for workers in filter(None, given.farm.split(",")):
        asyncio.run(farm(int(workers), 5000))
    if given.memory:
        memory(given.memory, given.time_chunks)


if __name__ == "__main__":
    main()
