"""An operation of your own: ten lines give it selection, learning, fallback and explanations.

Run with ``python examples/own_operation.py``.
"""

from __future__ import annotations

import numpy as np

import hpfracc as hf


# [start]
@hf.operation(work=lambda x: x.size)
def root_mean_square(x):
    """Root mean square along the last axis."""
    return np.sqrt(np.mean(x * x, axis=-1))


@root_mean_square.kernel("torch")
def _(x):
    return (x * x).mean(-1).sqrt()


# [end]


def main() -> None:
    """Call the operation, and explain the choice."""
    signal = np.random.default_rng(2).standard_normal((8, 4096))
    print(root_mean_square(signal))
    print(hf.explain(root_mean_square, signal))


if __name__ == "__main__":
    main()
