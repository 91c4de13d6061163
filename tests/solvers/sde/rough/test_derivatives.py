"""Derivatives of prices: Greeks, and parameters that are tensors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.rough import Heston

MODEL = Heston(H=0.1, v0=0.04, theta=0.06, kappa=0.8, sigma=0.4, rho=-0.7, S0=100.0, r=0.03, q=0.01)
FLAT = Heston(H=0.1, xi=0.05, kappa=0.8, sigma=0.4, rho=-0.7, S0=100.0, r=0.03)
K, T = np.array([85.0, 120.0]), 0.5


def priced(model, K=K, T=T, kind="call"):
    """Prices to nearly all digits."""
    return model.price(K, T, kind=kind, rtol=1e-12).value


@pytest.mark.parametrize(("model", "kind"), [(MODEL, "call"), (FLAT, "put")])
def test_greeks_are_differences_of_exact_prices(model, kind):
    """Each derivative is the central difference of the price, and gamma the second one."""
    found = model.greeks(K, T, kind=kind, rtol=1e-11)
    names = {"H", "kappa", "sigma", "rho", "S0", "r", "q"} | ({"v0", "theta"} if model is MODEL else {"xi"})
    assert set(found) == names | {"K", "T", "gamma"}
    for name in names:
        h = 2e-4 * max(abs(getattr(model, name)), 0.01)
        up, down = (priced(dataclasses.replace(model, **{name: getattr(model, name) + c}), kind=kind) for c in (h, -h))
        np.testing.assert_allclose(found[name], (up - down) / (2.0 * h), rtol=1e-5, atol=1e-6, err_msg=name)
    up, down = (priced(model, T=T + h, kind=kind) for h in (1e-4, -1e-4))
    np.testing.assert_allclose(found["T"], (up - down) / 2e-4, rtol=1e-5)
    up, down = (priced(model, K=K + h, kind=kind) for h in (1e-2, -1e-2))
    np.testing.assert_allclose(found["K"], (up - down) / 2e-2, rtol=1e-5)
    up, down = (dataclasses.replace(model, S0=100.0 + h).greeks(K, T, kind=kind)["S0"] for h in (1e-2, -1e-2))
    np.testing.assert_allclose(found["gamma"], (up - down) / 2e-2, rtol=1e-5)


def test_gradients_in_torch():
    """Tensor parameters, strikes and maturities give the Greeks, backwards and forwards; second derivatives are nan."""
    torch = pytest.importorskip("torch")
    names = ("H", "v0", "theta", "kappa", "sigma", "rho", "S0", "r", "q")
    given = {name: torch.tensor(getattr(MODEL, name), dtype=torch.float64, requires_grad=True) for name in names}
    strikes = torch.tensor(K, requires_grad=True)
    value, error = Heston(**given).price(strikes, T)
    np.testing.assert_allclose(value.detach().numpy(), MODEL.price(K, T).value, rtol=1e-14)
    assert np.all(error < 1e-5)
    value.sum().backward()
    greeks = MODEL.greeks(K, T)
    for name in names:
        assert float(given[name].grad) == pytest.approx(float(greeks[name].sum()), rel=1e-12)
    np.testing.assert_allclose(strikes.grad.numpy(), greeks["K"], rtol=1e-12)
    assert torch.isnan(
        torch.func.hessian(lambda s: dataclasses.replace(MODEL, S0=s).price(100.0, T).value)(given["S0"])
    )


def test_gradients_in_jax():
    """The same with JAX's grad; under jit the value is needed, and the message says so."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):

        def price(sigma, K):
            return dataclasses.replace(MODEL, sigma=sigma).price(K, T).value

        greeks = MODEL.greeks(100.0, T)
        found = jax.grad(price, argnums=(0, 1))(0.4, 100.0)
        np.testing.assert_allclose(found, [greeks["sigma"], greeks["K"]], rtol=1e-12)
        with pytest.raises(InvalidInputError, match="outside jax.jit"):
            jax.jit(price)(0.4, 100.0)


def test_what_takes_numbers_says_so():
    """Tensors of several elements, and methods without gradients, are refused."""
    torch = pytest.importorskip("torch")
    with pytest.raises(ShapeError, match="sigma has shape"):
        dataclasses.replace(MODEL, sigma=torch.ones(2))
    tensor = dataclasses.replace(MODEL, sigma=torch.tensor(0.4))
    for call in (
        lambda: tensor.sample([0.0, 1.0]),
        lambda: tensor.implied_volatility(1.0, 1.0),
        lambda: tensor.calibrate([90.0, 100.0], 1.0, 0.2, free=["v0"]),
    ):
        with pytest.raises(InvalidInputError, match="sigma are tensors"):
            call()
