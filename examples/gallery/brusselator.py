r"""A chemical clock that stops below order 2/3: the Brusselator.

$$ D^\alpha x = 1 - 4 x + x^2 y, \quad D^\alpha y = 3 x - x^2 y $$

The eigenvalues at the equilibrium (1, 3) have the argument pi/3. So it is unstable, and the concentrations oscillate,
for orders above 2/3; below they return to it, at the rate of a power of time.

D. Matignon, Proc. CESA (1996) 963-968; V. Gafiychuk, B. Datsko, Phys. Lett. A 372 (2008) 4902-4904.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf


def brusselator(t, z):
    x, y = z[0], z[1]
    return np.array([1.0 - 4.0 * x + x**2 * y, 3.0 * x - x**2 * y])


t = np.linspace(0.0, 40.0, 801)
fig, (portrait, course) = plt.subplots(1, 2, width_ratios=[1.25, 1], figsize=(5.6, 3.4))
amplitude = {}
for alpha, colour in ((0.6, "C0"), (0.8, "C2"), (1.0, "C1")):
    solution = hf.solve_fode(brusselator, (0.0, 40.0), [1.2, 2.8], alpha, t_eval=t, rtol=1e-5)
    x, y = solution.y
    portrait.plot(x, y, color=colour, linewidth=1.2, label=rf"$\alpha = {alpha}$")
    course.plot(t, x, color=colour, linewidth=1.2)
    amplitude[alpha] = np.ptp(x[t > 25.0]) / 2
portrait.plot(1.0, 3.0, "ko", markersize=4, label="equilibrium")
portrait.set(xlabel="$x$", ylabel="$y$", title="orbits")
portrait.legend(loc="upper right", fontsize=9)
course.set(xlabel="$t$", ylabel="$x(t)$", title="in time", xlim=(0, 40))
eigenvalues = np.linalg.eigvals([[2.0, 1.0], [-3.0, -1.0]])  # of the Jacobian at (1, 3)
critical = np.abs(np.angle(eigenvalues)).min() * 2.0 / np.pi
print(f"critical order {critical:.4f}; amplitudes " + ", ".join(f"{a}: {v:.3f}" for a, v in amplitude.items()))
plt.show()
