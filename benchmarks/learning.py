"""Learning: an order that carries a gradient, and layers, against the bare operations that they are made of.

Run with ``python benchmarks/learning.py [--device cuda] [--sizes 4096x1024 1000000 10000000] [--seconds 1]``. All
contestants of a size take turns in one run, forward and backward. The bare pair is rfft, product, irfft with a gradient
to samples and weights (the bar: 1.5 with an order that learns, 1.3 with a plain order). With ``ceiling=1`` the value of
an order on a GPU is not read, so that the host need not wait; layers with bounds within (0, 1) do so too. A layer is
compared with its operator followed by ``torch.nn.Linear`` (1.1), a convolution with its operator followed by
``torch.nn.Conv1d`` (1.2). ``--neural 256 1024`` adds neural fractional equations of as many steps (forward 1.5 times
the bare evaluations, with the gradient 4.5); ``ops`` are the operations that PyTorch dispatches, views left out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from _common import heading, print_table, timed_in_rounds, write_json
from neural_fode import measure
from torch.utils._python_dispatch import TorchDispatchMode

import hpfracc as hf
from hpfracc import ml


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


class Operations(TorchDispatchMode):
    """Counts what PyTorch dispatches, views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and func is not torch.ops.aten.detach.default:
            self.found[str(func)] += 1
        return func(*args, **(kwargs or {}))


def count(run: Callable[[], Any]) -> int:
    """Operations of one call, after one that is not counted."""
    run()
    with Operations() as operations:
        run()
    return operations.found.total()


def backward(run: Callable[[], Any], *wanted: Any) -> Callable[[], Any]:
    """Forward and backward, with a slope of ones that is made once; settled, as after the first steps of training."""
    slope = torch.ones_like(run())

    def both() -> Any:
        return torch.autograd.grad(run(), wanted, slope)

    for _ in range(20 if slope.is_cuda else 0):
        both()
    return both


def bare_pair(x: Any, weights: Any) -> Callable[[], Any]:
    n = x.shape[-1]
    size = 2 * n

    def run() -> Any:
        return torch.fft.irfft(torch.fft.rfft(weights, size) * torch.fft.rfft(x, size), size)[..., :n]

    return run


def orders(shape: tuple[int, ...], dtype: Any, device: str, seconds: float) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds and operations of the bare pair, and of operators with an order that learns and with a plain one."""
    x = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    weights = torch.randn(shape[-1], dtype=dtype, device=device, requires_grad=True)
    plain = weights.detach()
    layer = ml.FractionalDerivative(ml.LearnableOrder(0.6)).to(device)
    alpha = torch.tensor(0.6, dtype=torch.float64, device=device, requires_grad=True)

    def learned(operator: Callable[..., Any], **options: Any) -> Callable[[], Any]:
        return backward(lambda: operator(x, alpha=alpha, step=0.5, **options), x, alpha)

    contestants = {
        "bare pair": backward(bare_pair(x, weights), x, weights),
        "FractionalDerivative": backward(lambda: layer(x), x, layer.order.rho),
        "grunwald_letnikov": learned(hf.grunwald_letnikov),
        "caputo": learned(hf.caputo),
        "riemann_liouville": learned(hf.riemann_liouville),
        "riemann_liouville_integral": learned(hf.riemann_liouville_integral),
    }
    if device == "cuda":
        contestants["caputo, ceiling=1"] = learned(hf.caputo, ceiling=1)
        contestants["riemann_liouville, ceiling=1"] = learned(hf.riemann_liouville, ceiling=1)
    contestants["bare pair, plain weights"] = backward(bare_pair(x, plain), x)
    for operator in (hf.caputo, hf.riemann_liouville, hf.riemann_liouville_integral):
        contestants[f"{operator.__name__}, plain order"] = backward(
            lambda operator=operator: operator(x, alpha=0.6, step=0.5), x
        )
    found = timed_in_rounds(contestants, seconds, torch.cuda.synchronize if device == "cuda" else None)
    return found, {name: count(run) for name, run in contestants.items()}


def layers(dtype: Any, device: str, seconds: float, rows: int) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds and operations of layers, and of what they are made of."""
    x = torch.randn(rows, 1024, dtype=dtype, device=device, requires_grad=True)
    signals = torch.randn(max(1, rows // 16), 16, 1024, dtype=dtype, device=device, requires_grad=True)
    layer = ml.FractionalLayer(0.6, input_dim=1024, output_dim=64).to(device=device, dtype=dtype)
    conv = ml.FractionalConv1d(16, 16, 9, 0.6, padding=4).to(device=device, dtype=dtype)
    operator = hf.GrunwaldLetnikov(0.6)
    assert layer.linear is not None
    contestants = {
        "operator + linear": backward(lambda: layer.linear(operator(x, step=1.0)), x, layer.linear.weight),
        "FractionalLayer": backward(lambda: layer(x), x, layer.linear.weight),
        "operator + conv1d": backward(lambda: conv.conv(operator(signals, step=1.0)), signals, conv.conv.weight),
        "FractionalConv1d": backward(lambda: conv(signals), signals, conv.conv.weight),
    }
    found = timed_in_rounds(contestants, seconds, torch.cuda.synchronize if device == "cuda" else None)
    return found, {name: count(run) for name, run in contestants.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", nargs="+", type=shape_of, default=[(64, 1024), (65_536,)])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--rows", type=int, default=64, help="of the layers' samples")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--neural", type=int, nargs="*", default=[], help="steps of neural fractional equations")
    options = parser.parse_args()
    print(heading(f"Learning, {options.device}: forward and backward"))
    rows: list[list[str]] = []
    record: dict[str, Any] = {}

    def add(size: str, name: str, found: dict[str, float], operations: dict[str, int], floor: str) -> None:
        ratio = f"{found[name] / found[floor]:.2f}"
        rows.append([size, name, f"{found[name] * 1e3:.3f}", ratio, str(operations[name]), floor])

    for dtype in options.dtypes:
        for shape in options.sizes:
            size = f"{'x'.join(map(str, shape))} {dtype}"
            found, operations = orders(shape, getattr(torch, dtype), options.device, options.seconds)
            record[size] = found
            for name in found:
                add(size, name, found, operations, "bare pair, plain weights" if "plain" in name else "bare pair")
        size = f"{options.rows}x1024 {dtype}"
        found, operations = layers(getattr(torch, dtype), options.device, options.seconds, options.rows)
        record[f"layers {size}"] = found
        add(size, "FractionalLayer", found, operations, "operator + linear")
        add(size, "FractionalConv1d", found, operations, "operator + conv1d")
    for steps in options.neural:
        row = measure(steps, 256, options.device, ["stored"], 2)
        record[f"neural {steps}"] = row
        bare = row["bare"]
        floor = f"2n evaluations, {bare * 1e3:.1f} ms"
        rows += [
            [f"{steps} steps", f"NeuralFODE {name}", f"{row[name] * 1e3:.1f}", f"{row[name] / bare:.2f}", "-", floor]
            for name in ("forward", "stored")
        ]
    print_table(["size", "what", "ms", "ratio", "ops", "to"], rows)
    write_json("learning" if options.device == "cpu" else "learning-cuda", record)


if __name__ == "__main__":
    main()
