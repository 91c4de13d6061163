r"""A wave packet of the fractional Schrödinger equation.

$$ i\, \partial_t \psi = \frac{1}{2} (-\Delta)^{\alpha/2} \psi, \quad \psi(x, 0) = \psi_0(x) $$

With order 2 a packet spreads. With order 1.2 waves of all lengths travel at nearly the same speed, and it keeps its
shape. The norm is conserved by the method, to rounding.

N. Laskin, Phys. Rev. E 66 (2002) 056108.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc.pde import FractionalDiffusion

x = np.linspace(-40.0, 40.0, 512, endpoint=False)
packet = np.exp(-((x + 20.0) ** 2) / 8.0 + 2j * x)
t = np.linspace(0.0, 16.0, 129)
k = 2.0 * np.pi * np.fft.fftfreq(x.size, x[1] - x[0])
error, change = 0.0, 0.0
fig, axes = plt.subplots(1, 2, sharey=True, figsize=(5.6, 3.3))
for axis, order in zip(axes, (2.0, 1.2), strict=True):
    space = FractionalDiffusion(order, coefficient=0.5j)
    result = hf.solve_fpde(None, (0.0, 16.0), packet, x=x, space=space, boundary="periodic", t_eval=t)
    exact = np.fft.ifft(np.fft.fft(packet) * np.exp(-0.5j * np.abs(k) ** order * t[-1]))
    error = max(error, float(np.abs(result.u[-1] - exact).max()))
    change = max(change, float(abs(np.linalg.norm(result.u[-1]) / np.linalg.norm(packet) - 1.0)))
    axis.imshow(np.abs(result.u), origin="lower", aspect="auto", extent=(-40, 40, 0, 16), cmap="magma", vmax=1.0)
    axis.set(xlabel="$x$", title=rf"$|\psi|$, $\alpha = {order:g}$", xlim=(-30, 30))
axes[0].set_ylabel("$t$")
print(f"largest error {error:.0e}, relative change of the norm {change:.0e}")
plt.show()
