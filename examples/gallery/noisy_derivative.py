r"""A half derivative of noisy samples, with its band, and in real time.

$$ y_i = f(t_i) + \varepsilon_i, \quad D^{1/2} f(t) = \frac{1}{\sqrt{\pi}} \int_0^t \frac{f'(s)}{\sqrt{t - s}} ds $$

The plain derivative magnifies the noise. The smooth one takes the curve for a Wiener process that is integrated once:
its band of two standard errors covers the exact derivative. The stream knows only the samples so far.

G. Wahba, J. R. Statist. Soc. B 45 (1983) 133-150.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

alpha, noise = 0.5, 0.03
t = np.linspace(0.0, 8.0, 240)
rng = np.random.default_rng(4)


def curve(x: np.ndarray) -> np.ndarray:
    """The clean signal."""
    return np.sin(2.0 * x) * np.exp(-0.2 * x)


samples = curve(t) + noise * rng.standard_normal(t.size)
exact = hf.caputo(curve, t, alpha)
smooth = hf.smooth_derivative(samples, t, alpha, noise=noise)
stream = hf.SmoothDerivativeStream(alpha, t[1], noise=noise, roughness=smooth.roughness)
live = np.array([stream.push(sample) for sample in samples])
fig, axes = plt.subplots(3, 1, sharex=True, layout="constrained", figsize=(7, 7))
axes[0].plot(t, samples, ".", markersize=3)
axes[0].plot(t, smooth.smooth)
axes[0].set(ylabel="samples", title="Half derivative of noisy samples")
axes[1].plot(t, hf.caputo(samples, t, alpha), color="0.7", linewidth=0.8, label="plain")
axes[1].fill_between(t, *smooth.band(), alpha=0.4, label="smooth, two standard errors")
axes[1].plot(t, exact, "k", linewidth=1, label="exact")
axes[1].set(ylabel="all samples")
axes[1].legend(loc="lower right", ncols=3)
axes[2].fill_between(t, live[:, 0] - 2.0 * live[:, 1], live[:, 0] + 2.0 * live[:, 1], alpha=0.4, label="stream")
axes[2].plot(t, exact, "k", linewidth=1)
axes[2].set(xlabel="$t$", ylabel="samples so far", ylim=axes[1].get_ylim())
axes[2].legend(loc="lower right")
low, high = smooth.band()
error = np.abs(smooth.value - exact).max()
print(f"largest error {error:.3f}; {np.mean((low <= exact) & (exact <= high)):.0%} of the points inside the band")
plt.show()
