r"""A Lévy flight beside an ordinary walk.

$$ P(x \to y) = -\frac{L^{\alpha/2}_{xy}}{L^{\alpha/2}_{xx}}, \quad x \neq y $$

The power of the Laplacian L of a lattice gives the probabilities of a walk with long jumps: most steps are short, a few
cross the whole region. The same number of steps of order 2 stays near its start.

A. P. Riascos, J. L. Mateos, Phys. Rev. E 90 (2014) 032809.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpfracc.lattice import Lattice

side, steps = 512, 2000
lattice = Lattice((side, side), periodic=True)
fig, axes = plt.subplots()
reached = {}
for alpha, colour, name in ((1.3, "C1", "Lévy flight"), (2.0, "C0", "ordinary walk")):
    walk = lattice.fractional(alpha).sample((side // 2, side // 2), steps, rng=3)[0]
    place = np.asarray(lattice.index_to_coordinates(walk)) - side // 2
    jumps = (np.diff(place, axis=0) + side // 2) % side - side // 2  # the shorter way around
    trail = np.concatenate([[[0, 0]], jumps.cumsum(axis=0)])
    reached[alpha] = np.linalg.norm(trail, axis=1).max()
    axes.plot(*trail.T, color=colour, linewidth=0.7, label=rf"{name}, $\alpha = {alpha:g}$")
axes.plot(0, 0, "ko", markersize=4, label="start")
axes.set(xlabel="$x$", ylabel="$y$", aspect="equal")
axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
kernel = lattice.fractional(1.3).transition_row((0, 0))
error = abs(kernel.sum() - 1.0)  # probabilities add up to 1
print("largest distance from the start: " + ", ".join(f"{r:.0f} at order {a:g}" for a, r in reached.items()))
plt.show()
