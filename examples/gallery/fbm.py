r"""Fractional Brownian motion at four Hurst indices.

$$ \mathrm{E}[B_H(s) B_H(t)] = \frac{1}{2} \left(s^{2H} + t^{2H} - |t - s|^{2H}\right) $$

Below H = 1/2 increments tend to turn back, above to continue. Paths are drawn from the exact distribution, here from
the same random numbers. The index is estimated from each path, with a confidence interval.

B. B. Mandelbrot, J. W. Van Ness, SIAM Rev. 10 (1968) 422-437; R. B. Davies, D. S. Harte, Biometrika 74 (1987) 95-101.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

t = np.linspace(0.0, 1.0, 2049)
fig, axes = plt.subplots(4, sharex=True, figsize=(5.6, 4.0))
deviations = []
for axis, (number, index) in zip(axes, enumerate((0.15, 0.35, 0.5, 0.8)), strict=True):
    path = hf.fbm(2048, index, rng=8)
    found = hf.hurst(path)
    low, high = found.interval
    deviations.append(abs(found.H - index) / (0.5 * (high - low)))
    axis.plot(t, path, color=plt.cm.viridis(0.26 * number), linewidth=0.9)
    axis.set_title(f"$H = {index}$, estimated {found.H:.3f} ({low:.3f} to {high:.3f})", fontsize=10, loc="left", pad=2)
    axis.set(yticks=[], xlim=(0, 1))
    axis.spines["left"].set_visible(False)
    if axis is not axes[-1]:
        axis.spines["bottom"].set_visible(False)
        axis.tick_params(bottom=False)
axes[-1].set_xlabel("$t$")
error = max(deviations)  # in half-widths of the intervals
print(f"largest deviation of an estimate: {error:.2f} half-widths of its 95 % interval")
plt.show()
