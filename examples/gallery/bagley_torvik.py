r"""A plate in a viscous fluid: the equation of Bagley and Torvik.

$$ y''(t) + D^{3/2} y(t) + y(t) = f(t), \quad y(0) = y'(0) = 0 $$

A plate is pushed by a constant force that ends at t = 1. The drag of the fluid is a derivative of order 3/2. The exact
solution is that of a system of four equations of order 1/2, by a Mittag-Leffler function of its matrix.

R. L. Bagley, P. J. Torvik, J. Appl. Mech. 51 (1984) 294-298.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

t = np.linspace(0.0, 20.0, 401)


def pulse(response):
    """The response to a force that ends at t = 1: that to a lasting force, less the same one later."""
    return response - np.concatenate([np.zeros(20), response[:-20]])


lasting = hf.solve_fode(
    lambda t, y: 8.0 - y, (0.0, 20.0), [0.0], 2.0, dy0=[[0.0]], terms=[(1.0, 1.5)], t_eval=t, rtol=1e-6
)
viscous = pulse(lasting.y[0])

system = np.diag(np.ones(3), 1)
system[3] = [-1.0, 0.0, 0.0, -1.0]  # D^2 y = -y - D^(3/2) y, in derivatives of order 0, 1/2, 1 and 3/2
root = np.sqrt(t)[:, None, None]
exact = pulse(8.0 * (root * hf.mittag_leffler_matrix(system * root, 0.5, 1.5))[:, 0, 3])
error = np.abs(viscous - exact).max()

fig, axes = plt.subplots()
axes.plot(t, pulse(8.0 * (1.0 - np.cos(t))), color="0.75", label="in vacuum")
axes.plot(t, exact, label="in a viscous fluid, exact")
axes.plot(t[::10], viscous[::10], "o", color="C1", label="in a viscous fluid, computed")
axes.axvspan(0.0, 1.0, color="0.92", zorder=0)
axes.text(1.2, 11.5, "force until $t = 1$", color="0.4", fontsize=10)
axes.set(xlabel="$t$", ylabel="displacement $y(t)$", xlim=(0, 20), ylim=(-9, 13))
axes.legend(loc="upper right")
print(f"largest error {error:.1e}, largest displacement {viscous.max():.3f}")
plt.show()
