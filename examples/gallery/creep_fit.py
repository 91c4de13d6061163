r"""Creep of a viscoelastic material, fitted with confidence intervals.

$$ \tau^\alpha D^\alpha \varepsilon(t) + \varepsilon(t) = \frac{\sigma_0}{E}, \quad \varepsilon(0) = 0 $$

A fractional Kelvin-Voigt material under constant stress. Its order, retardation time and compliance are estimated from
30 noisy strains; a fit of order 1 misses the slow creep, and a warning says so: its residuals are correlated.

M. Caputo, F. Mainardi, Pure Appl. Geophys. 91 (1971) 134-147.
"""

import warnings
from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

truth = {"rate": 0.7, "compliance": 2.0, "alpha": 0.55}  # rate = tau^-alpha, in units of the experiment
t = np.geomspace(0.01, 30.0, 30)
clean = truth["compliance"] * (1.0 - hf.mittag_leffler(-truth["rate"] * t ** truth["alpha"], truth["alpha"]))
strain = clean + 0.02 * np.random.default_rng(3).standard_normal(t.size)


def creep(t, y, rate, compliance):
    return rate * (compliance - y)


start = {"rate": 1.0, "compliance": 1.5}
fit_creep = partial(hf.fit_fode, creep, t, strain, parameters=start, t0=0.0, y0=[0.0], sigma=0.02, rtol=1e-4)
fit = fit_creep(alpha="free")
with warnings.catch_warnings(record=True, action="always") as told:
    plain = fit_creep(alpha=1.0)

fig, (axes, bars) = plt.subplots(1, 2, width_ratios=[2.2, 1], figsize=(5.6, 3.3))
axes.semilogx(t, strain, "o", color="0.35", label="measured")
axes.semilogx(t, fit.sets[0].fitted[0], color="C0", label="fractional")
axes.semilogx(t, plain.sets[0].fitted[0], "--", color="C1", label="order 1")
axes.set(xlabel="$t$ / s", ylabel=r"strain $\varepsilon$ / %")
axes.legend()
intervals = fit.confidence_intervals()
deviations = []
for place, name in enumerate(truth):
    low, high = intervals[name]
    middle, half = (low + high) / 2 / truth[name], (high - low) / 2 / truth[name]
    bars.errorbar(place, middle, half, fmt="o", capsize=5, color="C0")
    deviations.append(abs(middle - 1.0) / half)
    print(f"{name:<10} {middle * truth[name]:.3f}, 95 % interval {low:.3f} to {high:.3f}, true {truth[name]}")
bars.axhline(1.0, color="0.6", linewidth=1)
bars.set_xticks(range(3), ["rate", r"$\sigma_0/E$", r"$\alpha$"])
bars.set(xlim=(-0.5, 2.5), title="estimate / truth")
error = max(deviations)  # in half-widths of the intervals
print(f"residuals in units of the noise: {fit.spread:.2f} fractional, {plain.spread:.2f} of order 1")
print(f"of order 1: {told[-1].message}")
plt.show()
