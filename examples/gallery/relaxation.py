r"""Relaxation with memory, beside its exact solution.

$$ D^\alpha y(t) = -y(t), \quad y(0) = 1 $$

The decay is fast at first and slow later: the lower the order, the longer the memory. Dots are computed with adaptive
steps to a tolerance, lines are the exact solution, a Mittag-Leffler function.

F. Mainardi, Chaos, Solitons & Fractals 7 (1996) 1461-1477.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

t = np.linspace(0.0, 10.0, 101)
error = 0.0
fig, (above, below) = plt.subplots(2, sharex=True, height_ratios=[2.6, 1])
for number, alpha in enumerate((0.3, 0.5, 0.7, 0.9, 1.0)):
    exact = hf.mittag_leffler(-(t**alpha), alpha)
    solution = hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], alpha, t_eval=t, rtol=1e-6)
    difference = np.abs(solution.y[0] - exact)
    error = max(error, difference.max())
    colour = plt.cm.viridis(0.22 * number)
    above.plot(t, exact, color=colour, label=rf"$\alpha = {alpha}$")
    above.plot(t[::6], solution.y[0, ::6], "o", color=colour)
    below.semilogy(t[1:], difference[1:], color=colour, linewidth=1)
above.set(ylabel="$y(t)$", title=r"$D^\alpha y = -y$: computed (dots) and exact (lines)")
above.legend(ncols=2)
below.axhline(1e-6, color="grey", linestyle=":", linewidth=1)
below.text(10.0, 1.5e-6, "rtol", color="grey", ha="right")
below.set(xlabel="$t$", ylabel="error", ylim=(1e-11, 1e-4))
print(f"largest error {error:.1e} at rtol = 1e-6")
plt.show()
