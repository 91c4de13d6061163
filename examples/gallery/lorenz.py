r"""The Lorenz system of fractional order: chaos above a critical order.

$$ D^\alpha x = 10\,(y - x), \quad D^\alpha y = x\,(28 - z) - y, \quad D^\alpha z = x y - \frac{8}{3} z $$

By Matignon's condition the two outer equilibria are stable below the order 0.9941. At 0.995 the orbit winds around
both; at 0.97 it spirals into one of them.

I. Grigorenko, E. Grigorenko, Phys. Rev. Lett. 91 (2003) 034101.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf


def lorenz(t, u):
    x, y, z = u[0], u[1], u[2]
    return np.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])


fig, axes = plt.subplots(1, 2, sharey=True, figsize=(5.6, 3.2))
ends = {}
for axis, alpha, colour in zip(axes, (0.995, 0.97), ("C0", "C1"), strict=True):
    solution = hf.solve_fode(lorenz, (0.0, 40.0), [1.0, 1.0, 20.0], alpha, method="pece", step=0.004, compile=False)
    x, _, z = solution.y
    axis.plot(x, z, color=colour, linewidth=0.6)
    ends[alpha] = solution.y[:, -1]
    axis.set(xlabel="$x$", title=rf"$\alpha = {alpha}$", xlim=(-22, 22))
axes[0].set_ylabel("$z$")
side = np.sqrt(8.0 / 3.0 * 27.0)
for axis in axes:
    axis.plot([-side, side], [27.0, 27.0], "k+", markersize=7)
error = np.abs(np.abs(ends[0.97]) - [side, side, 27.0]).max()
print(f"distance from the equilibrium at t = 40: {error:.1e} at order 0.97")
plt.show()
