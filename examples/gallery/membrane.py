r"""A blow on an L-shaped membrane that loses its energy.

$$ D_t^{1.8} u = \Delta u, \quad u(0) = u_0, \quad \partial_t u(0) = 0 $$

The membrane is held at its edge. Of an order between 1 and 2 in time, the wave runs around the corner and is damped.
The first mode alone goes like $E_{1.8}(-\lambda t^{1.8})$ with $\lambda = 9.6397$ for three unit squares, with which
that of the cells is compared.

L. Fox, P. Henrici, C. Moler, SIAM J. Numer. Anal. 4 (1967) 89-102.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc import pde

x = np.linspace(-1, 1, 49)
membrane = pde.Region((x, x), lambda x, y: (x < 0) | (y < 0))


def solve(start, t_eval):
    span, wave = (0, t_eval[-1]), pde.Diffusion(1.0)
    return hf.solve_fpde(
        None, span, start, x=membrane, space=wave, boundary=0.0, alpha=1.8, du0=0.0, t_eval=t_eval, estimate=False
    ).u


blow = np.exp(-60 * ((x[:, None] + 0.5) ** 2 + (x - 0.5) ** 2))
blow[[0, -1], :] = blow[:, [0, -1]] = blow[24:, 24:] = 0
times = np.array([0.0, 0.4, 0.8, 1.2])
wave = solve(blow, times)

late = hf.solve_fpde(
    None, (0, 1), blow, x=membrane, space=pde.Diffusion(1.0), boundary=0.0, t_eval=[0.9, 1.0], estimate=False
)
mode = np.nan_to_num(late.u[-1] / np.nanmax(late.u[-1]))  # what is left of diffusion is the first mode
eigenvalue = 10 * np.log(late.mass[0] / late.mass[1])
ring = solve(mode, np.linspace(0, 1.2, 61))
exact = hf.mittag_leffler(-9.6397238 * np.linspace(0, 1.2, 61) ** 1.8, 1.8)
error = np.abs(np.nanmax(np.abs(ring), axis=(1, 2)) - np.abs(exact)).max()

fig, axes = plt.subplots(1, 4, figsize=(7.2, 2.2), sharey=True)
for axis, t, field in zip(axes, times, wave, strict=True):
    size = np.nanmax(np.abs(field))
    axis.imshow(field.T, origin="lower", extent=(-1, 1, -1, 1), cmap="RdBu_r", vmin=-size, vmax=size)
    axis.plot([-1, 1, 1, 0, 0, -1, -1], [-1, -1, 0, 0, 1, 1, -1], color="0.3", linewidth=0.8)
    axis.set(title=f"$t = {t:g}$", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
print(f"eigenvalue {eigenvalue:.3f}, exact 9.640; largest difference of the first mode {error:.0e}")
plt.show()
