r"""A viscoelastic solid: relaxation, creep and its complex modulus.

$$ G(t) = E_0 + E_1 E_\alpha(-(t/\tau)^\alpha) $$

The fractional Zener solid at four orders. The slopes of its moduli are those of a power law over decades, which chains
of springs and dashpots need many parameters for. Dots are inverse Laplace transforms of the complex modulus.

M. Caputo, F. Mainardi, Pure Appl. Geophys. 91 (1971) 134-147.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

t = np.geomspace(1e-4, 1e4, 241)
w = np.geomspace(1e-4, 1e4, 241)
error = 0.0
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for number, alpha in enumerate((0.3, 0.5, 0.7, 1.0)):
    solid = hf.models.zener(e0=0.01, e1=1.0, tau=1.0, alpha=alpha)
    colour = plt.cm.viridis(0.28 * number)
    relaxation, some = solid.relaxation(t), t[::20]

    def transform(s, solid=solid):
        return solid(s) / s

    check = hf.control.inverse_laplace(transform, some)
    error = max(error, np.abs(check - relaxation[::20]).max())
    left.loglog(t, relaxation, color=colour, label=rf"$\alpha = {alpha}$")
    left.loglog(some, check, "o", color=colour)
    modulus = solid.modulus(w)
    right.loglog(w, modulus.real, color=colour)
    right.loglog(w, modulus.imag, color=colour, linestyle="--")
left.set(xlabel="$t$", ylabel="$G(t)$", title="Relaxation", ylim=(5e-3, 2.0))
left.legend()
right.set(xlabel=r"$\omega$", ylabel=r"$G'$ (line), $G''$ (dashes)", title="Complex modulus", ylim=(1e-5, 2.0))
print(f"largest difference from the inverse transform {error:.0e}")
plt.show()
