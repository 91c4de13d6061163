r"""Spiral waves in excitable tissue with fractional diffusion.

$$ \partial_t u = -K (-\Delta)^{\alpha/2} u + u (1 - u)(u - a) - v, \quad
   \partial_t v = \varepsilon (\beta u - \gamma v) $$

FitzHugh and Nagumo's model of the heart: a broken wave front curls into a spiral. With long-range coupling, of lower
order in space, fronts are thinner and slower.

A. Bueno-Orovio, D. Kay, K. Burrage, BIT Numer. Math. 54 (2014) 937-954.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpfracc.pde import problems

fig, axes = plt.subplots(1, 2, figsize=(5.6, 3.4))
voltage = {}
for axis, order in zip(axes, (2.0, 1.8), strict=True):
    equation = problems.fitzhugh_nagumo(order, points=128, diffusion=1.5e-4, t_end=750.0)
    result = equation.solve(step=2.0, save="last", estimate=False)
    voltage[order] = np.asarray(result.u[-1][0])
    axis.imshow(voltage[order], cmap="inferno", interpolation="bicubic", extent=(0, 2.5, 0, 2.5), vmin=-0.3, vmax=1.0)
    axis.set(title=rf"$\alpha = {order:g}$", xlabel="$x$", xticks=[0, 1, 2], yticks=[0, 1, 2])
axes[0].set_ylabel("$y$")
print("voltages between", ", ".join(f"{field.min():.2f} and {field.max():.2f}" for field in voltage.values()))
plt.show()
