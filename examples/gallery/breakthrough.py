r"""A breakthrough curve: a tracer that runs ahead.

$$ \frac{\partial u}{\partial t} = -v \frac{\partial u}{\partial x} + D\, \frac{\partial^\beta u}{\partial x^\beta},
   \quad 1 < \beta \leq 2 $$

The concentration that a detector sees 6 m downstream. With a derivative of order 1.6 in space some particles are swept
far ahead: the tracer is seen early. Dots are the exact solution, a stable distribution.

D. A. Benson, S. W. Wheatcraft, M. M. Meerschaert, Water Resour. Res. 36 (2000) 1403-1412.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc.pde import Advection, Diffusion, OneSided, problems

velocity, dispersion, width, start, detector = 1.0, 0.1, 0.3, 3.0, 9.0
x = np.linspace(0.0, 20.0, 801)
pulse = np.exp(-((x - start) ** 2) / (2 * width**2)) / np.sqrt(2 * np.pi * width**2)
error = 0.0
fig, (linear, logarithmic) = plt.subplots(1, 2, figsize=(5.6, 3.2))
spreads = {2.0: Diffusion(dispersion), 1.6: OneSided(1.6, "left", dispersion)}
for (order, spread), colour in zip(spreads.items(), ("C0", "C1"), strict=True):
    space = spread + Advection(velocity)
    result = hf.solve_fpde(None, (0.0, 10.0), pulse, x=x, space=space, boundary="dirichlet", step=0.02)
    curve = problems.breakthrough(x, result.u, detector)
    exact = problems.plume(result.t[1:], detector - start, order, velocity, dispersion, width)
    error = max(error, np.abs(curve[1:] - exact).max())
    for axes in (linear, logarithmic):
        axes.plot(result.t, curve, color=colour, label=rf"$\beta = {order:g}$")
        axes.plot(result.t[1::25], exact[::25], "o", color=colour, markersize=3.5)
    linear.set(xlabel="$t$ / h", ylabel="concentration at 6 m", xlim=(2, 10), ylim=(-0.01, 0.52))
logarithmic.set(xlabel="$t$ / h", yscale="log", ylim=(1e-6, 1), xlim=(0.3, 10), title="the same, logarithmic")
linear.legend()
print(f"largest error {error:.1e}")
plt.show()
