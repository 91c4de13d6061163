r"""A neural fractional equation.

$$ D^\alpha y(t) = f_\theta(y(t)), \quad y(0) = y_0 $$

The right-hand side is a small network and the order a learnable number. Both are trained on the first part of a
relaxation with 1 % of noise; a neural equation of order 1 fits that part as well, and forgets the slow tail.

R. T. Q. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud, Neural ordinary differential equations, NeurIPS (2018).
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import hpfracc as hf
from hpfracc.ml.torch.neural_fode import NeuralFODE

torch.set_default_dtype(torch.float64)
step, alpha = 0.1, 0.7
t = np.arange(0.0, 30.0 + 1e-9, step)
seen = t < 2.55
truth = hf.mittag_leffler(-(t**alpha), alpha)
data = torch.as_tensor(truth[seen] + 0.01 * np.random.default_rng(0).standard_normal(seen.sum()))[:, None]


class Rate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def forward(self, t, y):
        return -y * torch.nn.functional.softplus(self.net(y))


fig, axes = plt.subplots()
errors = {}
for name, order, colour in (("fractional", torch.nn.Parameter(torch.tensor(0.9)), "C0"), ("order 1", 1.0, "C1")):
    torch.manual_seed(0)
    model = NeuralFODE(Rate(), order, step=step)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(80):
        optimiser.zero_grad()
        (model(torch.ones(1), t[seen]) - data).square().mean().backward()
        optimiser.step()
    with torch.no_grad():
        found = model(torch.ones(1), t)[:, 0].numpy()
    errors[name] = np.abs(found / truth - 1.0).max()
    axes.loglog(t[1:], found[1:], color=colour, label=f"neural equation, {name}")
axes.loglog(t[1:], truth[1:], "--", color="0.4", linewidth=1.2, label="truth")
axes.loglog(t[seen][1:], data[1:, 0], "k.", label="data")
axes.axvspan(0.09, 2.5, color="0.94", zorder=0)
axes.set(xlabel="$t$", ylabel="$y(t)$", xlim=(0.09, 30), ylim=(3e-3, 1.2))
axes.legend()
error = errors["fractional"]
print("largest relative error up to t = 30: " + ", ".join(f"{value:.0%} ({name})" for name, value in errors.items()))
torch.set_default_dtype(torch.float32)
plt.show()
