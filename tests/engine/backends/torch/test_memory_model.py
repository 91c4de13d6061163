"""Memory models of PyTorch's kernels on a GPU against what they hold when they run on tensors without data.

Tensors of the device ``meta`` take the code paths of a GPU, because they are not on the host, and no memory. So all
tensors that are alive at once are counted, at sizes that fill a GPU. What an operation takes inside is not seen:
cuFFT's work area is left out, and the copy that a transform back to real numbers overwrites is added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from hpfracc.engine.backends import cuda, registry  # noqa: E402
from hpfracc.engine.backends.base import Arm  # noqa: E402
from hpfracc.engine.numerics import mittag_leffler_values  # noqa: E402
from hpfracc.engine.primitives import PRIMITIVES  # noqa: E402
from hpfracc.engine.primitives.base import ArraySpec, Call  # noqa: E402
from hpfracc.engine.selection.call_memory import modelled_bytes  # noqa: E402
from tests.helpers.thinned import thinned  # noqa: E402

Shapes = list[tuple[int, ...]]
WAVES = {"axes": (0, 1)}
CASES: list[tuple[str, str, Shapes, str, dict[str, Any]]] = [
    ("causal_convolution", "direct", [(600,), (9000, 600)], "float32", {}),
    ("causal_convolution", "direct", [(50,), (60_000, 100)], "complex128", {}),
    ("causal_convolution", "direct", [(6, 1, 100), (6, 2000, 100)], "float64", {}),
    ("causal_convolution", "fft", [(999,), (2, 3000, 999)], "float32", {}),
    ("causal_convolution", "fft", [(4, 1, 500), (4, 2000, 1700)], "float64", {}),
    ("causal_convolution", "fft", [(200, 640), (200, 6400)], "complex64", {}),
    ("causal_convolution", "fft", [(900,), (800_000,)], "complex128", {}),
    ("causal_convolution", "fft", [(3000,), (30, 30_000)], "float32", {"differences": True}),
    ("causal_convolution", "blocked", [(3, 1, 200), (3, 40, 30_000)], "complex64", {}),
    ("causal_convolution", "blocked", [(900,), (800_000,)], "complex128", {}),
    ("causal_convolution", "blocked", [(5, 1, 2000), (5, 6, 200_000)], "float64", {}),
    ("causal_convolution", "blocked", [(3000,), (30, 30_000)], "float32", {"differences": True}),
    ("fft", "default", [(3000, 700)], "float32", {"kind": "fft", "n": 900}),
    ("fft", "default", [(3000, 700)], "complex64", {"kind": "ifft", "n": 500}),
    ("fft", "default", [(3000, 700)], "complex128", {"kind": "irfft", "n": 2000}),
    ("elementwise", "default", [(3000, 1), (1, 2000)], "float64", {"expression": "x*y + sin(x)", "names": ("x", "y")}),
    ("elementwise", "default", [(3000, 1000)], "float64", {"expression": "1/(1 + x*x)", "names": ("x",)}),
    ("elementwise", "default", [(3000, 1000)], "complex64", {"expression": "abs(x) + 1/abs(x)", "names": ("x",)}),
    (
        "elementwise",
        "default",
        [(900, 900)] * 2,
        "float32",
        {"expression": "where(x > y, x, y*y)", "names": ("x", "y")},
    ),
    ("history_sum", "direct", [(3000,), (40, 3000), ()], "float64", {"kernel": "power"}),
    ("history_sum", "direct", [(5000,), (5000,), (), ()], "float64", {"kernel": "tempered"}),
    ("history_sum", "direct", [(600,), (6000, 600), (40,), (40,)], "float32", {"kernel": "tabulated"}),
    ("history_sum", "direct", [(300,), (2, 3000, 300), ()], "complex64", {"kernel": "logarithmic"}),
    ("exponential_recurrence", "blocked", [(7,), (7,), (), (50, 70_000), (7,)], "float64", {"lagged": True}),
    ("exponential_recurrence", "blocked", [(90,), (90,), (), (3000, 1000), (90,)], "float32", {}),
    ("exponential_recurrence", "blocked", [(90,), (90,), (400,), (5000, 400), (90,)], "complex64", {"final": True}),
    ("tridiagonal_solve", "reduction", [(400, 5000)] * 4, "float64", {}),
    ("tridiagonal_solve", "reduction", [(5000,), (5000,), (5000,), (400, 5000)], "complex64", {}),
    ("chirp_transform", "fft", [(40, 5000), (40, 6)], "complex64", {}),
    ("chirp_transform", "fft", [(400, 5000), (3,)], "float64", {"points": 20_000}),
    ("chirp_transform", "fft", [(4, 1, 5000), (40, 3)], "complex128", {"points": 100}),
    ("toeplitz_apply", "direct", [(3, 1, 40), (3, 4000, 300)], "float64", {}),
    ("toeplitz_apply", "direct", [(300, 1), (300, 8000)], "float32", {"axes": 0}),
    ("toeplitz_apply", "direct", [(40, 1), (300, 8000)], "complex64", {"axes": 0}),
    ("toeplitz_apply", "fft", [(3, 1, 300), (3, 4000, 300)], "float32", {}),
    ("toeplitz_apply", "fft", [(3, 1, 300), (4000, 300)], "float64", {}),
    ("toeplitz_apply", "fft", [(40,), (8000, 300)], "float32", {}),
    ("toeplitz_apply", "fft", [(40, 1), (300, 8000)], "complex64", {"axes": 0}),
    ("toeplitz_apply", "fft", [(30, 30, 30), (5, 60, 60, 60)], "float64", {"axes": (1, 2, 3)}),
    ("spectral_multiply", "fft", [(400, 500), (30, 400, 500)], "float32", {"axes": (1, 2)}),
    ("spectral_multiply", "fft", [(30, 400, 500), (400, 500)], "complex64", {"axes": (-2, -1)}),
    ("spectral_multiply", "fft", [(7000, 1), (7000, 500)], "float64", {"axes": 0}),
    ("spectral_multiply", "fft", [(400, 5000)] * 2, "float32", {**WAVES, "kinds": ("dct1", "dct2")}),
    ("spectral_multiply", "fft", [(400, 5000)] * 2, "float64", {**WAVES, "kinds": ("dst1", "fft")}),
    ("spectral_multiply", "fft", [(400, 5000)] * 2, "float64", {**WAVES, "kinds": "dct1"}),
    ("spectral_multiply", "fft", [(400, 5000)] * 2, "complex64", {**WAVES, "kinds": ("fft", "dst2")}),
    ("spectral_multiply", "fft", [(400, 5000)] * 2, "complex128", {**WAVES, "kinds": "dct2"}),
]


class Peak(TorchDispatchMode):  # type: ignore[misc]
    """Bytes of all tensors that operations made and that still live, at their most."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.living: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count what is new after an operation, when its operands live beside it."""
        given = {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs or {}))}
        self.living = {key: pair for key, pair in self.living.items() if not pair[0].expired()}
        result = operation(*args, **kwargs or {})
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in given:
                self.living.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        spoilt = args[0].nbytes if "_fft_c2r" in str(operation) else 0
        self.most = max(self.most, spoilt + sum(size for _, size in self.living.values()))
        return result


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _dtypes(name: str, count: int, dtype: str) -> list[str]:
    """Rates, times and symbols are real; what is sampled has the dtype."""
    real = {"history_sum": (0, 2, 3), "exponential_recurrence": (0, 1, 2), "chirp_transform": (1,)}.get(name, ())
    symbol = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    kinds = ["float64" if number in real else dtype for number in range(count)]
    return [symbol, *kinds[1:]] if name == "spectral_multiply" else kinds


def _predicted(name: str, algorithm: str, call: Call) -> int:
    (spec,) = [spec for spec in registry.specs(name, "torch") if spec.algorithm == algorithm]
    return modelled_bytes(PRIMITIVES[name], call, Arm("torch", spec, "cuda:0"))


@pytest.mark.parametrize(("name", "algorithm", "shapes", "dtype", "params"), CASES)
@thinned(one_in=2)
def test_prediction_is_within_a_factor_of_2(
    monkeypatch: pytest.MonkeyPatch, name: str, algorithm: str, shapes: Shapes, dtype: str, params: dict[str, Any]
) -> None:
    """Within a factor of 2."""
    monkeypatch.setattr(cuda, "work_bytes", lambda transform: 0)
    primitive, dtypes = PRIMITIVES[name], _dtypes(name, len(shapes), dtype)
    call = primitive.describe(*map(ArraySpec, shapes, dtypes), **params)
    operands = [
        torch.empty(shape, dtype=getattr(torch, kind), device="meta")
        for shape, kind in zip(shapes, dtypes, strict=True)
    ]
    with Peak() as peak:
        registry.kernel(name, "torch", algorithm).run(*operands, **params)
    assert 0.5 < _predicted(name, algorithm, call) / (call.input_bytes + peak.most) < 2.0


@pytest.mark.parametrize(("dtype", "alpha"), [("float64", 0.7), ("float32", 0.9), ("complex128", 0.7)])
@pytest.mark.parametrize("width", [6.0, 0.1])
@thinned(lambda dtype, width: (dtype == "float64") == (width == 6.0))
def test_fractions_take_what_is_predicted_wherever_z_lies(
    monkeypatch: pytest.MonkeyPatch, dtype: str, alpha: float, width: float
) -> None:
    """Spread over all bands, or all in one of them. Values decide, so the host runs in blocks of a GPU's size."""
    n = 100_000
    monkeypatch.setattr(mittag_leffler_values, "_BLOCK", mittag_leffler_values.values_together(n))
    z = torch.from_numpy((-3.0 - width * (np.random.default_rng(0).random(n) - 0.5)).astype(dtype))
    call = PRIMITIVES["mittag_leffler"].describe(z, alpha=alpha)
    with Peak() as peak:
        registry.kernel("mittag_leffler", "torch", "contour").run(z, alpha=alpha)
    assert 0.5 < _predicted("mittag_leffler", "contour", call) / (call.input_bytes + peak.most) < 2.0
