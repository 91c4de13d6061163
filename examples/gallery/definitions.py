r"""Caputo or Riemann-Liouville: they differ unless f(0) = 0.

$$ {}^{RL}\!D^\alpha f(t) = {}^{C}\!D^\alpha f(t) + \frac{f(0)\, t^{-\alpha}}{\Gamma(1 - \alpha)},
   \quad 0 < \alpha < 1 $$

Half derivatives of cos t by three definitions. Caputo's vanishes on constants and is finite at the start.
Riemann-Liouville's, and that of Grünwald and Letnikov, is infinite there unless f(0) = 0.

I. Podlubny, Fractional Differential Equations (1999), chapter 2.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import gamma

import hpfracc as hf

alpha = 0.5
t = np.linspace(0.0, 8.0, 4001)
f = np.cos(t)
caputo = hf.caputo(f, t, alpha)
liouville = hf.riemann_liouville(f, t, alpha)
letnikov = hf.grunwald_letnikov(f, t, alpha)
# D^alpha cos t = -t^(2 - alpha) E_{2, 3 - alpha}(-t^2) for Caputo's definition.
exact = -(t ** (2.0 - alpha)) * hf.mittag_leffler(-(t**2), 2.0, 3.0 - alpha)
later = t > 0.1
jump = t[later] ** -alpha / gamma(1.0 - alpha)
error = max(np.abs(caputo - exact).max(), np.abs(liouville[later] - exact[later] - jump).max())

fig, axes = plt.subplots()
axes.plot(t, f, color="0.75", label=r"$f(t) = \cos t$")
axes.plot(t, caputo, label="Caputo")
axes.plot(t[1:], liouville[1:], label="Riemann-Liouville")
axes.plot(t[40::160], letnikov[40::160], "o", color="C1", markersize=4, label="Grünwald-Letnikov")
axes.axhline(0.0, color="0.85", linewidth=0.8, zorder=0)
axes.set(xlabel="$t$", ylabel=r"$D^{1/2} f(t)$", xlim=(0, 8), ylim=(-1.6, 2.3))
axes.legend(ncols=2)
print(f"largest error {error:.1e} with {t.size} points")
plt.show()
