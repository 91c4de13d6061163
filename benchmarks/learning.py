"""Learning: an order that carries a gradient, and layers, against the bare operations that they are made of.

Run with ``python benchmarks/learning.py [--device cuda] [--sizes 4096x1024 1000000 10000000] [--seconds 1]``. All
contestants of a size take turns in one run, forward and backward. The bare pair is rfft, product, irfft with a gradient
to samples and weights (the bar: 1.5 with an order that learns, 1.3 with a plain order). A layer is compared with its
operator followed by ``torch.nn.Linear`` (1.1), a convolution with its operator followed by ``torch.nn.Conv1d`` (1.2).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _common import heading, print_table, timed_in_rounds, write_json

import hpfracc as hf
from hpfracc import ml


def shape_of(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def backward(run: Callable[[], Any], *wanted: Any) -> Callable[[], Any]:
    """Forward and backward, with a slope of ones that is made once."""
    slope = torch.ones_like(run())

    def both() -> Any:
        return torch.autograd.grad(run(), wanted, slope)

    return both


def bare_pair(x: Any, weights: Any) -> Callable[[], Any]:
    n = x.shape[-1]
    size = 2 * n

    def run() -> Any:
        return torch.fft.irfft(torch.fft.rfft(weights, size) * torch.fft.rfft(x, size), size)[..., :n]

    return run


def orders(shape: tuple[int, ...], dtype: Any, device: str, seconds: float) -> dict[str, float]:
    """Seconds of the bare pair, and of operators with an order that learns and with a plain one."""
    x = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    weights = torch.randn(shape[-1], dtype=dtype, device=device, requires_grad=True)
    plain = weights.detach()
    layer = ml.FractionalDerivative(ml.LearnableOrder(0.6)).to(device)
    alpha = torch.tensor(0.6, dtype=torch.float64, device=device, requires_grad=True)
    integral = torch.tensor(0.6, dtype=torch.float64, device=device, requires_grad=True)
    contestants = {
        "bare pair": backward(bare_pair(x, weights), x, weights),
        "FractionalDerivative": backward(lambda: layer(x), x, layer.order.rho),
        "caputo": backward(lambda: hf.caputo(x, alpha=alpha, step=0.5), x, alpha),
        "riemann_liouville_integral": backward(
            lambda: hf.riemann_liouville_integral(x, alpha=integral, step=0.5), x, integral
        ),
        "bare pair, plain weights": backward(bare_pair(x, plain), x),
        "caputo, plain order": backward(lambda: hf.caputo(x, alpha=0.6, step=0.5), x),
    }
    return timed_in_rounds(contestants, seconds, torch.cuda.synchronize if device == "cuda" else None)


def layers(dtype: Any, device: str, seconds: float, rows: int) -> dict[str, float]:
    """Seconds of layers, and of what they are made of."""
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
    return timed_in_rounds(contestants, seconds, torch.cuda.synchronize if device == "cuda" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", nargs="+", type=shape_of, default=[(64, 1024), (65_536,)])
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--rows", type=int, default=64, help="of the layers' samples")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    print(heading(f"Learning, {options.device}: forward and backward"))
    rows: list[list[str]] = []
    record: dict[str, Any] = {}

    def add(size: str, name: str, found: dict[str, float], floor: str) -> None:
        rows.append([size, name, f"{found[name] * 1e3:.3f}", f"{found[name] / found[floor]:.2f}", floor])

    for dtype in options.dtypes:
        for shape in options.sizes:
            size = f"{'x'.join(map(str, shape))} {dtype}"
            found = orders(shape, getattr(torch, dtype), options.device, options.seconds)
            record[size] = found
            for name in found:
                add(size, name, found, "bare pair, plain weights" if "plain" in name else "bare pair")
        size = f"{options.rows}x1024 {dtype}"
        found = layers(getattr(torch, dtype), options.device, options.seconds, options.rows)
        record[f"layers {size}"] = found
        add(size, "FractionalLayer", found, "operator + linear")
        add(size, "FractionalConv1d", found, "operator + conv1d")
    print_table(["size", "what", "ms", "ratio", "to"], rows)
    write_json("learning" if options.device == "cpu" else "learning-cuda", record)


if __name__ == "__main__":
    main()
