r"""A sweep: where the Brusselator oscillates.

$$ D^\alpha x = 1 - (b + 1) x + x^2 y, \quad D^\alpha y = b x - x^2 y $$

The amplitude of the oscillation for 768 pairs of order and parameter, in one call of hf.sweep that solves many
equations at once. The line is the border of stability in theory: the argument of the eigenvalues is alpha pi/2.

D. Matignon, Proc. CESA (1996) 963-968.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf


@hf.distributed.stacked
def amplitude(alpha, b):
    """Half the range of x in the last third of the time."""
    b = b[:, None]

    def brusselator(t, z):
        x, y = z[:, :1], z[:, 1:]
        return np.concatenate([1.0 - (b + 1.0) * x + x**2 * y, b * x - x**2 * y], axis=1)

    start = np.concatenate([np.full_like(b, 1.1), b], axis=1)
    solution = hf.solve_fode(brusselator, (0.0, 60.0), start, alpha[:, None], step=0.06, estimate=False)
    return np.ptp(solution.y[:, 0, 667:], axis=-1) / 2


alpha, b = np.linspace(0.5, 1.0, 32), np.linspace(1.6, 3.4, 24)
values = hf.sweep(amplitude, hf.grid(alpha=alpha, b=b), batch=768).values

# Eigenvalues at (1, b) have the sum b - 2 and the product 1.
border = 2.0 / np.pi * np.arccos((b - 2.0) / 2.0)
away = np.abs(alpha[:, None] - border) > 0.05
error = np.mean(((values > 0.1) != (alpha[:, None] > border))[away])  # fraction on the wrong side

fig, axes = plt.subplots()
drawn = axes.pcolormesh(b, alpha, values, cmap="magma", shading="nearest")
axes.plot(b, border, color="w", linestyle="--", label="border of stability")
axes.set(xlabel="$b$", ylabel=r"order $\alpha$", ylim=(0.49, 1.01))
axes.legend(labelcolor="w", loc="lower left")
fig.colorbar(drawn, label="amplitude of $x$")
print(f"{values.size} solutions; {error:.1%} on the wrong side, away from the border")
plt.show()
