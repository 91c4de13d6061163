r"""The release of a plume that remembers, located by four probes.

$$ D_t^\alpha u = k\,u_{xx}, \quad u(0, x) = h\,e^{-(x-c)^2/0.3}, \quad u_x = 0 \text{ at the ends} $$

Subdiffusion of a substance that was released at an unknown place c. Coefficient, order, height and place are estimated
from noisy records of four probes. The picture has the records with the fitted curves, and the field between the probes.

R. Metzler, J. Klafter, Phys. Rep. 339 (2000) 1-77.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc.pde import Diffusion

truth = {"k": 0.8, "alpha": 0.65, "height": 2.0, "place": 3.3}
x, t, probes = np.linspace(0.0, 8.0, 65), np.linspace(0.1, 6.0, 25), np.array([2.0, 3.0, 4.0, 5.5])


def plume(k, alpha, height, place):
    start = height * np.exp(-((x - place) ** 2) / 0.3)
    return {"u0": start, "x": x, "space": Diffusion(k), "boundary": "neumann", "alpha": alpha}


clean = hf.solve_fpde(None, (0.0, 6.0), dense_output=True, **plume(*truth.values())).sol(t, probes)
records = clean + 0.01 * np.random.default_rng(8).standard_normal(clean.shape)
guess = {"k": 0.5, "alpha": 0.85, "height": 1.5, "place": 4.0}
bounds = {"k": (0.01, None), "alpha": (0.1, 1.0), "place": (0.0, 8.0)}
fit = hf.fit_fpde(plume, t, records, points=probes, parameters=guess, bounds=bounds, sigma=0.01)
for name, (low, high) in fit.confidence_intervals().items():
    print(f"{name:<7} {fit.parameters[name]:.3f}, 95 % interval {low:.3f} to {high:.3f}, true {truth[name]}")
error = float(np.max(np.abs(fit.estimates - list(truth.values())) / fit.standard_errors))  # in standard errors

fig, (axes, field) = plt.subplots(1, 2, figsize=(6.4, 3.2))
for place, row, curve in zip(probes, records.T, fit.sets[0].fitted, strict=True):
    (dots,) = axes.plot(t, row, "o", markersize=3, alpha=0.6)
    axes.plot(t, curve, color=dots.get_color(), label=f"$x = {place:g}$")
axes.set(xlabel="$t$", ylabel="$u$", title=rf"$\alpha = {fit.parameters['alpha']:.3f}$, true {truth['alpha']}")
axes.legend()
whole = fit.solve(np.linspace(0.05, 6.0, 60))
picture = field.pcolormesh(whole.x, whole.t, whole.u, shading="gouraud")
field.vlines(probes, 0.05, 6.0, color="white", linewidth=0.8, linestyle=":")
field.set(xlabel="$x$", ylabel="$t$", title="fitted field")
fig.colorbar(picture, ax=field)
plt.show()
