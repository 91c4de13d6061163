r"""Subdiffusion: an equation and the random walk behind it.

$$ D_t^\alpha u(x, t) = \frac{\partial^2 u}{\partial x^2}, \quad u(x, 0) = \delta(x) $$

Particles that wait for random times without a finite mean spread like the square root of a power of time. The histogram
of 10,000 walkers, the solution of the equation, and the exact M-Wright function agree, cusp included.

R. Metzler, J. Klafter, Phys. Rep. 339 (2000) 1-77.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc import transport
from hpfracc.pde import Diffusion

alpha, end = 0.6, 30.0
x = np.linspace(-30.0, 30.0, 601)
start = np.where(x == 0.0, 1.0 / (x[1] - x[0]), 0.0)
result = hf.solve_fpde(
    None, (0.0, end), start, x=x, space=Diffusion(1.0), boundary="neumann", alpha=alpha, t_eval=[end]
)
scale = end ** (alpha / 2)
exact = hf.m_wright(np.abs(x) / scale, alpha / 2) / (2 * scale)
normal = np.exp(-(x**2) / (4 * end)) / np.sqrt(4 * np.pi * end)
error = np.abs(result.u[-1] - exact)[x != 0.0].max() / exact.max()

jump = 0.4  # short jumps, and waiting times in proportion, approach the equation
waiting = transport.MittagLefflerWaiting(alpha, scale=(jump**2 / 2) ** (1 / alpha))
walk = transport.ContinuousTimeRandomWalk(waiting, transport.GaussianJumps(jump))
walkers = walk.sample(np.array([0.0, end]), size=10_000, rng=1)[:, -1]

fig, axes = plt.subplots()
counts, edges = np.histogram(walkers, bins=60, range=(-15, 15))
axes.stairs(counts / (walkers.size * np.diff(edges)), edges, fill=True, color="0.85", label="10,000 walkers")
axes.plot(x, exact, label="exact, M-Wright function")
axes.plot(x[::6], result.u[-1, ::6], "o", color="C0", markersize=3.5, label="solve_fpde")
axes.plot(x, normal, "--", color="C1", label="ordinary diffusion")
axes.set(xlabel="$x$", ylabel=f"density at $t = {end:g}$", xlim=(-15, 15))
axes.legend(fontsize=9)
print(f"largest error of the equation, relative: {error:.1e}; mean |x| of the walkers {np.abs(walkers).mean():.3f}")
plt.show()
