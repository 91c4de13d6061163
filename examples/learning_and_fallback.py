"""A selector that learns from your own functions and falls back when a backend fails.

Run with ``python examples/learning_and_fallback.py``.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

import hpfracc as hf

workload = hf.WorkloadCharacteristics("graph", data_size=200_000, data_shape=(200_000,))
data = np.random.default_rng(1).standard_normal(200_000)


def smooth() -> np.ndarray:
    """Two engine calls, which run on the backend that the selector tries."""
    return hf.elementwise("tanh(x)", x=hf.causal_convolution(np.ones(32) / 32.0, data))


def unreliable(backend: hf.BackendType) -> float:
    """A function that takes the backend, and works with NumPy only."""
    if backend is not hf.BackendType.NUMPY:
        raise RuntimeError(f"no kernel for {backend.value}")
    return float(data.std())


def main() -> None:
    """Run both under a selector, then print its records."""
    selector = hf.IntelligentBackendSelector()
    installed = [hf.BackendType.NUMPY, *([hf.BackendType.NUMBA] if find_spec("numba") else [])]
    for backend in installed:
        for _ in range(3):
            selector.execute_with_monitoring("graph", backend, smooth, workload)
    print(f"fastest so far for 'graph': {selector.select_backend(workload).value}")

    deviation = selector.execute_with_monitoring(
        "deviation", installed[-1], unreliable, workload, fallback_backends=[hf.BackendType.NUMPY]
    )
    print(f"standard deviation {deviation:.4f}, after {len(installed) - 1} fallback")

    for (backend, operation), row in selector.get_performance_summary()["operation_stats"].items():
        runs = f"{row['count']} runs, {row['failures']} failures"
        print(f"{backend.value:>6} {operation:>10}: {runs}, {row['avg_time']:.2e} s")


if __name__ == "__main__":
    main()
