r"""The half derivative of a sine, and the derivatives between.

$$ D^\alpha f(t) = \frac{1}{\Gamma(n - \alpha)} \int_0^t \frac{f^{(n)}(s)}{(t - s)^{\alpha + 1 - n}}\, ds,
   \quad n = \lceil\alpha\rceil $$

Caputo derivatives of sin t from order 0 (the sine) to order 1 (the cosine). Each is ahead of the one before, but the
start at t = 0 is remembered. Dots are exact, by Mittag-Leffler functions.

M. Caputo, Geophys. J. R. Astron. Soc. 13 (1967) 529-539.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

t = np.linspace(0.0, 4.0 * np.pi, 2001)
error = 0.0
fig, axes = plt.subplots()
for number, alpha in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
    values = np.sin(t) if alpha == 0.0 else hf.caputo(np.sin(t), t, alpha)
    # D^alpha sin t is the imaginary part of i t^(1 - alpha) E_{1, 2 - alpha}(i t).
    exact = (1j * t ** (1.0 - alpha) * hf.mittag_leffler(1j * t, 1.0, 2.0 - alpha)).imag
    error = max(error, np.abs(values - exact).max())
    colour = plt.cm.viridis(0.22 * number)
    axes.plot(t, values, color=colour, label=rf"$\alpha = {alpha:g}$")
    axes.plot(t[::100], exact[::100], "o", color=colour, markersize=3)
axes.set(xlabel="$t$", ylabel=r"$D^\alpha \sin t$", xlim=(0, 4 * np.pi))
axes.set_xticks(np.pi * np.arange(5), ["0", r"$\pi$", r"$2\pi$", r"$3\pi$", r"$4\pi$"])
axes.legend(ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.14), fontsize=9, columnspacing=1.0)
print(f"largest error {error:.1e} with {t.size} points")
plt.show()
