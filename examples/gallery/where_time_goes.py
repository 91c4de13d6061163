r"""Where the time goes: a run under the profiler.

$$ y_n = \sum_{k=0}^{n} w_k\, x_{n-k} $$

Every fractional derivative is such a sum over the past, and the engine chooses how it is computed. Each task below, on
4,001 points, is a span of the profiler; bars are medians on the machine that drew them.

E. Hairer, C. Lubich, M. Schlichte, SIAM J. Sci. Stat. Comput. 6 (1985) 532-541, on fast sums over the past.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf
from hpfracc.profiling import get_profiler

t = np.linspace(0.0, 10.0, 4001)
signal = np.sin(t) * np.exp(-0.1 * t)
work = {
    "Caputo derivative": lambda: hf.caputo(signal, t, 0.5),
    "Grünwald-Letnikov derivative": lambda: hf.grunwald_letnikov(signal, t, 0.5),
    "Riesz derivative": lambda: hf.riesz(signal, t, 0.5),
    "Mittag-Leffler function": lambda: hf.mittag_leffler(-t, 0.5),
    "fractional Brownian path": lambda: hf.fbm(4000, 0.3, rng=1),
    "equation, 1,000 steps": lambda: hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], 0.5, step=0.01),
}
profiler = get_profiler(enabled=True)
profiler.reset()
for call in work.values():
    call()  # first calls load and compile: not measured here
for _ in range(5):
    for name, call in work.items():
        with profiler.profile(name):
            call()
profiler.disable()
summary = profiler.get_summary()
profiler.reset()
medians = np.array([1e3 * summary[name]["p50"] for name in work])
error = abs(sum(summary[name]["count"] for name in work) - 5 * len(work))  # every span was recorded

order = medians.argsort()
names = np.array(list(work))[order]
fig, axes = plt.subplots()
bars = axes.barh(names, medians[order], color="C0", height=0.6)
axes.bar_label(bars, [f"{value:.3g} ms" for value in medians[order]], padding=4, fontsize=10)
axes.set(xlabel="median time of a call / ms", xscale="log", xlim=(medians.min() / 2, medians.max() * 8))
axes.spines["left"].set_visible(False)
axes.tick_params(axis="y", length=0)
print(f"slowest: {names[-1]}, {medians.max():.3g} ms")
plt.show()
