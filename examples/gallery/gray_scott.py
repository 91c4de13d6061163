r"""Patterns of Gray and Scott with fractional diffusion.

$$ \partial_t u = -d_u (-\Delta)^{\alpha/2} u - u v^2 + F (1 - u), \quad
   \partial_t v = -d_v (-\Delta)^{\alpha/2} v + u v^2 - (F + k) v $$

Two chemicals react and diffuse, at right with long jumps. Each picture is one call of solve_fpde with exponential time
differencing, exact for the diffusion and of order 4 for the reaction.

J. E. Pearson, Science 261 (1993) 189-192; T. Wang, F. Song, H. Wang, G. E. Karniadakis, CMAME 347 (2019) 1030-1049.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpfracc.pde import problems

fig, axes = plt.subplots(1, 2, figsize=(5.6, 3.4))
fields = {}
for axis, order in zip(axes, (2.0, 1.6), strict=True):
    equation = problems.gray_scott(order, points=96, t_end=2400.0)
    result = equation.solve(step=4.0, save="last", estimate=False)
    fields[order] = np.asarray(result.u[-1])
    axis.imshow(fields[order][1], cmap="magma", interpolation="bicubic", extent=(0, 1.25, 0, 1.25))
    axis.set(title=rf"$\alpha = {order:g}$", xlabel="$x$", xticks=[0, 0.5, 1.0], yticks=[0, 0.5, 1.0])
axes[0].set_ylabel("$y$")
bounds = [(float(field.min()), float(field.max())) for field in fields.values()]
print("concentrations between", ", ".join(f"{low:z.3f} and {high:.3f}" for low, high in bounds))
plt.show()
