"""The gradient of a fractional solve: the transpose of the steps, with its limit and its memory.

Run with ``python examples/learning/gradients.py [--quick]``. D^0.6 y = -theta y, y(0) = theta = 1: dy(1)/dtheta is
-0.285170472307. An adjoint equation of Caputo's kind that starts at the gradient in y(1) gives -0.31 to -0.34.
"""

from __future__ import annotations

import argparse
import time

import torch

from hpfracc.ml.torch.neural_fode import NeuralFODE

EXACT = -0.285170472307


def slope(adjoint: str, steps: int) -> tuple[float, float]:
    """dy(1)/dtheta and processor seconds."""
    theta = torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
    model = NeuralFODE(lambda t, y: -theta * y, 0.6, step=1.0 / steps, adjoint=adjoint)
    begin = time.process_time()
    model(torch.ones(1, dtype=torch.float64), [0.0, 1.0])[-1].sum().backward()
    return float(theta.grad), time.process_time() - begin


def main() -> None:
    """Print the error of each adjoint for smaller and smaller steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps")
    quick = parser.parse_args().quick
    print(f"{'steps':>6} {'adjoint':<12} {'dy(1)/dtheta':>16} {'error':>10} {'seconds':>9}")
    for steps in (32, 64) if quick else (64, 256, 1024, 4096):
        for adjoint in ("stored", "recomputed") if steps > 256 else ("stored", "recomputed", "direct"):
            found, seconds = slope(adjoint, steps)
            print(f"{steps:>6} {adjoint:<12} {found:>16.12f} {abs(found - EXACT):>10.2e} {seconds:>9.3f}")
    print(f"{'exact':>6} {'':<12} {EXACT:>16.12f}")


if __name__ == "__main__":
    main()
