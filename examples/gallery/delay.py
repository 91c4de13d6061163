r"""An equation that looks back: a delay beside its exact solution.

$$ D^\alpha y(t) = -y(t - 1), \quad y(t) = 1 \text{ for } t \leq 0 $$

The solution is a sum of shifted powers, one more for every unit of time. At order 1 it oscillates around zero; at lower
orders it oscillates around a slow decay.

M. L. Morgado, N. J. Ford, P. M. Lima, J. Comput. Appl. Math. 252 (2013) 159-168.
"""

from math import gamma

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

t = np.linspace(0.0, 15.0, 301)


def exact(alpha):
    shifted = (np.maximum(t - k + 1, 0.0) ** (k * alpha) * (t >= k - 1) / gamma(k * alpha + 1) for k in range(1, 17))
    return 1.0 + sum((-1) ** k * each for k, each in enumerate(shifted, start=1))


fig, axes = plt.subplots()
error = 0.0
for number, alpha in enumerate((0.5, 0.8, 1.0)):
    solution = hf.solve_fode(
        lambda t, y, past: -past[0], (0.0, 15.0), [1.0], alpha, delays=[1.0], history=1.0, t_eval=t, rtol=1e-6
    )
    error = max(error, np.abs(solution.y[0] - exact(alpha)).max())
    axes.plot(t, exact(alpha), color=f"C{number}", label=rf"$\alpha = {alpha}$")
    axes.plot(t[::10], solution.y[0, ::10], "o", color=f"C{number}")
axes.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
axes.set(xlabel="$t$", ylabel="$y(t)$", title="computed (dots) and exact (lines)", xlim=(0, 15))
axes.legend()
print(f"largest error {error:.1e}")
plt.show()
