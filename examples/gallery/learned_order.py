r"""An order learned by gradient descent.

$$ i(t) = D^\alpha u(t), \quad \min_\alpha \sum_n \left(D^\alpha u(t_n) - i_n\right)^2 $$

The current through a material is a derivative of the voltage of unknown order. The order is a parameter like any other:
PyTorch's Rprop moves it along the gradient of the misfit, from three starts to the true value.

S. Westerlund, L. Ekstam, IEEE Trans. Dielectr. Electr. Insul. 1 (1994) 826-839.
"""

import matplotlib.pyplot as plt
import torch

import hpfracc as hf
from hpfracc import ml

torch.manual_seed(0)
truth, step = 0.62, 0.01
t = torch.arange(400, dtype=torch.float64) * step
voltage = torch.sin(3 * t) + 0.5 * torch.cos(7 * t) * t
current = hf.riemann_liouville(voltage, step=step, alpha=truth)[1:]
current += 0.05 * current.std() * torch.randn(399, dtype=torch.float64)

fig, (signals, course) = plt.subplots(1, 2, width_ratios=[1.3, 1], figsize=(5.6, 3.2))
found = []
for start in (0.2, 0.5, 0.9):
    order = ml.LearnableOrder(start, bounds=(0.0, 1.0))
    optimiser = torch.optim.Rprop(order.parameters(), lr=0.2)
    path = [start]
    for _ in range(30):
        optimiser.zero_grad()
        fitted = hf.riemann_liouville(voltage, step=step, alpha=order())[1:]
        torch.mean((fitted - current) ** 2).backward()
        optimiser.step()
        path.append(order().item())
    course.plot(path)
    found.append(path[-1])
course.axhline(truth, color="0.5", linestyle=":", linewidth=1.2)
course.set(xlabel="iteration", ylabel=r"order $\alpha$", ylim=(0, 1))
signals.plot(t, voltage, color="0.7", label="voltage $u$")
signals.plot(t[1:], current, ".", color="C1", markersize=2.5, label="current $i$, measured")
signals.plot(t[1:], fitted.detach(), color="C0", label="fitted", linewidth=1.2)
signals.set(xlabel="$t$", ylim=(-9, 11))
signals.legend(fontsize=9, loc="upper left")
error = max(abs(each - truth) for each in found)
print("orders found: " + ", ".join(f"{each:.4f}" for each in found) + f"; true {truth}")
plt.show()
