r"""A stiff system: Robertson's reactions with memory.

$$ D^\alpha a = -0.04\,a + 10^4\,b c, \quad D^\alpha c = 3 \cdot 10^7\, b^2, \quad a + b + c = 1 $$

Rates differ by nine powers of ten. An implicit method on a graded mesh takes steps that follow the slow components,
from t = 1e-7 on. The sum of the concentrations is conserved.

H. H. Robertson, in Numerical Analysis: An Introduction (1966) 178-182; R. Garrappa, Mathematics 6 (2018) 16.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf


def robertson(t, y):
    a, b, c = y[0], y[1], y[2]
    slow, back, fast = 0.04 * a, 1e4 * b * c, 3e7 * b * b
    return np.array([back - slow, slow - back - fast, fast])


t = np.geomspace(1e-7, 1e2, 120)
fig, axes = plt.subplots()
error = 0.0
for alpha, style in ((0.9, "-"), (0.7, ":")):
    solution = hf.solve_fode(robertson, (0.0, 1e2), [1.0, 0.0, 0.0], alpha, t_eval=t, rtol=1e-4, atol=1e-10)
    error = max(error, np.abs(solution.y.sum(axis=0) - 1.0).max())
    print(f"order {alpha}: {solution.stats['steps']} steps, error estimate {np.max(solution.error_estimate):.0e}")
    for row, factor, name in ((0, 1.0, "$a$"), (1, 2e4, r"$2 \cdot 10^4\, b$"), (2, 1.0, "$c$")):
        label = rf"{name}, $\alpha = {alpha:g}$"
        axes.semilogx(t, factor * solution.y[row], style, color=f"C{row}", label=label, linewidth=1.8)
axes.set(xlabel="$t$", ylabel="concentrations", ylim=(-0.03, 1.08))
axes.legend(fontsize=8, loc="center left")
print(f"largest change of a + b + c: {error:.0e}")
plt.show()
