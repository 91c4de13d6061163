"""Fractional noise: paths against the bare normals and transform that they take, and against other packages.

Run with ``python benchmarks/sde.py [--seconds 2] [--device cuda]``. The floor of a path of n points is 2 n normals
of NumPy's own generator with the same kind of bits (Philox) and one real transform of length 2 n; the bar is 1.3 times
that. Times on the host are processor time, and ratios to the floor medians over adjacent turns. With ``--device cuda``
paths are made in float32 by PyTorch, ``--paths`` of 1,024 points. Then rough volatility (bars: 100 ms for rough Heston
at 80 frequencies to 1e-6, 1.5 times the normals for rough Bergomi) and anomalous transport: random walks, mean squared
displacement and first passages.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import heading, print_table, quarter, timed_in_rounds, write_json
from scipy import fft

import hpfracc as hf
from hpfracc import noise, rough, transport

BAR = 1.3
INDEX = 0.3
SIZES = (1_000, 1_024, 10_000, 100_000)


def floor(n: int, paths: int) -> Callable[[], Any]:
    """Normal numbers and a transform, and nothing else."""
    generator = np.random.Generator(np.random.Philox(1))

    def run() -> Any:
        numbers = generator.standard_normal((paths, 2 * n + 2))
        return fft.irfft(numbers.view(np.complex128), 2 * n)

    return run


def compare(one: Callable[[], Any], other: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Processor time of the first, and the median of its ratio to that of the second in adjacent turns."""
    calls = [max(1, int(4e-3 / max(1e-9, min(_spent(run, 2) for _ in range(3))))) for run in (one, other)]
    times: list[tuple[float, float]] = []
    deadline = time.perf_counter() + seconds
    while len(times) < 7 or time.perf_counter() < deadline:
        times.append((_spent(one, calls[0]), _spent(other, calls[1])))
    ratios = sorted(a / b for a, b in times)
    return quarter([a for a, _ in times]), ratios[len(ratios) // 2]


def _spent(run: Callable[[], Any], calls: int) -> float:
    begin = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - begin) / calls


def peers(n: int) -> dict[str, Callable[[], Any]]:
    """Other packages that draw such paths, where they are installed."""
    found: dict[str, Callable[[], Any]] = {}
    if importlib.util.find_spec("fbm"):
        from fbm import FBM

        found["fbm"] = FBM(n=n, hurst=INDEX, length=1, method="daviesharte").fbm
    if importlib.util.find_spec("stochastic"):
        from stochastic.processes.continuous import FractionalBrownianMotion

        process = FractionalBrownianMotion(hurst=INDEX, t=1)
        found["stochastic"] = lambda: process.sample(n)
    return found


def on_host(seconds: float) -> list[dict[str, Any]]:
    """Single paths and a batch, on one core."""
    rows = []
    generator = np.random.default_rng(2)
    for n, paths in [*((n, 1) for n in SIZES), (1_024, 1_000)]:
        size = () if paths == 1 else paths

        def ours(n: int = n, size: Any = size) -> Any:
            return hf.fbm(n, INDEX, size=size, rng=generator)

        def compiled(ours: Callable[[], Any] = ours) -> Any:
            with hf.use_backend("numba"):  # what the engine settles on once that was worth compiling
                return ours()

        row: dict[str, Any] = {"what": f"fbm {paths:,} x {n:,}"}
        if importlib.util.find_spec("numba"):
            row["compiled, of the floor"] = compare(compiled, floor(n, paths), seconds)[1]
        taken, row["of the floor"] = compare(ours, floor(n, paths), seconds)
        row["ms"] = taken * 1e3
        if paths == 1:
            row.update({name: 1.0 / compare(ours, run, seconds)[1] for name, run in peers(n).items()})
        rows.append(row)
    t = np.linspace(0, 1, 101)
    others = {
        "FractionalOU": noise.FractionalOU(0.3),
        "StableLevy": noise.StableLevy(1.5),
        "TemperedStable": noise.TemperedStable(0.7, 1.0),
        "InverseSubordinator": noise.InverseSubordinator(0.7),
    }
    for name, process in others.items():
        process.sample(t, 1000, rng=generator)
        rows.append(
            {"what": f"{name} 1,000 x 100", "ms": _spent(lambda process=process: process.sample(t, 1000), 1) * 1e3}
        )
    return rows


def rough_models(seconds: float) -> list[dict[str, Any]]:
    """The characteristic function of rough Heston at 80 frequencies, and rough Bergomi paths against their normals."""
    heston = rough.Heston(H=0.1, kappa=0.3, theta=0.04, sigma=0.4, rho=-0.7, v0=0.04)
    u = np.linspace(0.5, 40.0, 80) - 0.5j
    error = np.abs(
        heston.characteristic_function(u, 1.0, atol=1e-6) - heston.characteristic_function(u, 1.0, atol=1e-12)
    )
    spent = min(_spent(lambda: heston.characteristic_function(u, 1.0, atol=1e-6), 1) for _ in range(7))
    bergomi = rough.Bergomi(H=0.07, eta=1.9, rho=-0.9, xi=0.235**2)
    generator = np.random.Generator(np.random.Philox(1))

    def ours() -> Any:
        return bergomi.price(1.0, 0.25, paths=10_000, steps=312, rng=1)

    def compiled() -> Any:
        with hf.use_backend("numba"):
            return ours()

    row: dict[str, Any] = {"what": "rough Bergomi 10,000 x 312, one strike; floor: the normals"}

    def normals() -> Any:
        return [generator.standard_normal((100, 624)) for _ in range(100)]

    if importlib.util.find_spec("numba"):
        row["compiled, of the floor"] = compare(compiled, normals, seconds)[1]
    taken, row["of the floor"] = compare(ours, normals, seconds)
    row["ms"] = taken * 1e3
    return [{"what": f"rough Heston, 80 frequencies, error {error.max():.1e}", "ms": spent * 1e3}, row]


def walks() -> list[dict[str, Any]]:
    """Random walks and first passages: processor time of one call."""
    walk = transport.ContinuousTimeRandomWalk(transport.MittagLefflerWaiting(0.7), transport.GaussianJumps())
    flight = transport.ContinuousTimeRandomWalk(transport.FixedWaiting(), transport.StableJumps(1.5))
    t = np.linspace(0, 2000, 101)
    jumps = 10_000 * float(walk.waiting.mean_jumps(2000.0))
    calls = {
        f"Mittag-Leffler walk 10,000 x 100, {jumps / 1e6:.3g}e6 jumps": lambda: walk.sample(t, 10_000, rng=1),
        "Levy flight 10,000 x 100, 1e6 jumps": lambda: flight.sample(np.arange(101.0), 10_000, rng=1),
        "msd of 10,000 x 100": lambda: transport.msd(paths, t),
        "first passage, Brownian, interval, 1e5 paths": lambda: _passage(noise.Brownian()),
        "first passage, subordinated, 1e5 paths": lambda: _passage(noise.Subordinated(noise.Brownian(), 0.5)),
        "first passage, stable, spheres, 1e5 paths": lambda: _passage(noise.StableLevy(1.5)),
    }
    paths = walk.sample(t, 10_000, rng=1)
    rows = []
    for name, run in calls.items():
        run()
        rows.append({"what": name, "ms": _spent(run, 1) * 1e3})
    return rows


def _passage(process: noise.Noise) -> Any:
    return transport.first_passage(process, (-1.0, 1.0), start=0.3, paths=100_000, rng=1)


def on_gpu(paths: int, seconds: float) -> list[dict[str, Any]]:
    """Paths of 1,024 points in float32, against their normals by PyTorch's own generator and their transform."""
    import torch

    generator = torch.Generator("cuda").manual_seed(1)
    part = min(paths, 1 << 17)

    def floor() -> Any:
        for _ in range(paths // part):
            numbers = torch.randn((part, 1025, 2), device="cuda")
            torch.fft.irfft(torch.view_as_complex(numbers), 2048)

    def ours() -> Any:
        return hf.fbm(1024, INDEX, size=paths, rng=generator, dtype="float32")

    times = timed_in_rounds({"auto": ours, "floor": floor}, seconds, torch.cuda.synchronize)
    what = f"fbm {paths:,} x 1,024, float32"
    return [{"what": what, "ms": times["auto"] * 1e3, "of the floor": times["auto"] / times["floor"]}]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--paths", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print(heading("fractional noise"))
    if arguments.device == "cuda":
        rows = on_gpu(arguments.paths, arguments.seconds)
    else:
        rows = [*on_host(arguments.seconds), *rough_models(arguments.seconds), *walks()]
        for name in ("fbm", "stochastic"):
            if not importlib.util.find_spec(name):
                print(f"# {name} is not installed: no comparison")
    columns = ("what", "ms", "of the floor", "compiled, of the floor", "fbm", "stochastic")
    print_table(columns, [[_shown(row.get(column)) for column in columns] for row in rows])
    write_json("sde" if arguments.device == "cpu" else "sde-gpu", {"bar": BAR, "rows": rows})


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
