"""Weights of an order that learns on a GPU, made by one kernel: as on the host, with their slopes."""

from __future__ import annotations

import pytest

import hpfracc as hf
from hpfracc.operators.core import order_tables
from tests.helpers.recorded import operations, steps

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)
pytestmark = pytest.mark.gpu

OPERATORS = (hf.grunwald_letnikov, hf.caputo, hf.riemann_liouville, hf.riemann_liouville_integral)


def gradients(operator, x, alpha, **options):
    result = operator(x, alpha=alpha, step=0.25, **options)
    weights = torch.linspace(0.5, 1.5, result.shape[-1], dtype=x.dtype, device=x.device)
    loss = (result[..., 1:] * weights[1:]).sum()
    return (result[..., 1:].detach(), *torch.autograd.grad(loss, (x, alpha)))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
@pytest.mark.parametrize("shape", [(7,), (3, 300), (5000,), (2, 140_001)])
@pytest.mark.parametrize("alpha", [1e-7, 0.6, 1.0])
def test_as_on_the_host(operator, shape, alpha):
    generator = torch.Generator().manual_seed(3)
    x = torch.cumsum(torch.randn(shape, dtype=torch.float64, generator=generator), -1)
    found = []
    for device in ("cpu", "cuda"):
        order = torch.tensor(alpha, dtype=torch.float64, device=device, requires_grad=True)
        found.append(gradients(operator, x.to(device).requires_grad_(), order))
    for host, device in zip(*found, strict=True):
        # Slopes at the first samples are small differences of long sums.
        allowed = (1e-12 + 3e-15 * shape[-1]) * float(host.abs().max())
        assert float((device.cpu() - host).abs().max()) < allowed


@pytest.mark.parametrize("operator", [hf.riemann_liouville, hf.riemann_liouville_integral])
def test_long_rows_of_single_precision_are_those_of_double(operator):
    generator = torch.Generator().manual_seed(4)
    x = torch.cumsum(torch.randn((2, 30_001), generator=generator), -1).cuda()
    order = torch.tensor(0.4, dtype=torch.float64, device="cuda", requires_grad=True)
    single = gradients(operator, x.clone().requires_grad_(), order)
    double = gradients(operator, x.double().requires_grad_(), order)
    for one, two in zip(single, double, strict=True):
        assert float((one.double() - two).abs().max() / two.abs().max()) < 5e-4


def test_samples_of_single_precision():
    x = torch.randn(4, 20_000, device="cuda")
    order = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
    single = gradients(hf.caputo, x.clone().requires_grad_(), order)
    double = gradients(hf.caputo, x.double().requires_grad_(), order)
    for one, two in zip(single, double, strict=True):
        assert float((one.double() - two).abs().max() / two.abs().max()) < 5e-4


def test_one_kernel_makes_all_weights():
    calls = []
    x = torch.randn(20_000, dtype=torch.float64, device="cuda")
    order = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)
    usual = order_tables._Evaluation.by_kernel

    def counted(self, value):
        calls.append(self.key)
        return usual(self, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_tables._Evaluation, "by_kernel", counted)
        hf.caputo(x, alpha=order, step=0.5)
    assert len(calls) == 1


@pytest.mark.parametrize("n", [20_000, 140_001])
@pytest.mark.parametrize(
    ("operator", "recorded", "more"), [(hf.riemann_liouville, 4, 14), (hf.riemann_liouville_integral, 3, 11)]
)
def test_operators_take_few_more_operations_than_caputo(operator, recorded, more, n):
    """For the value at the origin, or to merge weights at even and odd lags; the sum adds the starting weights."""
    x = torch.cumsum(torch.randn(n, dtype=torch.float64, device="cuda"), -1).requires_grad_()
    order = torch.tensor(0.6, dtype=torch.float64, device="cuda", requires_grad=True)

    def both(operator):
        value = operator(x, alpha=order, step=0.25)
        torch.autograd.grad(value, (x, order), torch.ones_like(value))

    assert len(steps(operator(x, alpha=order, step=0.25))) <= recorded
    assert len(operations(lambda: both(operator))) <= len(operations(lambda: both(hf.caputo))) + more


def test_a_hidden_order_outside_its_interval_is_nan():
    x = torch.randn(5000, dtype=torch.float64, device="cuda")
    for value, finite in ((0.5, True), (1.0, True), (0.0, False), (1.5, False), (-0.5, False)):
        order = torch.tensor(value, dtype=torch.float64, device="cuda", requires_grad=True)
        result = hf.caputo(x, alpha=order, step=0.5, ceiling=1)
        assert bool(torch.isfinite(result[1:]).all()) is finite, value


def test_slopes_that_are_not_finite_reach_the_order():
    x = torch.randn(3, 500, dtype=torch.float64, device="cuda")
    order = torch.tensor(0.5, dtype=torch.float64, device="cuda", requires_grad=True)
    result = hf.caputo(x, alpha=order, step=0.5)
    slope = torch.ones_like(result)
    slope[1, 100] = torch.inf
    (change,) = torch.autograd.grad(result, order, slope)
    assert bool(change.isnan())
