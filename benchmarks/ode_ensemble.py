"""An ensemble of Brusselators on a GPU and on the host: trajectories per second, and the gradient in the order.

    python benchmarks/ode_ensemble.py                                # small, on the CPU
    python benchmarks/ode_ensemble.py --device cuda --members 65536 --steps 4096 --json

Every member has its own initial value and its own mu. The host runs the same call on fewer members (its time is
proportional to their number), so that both columns are rates. The gradient of a loss with respect to the order, through
all steps, is compared with a central difference.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hpfracc as hf
from benchmarks import _common

#: Options of all runs: 4096 steps reach t = 20, about three cycles.
STEP = 20.0 / 4096
ALPHA = 0.8


def ensemble(members: int, seed: int = 0) -> tuple[Any, Any]:
    """Initial values, shape (members, 2), and mu, shape (members,)."""
    generator = np.random.default_rng(seed)
    y0 = np.array([1.2, 2.8]) + 0.2 * generator.standard_normal((members, 2))
    return y0, 3.0 + generator.random(members)


class OnTorch:
    name = "torch"

    def __init__(self, device: str) -> None:
        import torch

        self.torch, self.device = torch, device

    def array(self, values: Any) -> Any:
        return self.torch.as_tensor(values, device=self.device)

    def wait(self) -> None:
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def solve(self, y0: Any, mu: Any, alpha: Any, steps: int) -> Any:
        torch = self.torch

        def fun(t: float, y: Any) -> Any:
            x, z = y[..., 0], y[..., 1]
            product = x * x * z
            return torch.stack([1.0 - (mu + 1.0) * x + product, mu * x - product], dim=-1)

        return hf.solve_fode(fun, (0.0, steps * STEP), y0, alpha, step=STEP)

    def run(self, y0: Any, mu: Any, steps: int) -> Any:
        with self.torch.no_grad():
            return self.solve(y0, mu, ALPHA, steps).y[..., -1]

    def loss(self, y0: Any, mu: Any, alpha: float, steps: int) -> float:
        with self.torch.no_grad():
            return float((self.solve(y0, mu, alpha, steps).y[..., -1] ** 2).mean())

    def gradient(self, y0: Any, mu: Any, alpha: float, steps: int) -> float:
        order = self.torch.tensor(alpha, dtype=self.torch.float64, device=self.device, requires_grad=True)
        (self.solve(y0, mu, order, steps).y[..., -1] ** 2).mean().backward()
        return float(order.grad)

    def peak(self) -> float:
        return self.torch.cuda.max_memory_allocated() / 2**30 if self.device != "cpu" else float("nan")


class OnJax:
    name = "jax"

    def __init__(self, device: str) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        self.jax = jax
        self.device = jax.devices("gpu" if device.startswith("cuda") else "cpu")[0]

    def array(self, values: Any) -> Any:
        return self.jax.device_put(np.asarray(values), self.device)

    def wait(self) -> None:
        """Synchronised call."""

    @staticmethod
    def fun(t: Any, y: Any, mu: Any) -> Any:
        import jax.numpy as jnp

        x, z = y[..., 0], y[..., 1]
        product = x * x * z
        return jnp.stack([1.0 - (mu + 1.0) * x + product, mu * x - product], axis=-1)

    def _loss(self, alpha: Any, y0: Any, mu: Any, steps: int) -> Any:
        y = hf.solve_fode(self.fun, (0.0, steps * STEP), y0, alpha, step=STEP, args=(mu,)).y
        return (y[..., -1] ** 2).mean()

    def run(self, y0: Any, mu: Any, steps: int) -> Any:
        y = hf.solve_fode(self.fun, (0.0, steps * STEP), y0, ALPHA, step=STEP, args=(mu,)).y
        return y[..., -1].block_until_ready()

    def loss(self, y0: Any, mu: Any, alpha: float, steps: int) -> float:
        return float(self._loss(alpha, y0, mu, steps))

    def gradient(self, y0: Any, mu: Any, alpha: float, steps: int) -> float:
        return float(self.jax.grad(self._loss)(alpha, y0, mu, steps))

    def peak(self) -> float:
        statistics = self.device.memory_stats() or {}
        return statistics.get("peak_bytes_in_use", float("nan")) / 2**30


def timed(run: Callable[[], Any], wait: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the first call, including compilation, and of the second."""
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - begin)
    return seconds[0], seconds[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:<index>")
    parser.add_argument("--library", default="torch,jax", help="comma-separated list")
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--host-members", type=int, default=64)
    parser.add_argument("--gradient-members", type=int, default=64)
    parser.add_argument("--gradient-steps", type=int, default=256)
    parser.add_argument("--json", action="store_true", help="also write benchmarks/results/ode_ensemble.json")
    options = parser.parse_args()
    print(_common.heading(f"{options.members} Brusselators x {options.steps} steps of PECE, alpha = {ALPHA}, float64"))
    rows = []
    for name in options.library.split(","):
        make = {"torch": OnTorch, "jax": OnJax}[name]
        for device, members in ((options.device, options.members), ("cpu", options.host_members)):
            if device == "cpu" and options.device == "cpu" and members != options.members:
                continue  # the host is the device here
            place = make(device)
            y0, mu = (place.array(each) for each in ensemble(members))
            first, seconds = timed(lambda: place.run(y0, mu, options.steps), place.wait)  # noqa: B023
            rows.append(
                {
                    "library": name,
                    "device": device,
                    "members": members,
                    "steps": options.steps,
                    "first_seconds": first,
                    "seconds": seconds,
                    "trajectories_per_second": members / seconds,
                    "peak_gib": place.peak(),
                }
            )
            print(
                f"{name:6s} {device:8s} {members:7d} members  first {first:8.3f} s   then {seconds:8.3f} s   "
                f"{members / seconds:12.1f} trajectories/s   peak {rows[-1]['peak_gib']:.2f} GiB",
                flush=True,
            )
        place = make(options.device)
        y0, mu = (place.array(each) for each in ensemble(options.gradient_members))
        steps, change = options.gradient_steps, 1e-5
        begin = time.perf_counter()
        exact = place.gradient(y0, mu, ALPHA, steps)
        seconds = time.perf_counter() - begin
        sides = [place.loss(y0, mu, ALPHA + sign * change, steps) for sign in (1.0, -1.0)]
        central = (sides[0] - sides[1]) / (2.0 * change)
        error = abs(exact - central) / abs(central)
        rows.append({"library": name, "gradient": exact, "central_difference": central, "relative_error": error})
        print(
            f"{name:6s} d loss/d alpha over {steps} steps, {options.gradient_members} members: {exact:.10g}, central "
            f"difference {central:.10g}, apart {error:.1e}; {seconds:.2f} s"
        )
        if not error < 1e-6:
            raise SystemExit(f"the gradient of {name} is wrong")
    if options.json:
        _common.write_json("ode_ensemble", {"alpha": ALPHA, "step": STEP, "rows": rows})


if __name__ == "__main__":
    main()
