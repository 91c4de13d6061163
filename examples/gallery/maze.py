r"""The cheapest path through a maze on a lattice.

$$ d(x) = \min_{y \sim x} \left(d(y) + w(x)\right), \quad d(x_0) = 0 $$

Distances from the upper left corner to all points. 30 % of the points are closed, entering one of the others costs 1 to
10. The distances are those of SciPy's algorithm of Dijkstra, and the costs along the path add up to the last one.

E. W. Dijkstra, Numer. Math. 1 (1959) 269-271.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import csgraph

from hpfracc.lattice import Lattice

generator = np.random.default_rng(7)
closed = generator.random((96, 96)) < 0.3
closed[0, :] = closed[-1, :] = closed[:, 0] = False
weights = generator.uniform(1, 10, (96, 96))
maze = Lattice((96, 96), weights=weights, obstacles=closed)
distances = np.asarray(maze.distance_map((0, 0)))
path = np.asarray(maze.shortest_path((0, 0), (95, 95)))

reference = csgraph.dijkstra(maze.to_csr(), indices=0).reshape(96, 96)
reachable = np.isfinite(distances)
error = np.abs(distances[reachable] - reference[reachable]).max()
error = max(error, abs(weights[tuple(path[1:].T)].sum() - distances[-1, -1]))

fig, axes = plt.subplots(figsize=(5.0, 4.2))
axes.set_facecolor("0.25")
shown = axes.imshow(np.where(reachable, distances, np.nan), interpolation="none")
axes.plot(path[:, 1], path[:, 0], color="C1", linewidth=1.8)
axes.set(xticks=[], yticks=[])
axes.spines[:].set_visible(False)
fig.colorbar(shown, label="cost of the way from the upper left corner", shrink=0.9)
print(f"cost {distances[-1, -1]:.2f} in {len(path) - 1} steps; largest difference {error:.0e}")
plt.show()
