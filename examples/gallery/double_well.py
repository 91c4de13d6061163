r"""A double well: particles that wait relax slowly.

$$ \frac{\partial p}{\partial t} = D_t^{1-\alpha} \left[ \frac{\partial}{\partial x} (V'(x)\, p)
   + T\, \frac{\partial^2 p}{\partial x^2} \right], \quad V = (x^2 - 1)^2 $$

A density that starts in the left well of $V$, in units of its barrier. Both the memory and its absence end in
Boltzmann's equilibrium (dashed), but with $\alpha = 0.7$ the way there follows a power of time: the population of the
right well is behind its final value 1/2 by ever more exactly a multiple of $t^{-\alpha}$, a straight line.

R. Metzler, E. Barkai, J. Klafter, Phys. Rev. Lett. 82 (1999) 3563-3567.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc.pde import Advection, Diffusion

temperature, end = 0.5, 100.0
x = np.linspace(-2.0, 2.0, 129)
well = Diffusion(temperature) + Advection(lambda x: -4 * x * (x**2 - 1), conservative=True)
start = np.exp(-((x + 1) ** 2) / 0.08) / np.sqrt(0.08 * np.pi)
times = np.geomspace(0.01, end, 60)
equilibrium = hf.steady_state(x=x, space=well, boundary="no_flux", mass=1.0)
boltzmann = np.exp(-((x**2 - 1) ** 2) / temperature)
error = np.abs(equilibrium.u - boltzmann / np.trapezoid(boltzmann, x)).max()

missing = {}
fig, (densities, populations) = plt.subplots(1, 2, figsize=(5.6, 3.2))
for alpha, colour in ((1.0, "C0"), (0.7, "C1")):
    found = hf.solve_fpde(
        None, (0.0, end), start, x=x, space=well, boundary="no_flux", alpha=alpha, form="fokker_planck", t_eval=times,
        method="adaptive", rtol=1e-4,
    )  # fmt: skip
    right = np.where(x > 0, found.u, np.where(x == 0, found.u / 2, 0.0))
    missing[alpha] = 0.5 - np.trapezoid(right, x, axis=1)
    populations.loglog(found.t, missing[alpha], color=colour, label=rf"$\alpha = {alpha:g}$")
    if alpha < 1:
        for moment, shade in ((0.1, 0.4), (3.0, 0.7), (end, 1.0)):
            row = np.argmin(np.abs(found.t - moment))
            densities.plot(x, found.u[row], color=colour, alpha=shade, label=f"$t = {moment:g}$")
densities.plot(x, equilibrium.u, "k--", linewidth=1, label="equilibrium")
densities.set(xlabel="$x$", ylabel=r"density, $\alpha = 0.7$")
populations.set(xlabel="$t$", ylabel="missing in the right well", ylim=(1e-3, 1))
densities.legend()
populations.legend()
print(f"equilibrium within {error:.1e}")
plt.show()
