"""Neural stochastic equations on a GPU: the paths, bounds and gradients of the host."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
from hpfracc.ml import LearnableOrder, NeuralFSDE  # noqa: E402
from hpfracc.ml.path_losses import energy_score, signature_mmd  # noqa: E402

TIMES = [0.0, 0.5, 1.0]


def found_on(device: str, name: str, adjoint: str) -> list[Any]:
    """Paths, a loss of all kinds, and the gradients of the parameters, brought to the host."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    order = {"alpha" if name == "volterra" else "H": LearnableOrder(0.7, bounds=(0.5, 1.0))}
    model = NeuralFSDE(
        lambda t, y: net(y), lambda t, y: 0.3 + 0.2 * torch.sin(y), name, step=0.125, adjoint=adjoint, **order
    )
    net.to(device), model.to(device)
    y0 = torch.ones(3, 2, dtype=torch.float64, device=device)
    x = model(y0, TIMES, samples=4, rng=1)
    loss = energy_score(x.movedim(1, 0), torch.zeros_like(x[:, 0])).mean()
    loss = loss + signature_mmd(x[:, :, 0].movedim(0, 1), x[:, :, 1].movedim(0, 1) + 1.0)
    if name != "fbm":
        control = lambda t, y, *past: 0.3 * y + sum(each.sum(-1) for each in past)  # noqa: E731
        loss = loss - model.elbo(y0, TIMES, torch.zeros_like(x[:, 0]), control, scale=0.5, samples=2, rng=2).mean()
    assert x.device.type == loss.device.type == device
    loss.backward()
    kept = [x, loss, model.order.rho.grad, *(each.grad for each in net.parameters())]
    return [each.detach().cpu() for each in kept]


@pytest.mark.filterwarnings("ignore:drift calls a module:UserWarning")
@pytest.mark.parametrize("name", ["volterra", "fbm", "markov"])
@pytest.mark.parametrize("adjoint", ["direct", "stored"])
def test_the_same_as_on_the_host(name: str, adjoint: str):
    """To rounding, with the same seed; everything stays on the device."""
    for one, two in zip(found_on("cuda", name, adjoint), found_on("cpu", name, adjoint), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)
