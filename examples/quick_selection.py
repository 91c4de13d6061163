"""Quick selection: ask which backend would finish a piece of work soonest, then let the engine do it.

Run with ``python examples/quick_selection.py``.
"""

from __future__ import annotations

import numpy as np

import hpfracc as hf


def main() -> None:
    """Select for a few workloads, then run one and say why it ran where it did."""
    for operation, shape in [("matmul", (64, 64)), ("fft", (1_000_000,)), ("caputo_derivative", (10_000,))]:
        print(f"{operation:>18} {shape!s:>12}: {hf.select_optimal_backend(operation, shape).value}")

    # The engine's own operations select by themselves; nothing has to be asked first.
    weights, signal = 0.5 ** np.arange(10_000), np.random.default_rng(0).standard_normal(10_000)
    result = hf.causal_convolution(weights, signal)
    print(f"\nconvolved {result.size} points on {hf.last_decision().arm}")
    print(hf.explain(hf.causal_convolution, weights, signal))


if __name__ == "__main__":
    main()
