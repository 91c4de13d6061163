"""Quick selection: ask which backend is fastest for a workload, then let the engine run it.

Run with ``python examples/quick_selection.py``.
"""

from __future__ import annotations

import numpy as np

import hpfracc as hf


def main() -> None:
    """Select backends for a few workloads, then run one and explain the choice."""
    for operation, shape in [("matmul", (64, 64)), ("fft", (1_000_000,)), ("caputo_derivative", (10_000,))]:
        print(f"{operation:>18} {shape!s:>12}: {hf.select_optimal_backend(operation, shape).value}")

    # The engine's operations select automatically.
    weights, signal = 0.5 ** np.arange(10_000), np.random.default_rng(0).standard_normal(10_000)
    result = hf.causal_convolution(weights, signal)
    print(f"\nconvolved {result.size} points on {hf.last_decision().arm}")
    print(hf.explain(hf.causal_convolution, weights, signal))


if __name__ == "__main__":
    main()
