r"""A battery's impedance spectrum, fitted with its orders.

$$ Z(s) = R_0 + \frac{R_1}{1 + \tau_1 s^{\alpha}} + W s^{-1/2} $$

Synthetic measurements with 1 % noise of a known cell: a resistance, a depressed arc, and diffusion. Coefficients and
the order of the arc are found again, with standard errors.

J. R. Macdonald, Ann. Biomed. Eng. 20 (1992) 289-305.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpfracc import control

s = control.s
truth = 0.02 + 0.05 / (1 + 0.3 * s**0.8) + 0.01 / s**0.5
w = np.geomspace(1e-2, 1e4, 60)
rng = np.random.default_rng(3)
exact = truth(1j * w)
measured = exact * (1.0 + 0.01 * (rng.normal(size=w.size) + 1j * rng.normal(size=w.size)))
fit = control.fit_frequency(w, measured, 0.01 + 0.1 / (1 + s**0.7) + 0.1 / s**0.5, orders="free")
fine = np.geomspace(1e-2, 1e4, 500)
curve = fit.system(1j * fine)
fig, (left, right) = plt.subplots(1, 2, width_ratios=[1.5, 1], layout="constrained", figsize=(9, 4))
left.plot(measured.real, -measured.imag, "o", label="measured, 1 % noise")
left.plot(curve.real, -curve.imag, label="fit")
left.set(xlabel=r"$\mathrm{Re}\,Z$", ylabel=r"$-\mathrm{Im}\,Z$", title="Impedance of a cell")
left.set_aspect("equal", adjustable="datalim")
left.legend()
right.semilogx(w, 100.0 * np.abs(fit.system(1j * w) / exact - 1.0))
right.set(xlabel=r"$\omega$", ylabel="error of the fit in %", ylim=(0.0, None))
error = np.abs(fit.system(1j * w) / exact - 1).max()
print(f"residual {fit.residual:.2%}, largest error {error:.2%}")
plt.show()
