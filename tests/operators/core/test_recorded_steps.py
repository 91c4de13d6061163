"""What autograd records of operators with a learnable order: few steps, with the values and gradients of many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from tests.helpers.recorded import steps

torch = pytest.importorskip("torch")

STEP = 0.05


def tracked(value: Any) -> Any:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def wave(n: int) -> np.ndarray:
    t = np.linspace(0.0, 3.0, n)
    return np.cos(2.0 * t) + t**2 + 0.3


@pytest.mark.parametrize(
    ("operator", "method", "n", "most"),
    [
        (hf.caputo, "l1-2", 1000, 2),
        (hf.riemann_liouville, "l1-2", 1000, 4),
        (hf.riemann_liouville, "l1-2", 20_001, 4),
        (hf.riemann_liouville, "l1", 1000, 4),
        (hf.riemann_liouville_integral, "simpson", 1000, 2),
        (hf.riemann_liouville_integral, "simpson", 20_000, 3),
        (hf.riemann_liouville_integral, "simpson", 20_001, 3),
    ],
)
def test_few_steps_are_recorded(operator: Any, method: str, n: int, most: int):
    """The weights, the sum, and one or two more: the value at the origin, or weights at even and odd lags."""
    x, alpha = tracked(wave(n)), tracked(0.4)
    for _ in range(2):
        found = steps(operator(x, alpha=alpha, step=STEP, method=method))
        assert len(found) <= most, found


def composed(x: Any, alpha: Any, step: Any, method: str) -> Any:
    """Riemann-Liouville beyond the origin: Caputo plus the initial term."""
    n = x.shape[-1]
    points = torch.arange(1, n, dtype=torch.float64) * step
    term = points**-alpha * torch.exp(-torch.lgamma(1.0 - alpha))
    return hf.caputo(x, alpha=alpha, step=step, method=method)[..., 1:] + x[..., :1] * term


@pytest.mark.parametrize("method", ["l1-2", "l1"])
@pytest.mark.parametrize("rows", [(), (3,)])
@pytest.mark.parametrize("n", [2, 300, 5000])
def test_riemann_liouville_is_caputo_and_its_initial_term(method: str, rows: tuple[int, ...], n: int):
    """Value and gradients in samples, order and step are those of the composition."""
    scale = np.array([1.0, -2.0, 0.5])[: math.prod(rows)].reshape(*rows, 1)
    given = tracked(wave(n) * scale), tracked(0.37), tracked(STEP)
    found = hf.riemann_liouville(given[0], alpha=given[1], step=given[2], method=method)[..., 1:]
    right = composed(*given, method)
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12 * float(right.detach().abs().max()))
    slope = torch.linspace(-1.0, 2.0, n - 1, dtype=torch.float64).expand(found.shape)
    for one, other in zip(
        torch.autograd.grad(found, given, slope), torch.autograd.grad(right, given, slope), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12 * n * float(other.abs().max()))


@pytest.mark.parametrize("n", [20_000, 20_001])
def test_long_integrals_have_the_gradients_of_every_transform(n: int):
    """Autograd's steps, the compositions of ``torch.func``, second derivatives and forward mode agree."""
    x = torch.tensor(wave(n))

    def loss(alpha: Any) -> Any:
        return (hf.riemann_liouville_integral(x, alpha=alpha, step=1e-3) ** 2).mean()

    alpha, plain = tracked(0.6), torch.tensor(0.6, dtype=torch.float64)
    (first,) = torch.autograd.grad(loss(alpha), alpha, create_graph=True)
    (second,) = torch.autograd.grad(first, alpha)
    assert float(torch.func.grad(loss)(plain)) == pytest.approx(float(first.detach()), rel=1e-10)
    assert float(torch.func.grad(torch.func.grad(loss))(plain)) == pytest.approx(float(second), rel=1e-9)
    _, tangent = torch.func.jvp(loss, (plain,), (torch.ones_like(plain),))
    assert float(tangent) == pytest.approx(float(first.detach()), rel=1e-10)
    mapped = torch.func.vmap(loss)(torch.stack([plain - 0.1, plain]))
    assert float(mapped[1]) == pytest.approx(float(loss(plain)), rel=1e-11)


def test_the_infinite_value_at_the_origin_has_no_gradient():
    """A slope there that is not finite reaches nothing, and the result can be written to."""
    x, alpha = tracked(wave(50)), tracked(0.6)
    value = hf.riemann_liouville(x, alpha=alpha, step=STEP)
    assert float(value.detach()[0]) == math.inf
    slope = torch.ones_like(value)
    right = torch.autograd.grad(value[1:], (x, alpha), slope[1:], retain_graph=True)
    slope[0] = torch.nan
    for one, other in zip(torch.autograd.grad(value, (x, alpha), slope, retain_graph=True), right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    value[0] = 0.0
    for one, other in zip(torch.autograd.grad(value.sum(), (x, alpha)), right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("library", ["numpy", "torch", "learned"])
def test_repeated_calls_read_nothing_anew_and_keep_the_origin(library: str, dtype: str):
    """A call that was seen before gives the sign at the origin, and nan from a bad sample on, of its own samples."""
    alpha: Any = tracked(0.43) if library == "learned" else 0.43
    base = wave(64).astype(dtype)
    late, early = base.copy(), base.copy()
    late[20], early[0] = np.nan, np.inf
    allowed = 1e-12 if dtype == "float64" else 1e-4
    right = np.asarray(hf.caputo(base.astype("float64"), alpha=0.43, step=STEP))[1:]
    right = right + float(base[0]) * (np.arange(1, 64) * STEP) ** -0.43 / math.gamma(1.0 - 0.43)
    for _ in range(3):
        for sign, origin in ((1.0, math.inf), (-1.0, -math.inf)):
            values = (sign * base).astype(dtype)
            given = values if library == "numpy" else torch.from_numpy(values)
            found = hf.riemann_liouville(given, alpha=alpha, step=STEP)
            found = found.detach().numpy() if library != "numpy" else found
            assert found.dtype == dtype and found[0] == origin
            np.testing.assert_allclose(found[1:], sign * right, rtol=allowed, atol=allowed)
        for values, finite, origin in ((late, 20, math.inf), (early, 1, math.nan), (base - base[0], 64, 0.0)):
            given = values if library == "numpy" else torch.from_numpy(values)
            found = hf.riemann_liouville(given, alpha=alpha, step=STEP)
            found = found.detach().numpy() if library != "numpy" else found
            np.testing.assert_equal(found[0], np.dtype(dtype).type(origin))
            assert np.isfinite(found[1:finite]).all() and not np.isfinite(found[finite:]).any()
