r"""First passage: how long a particle survives beside a trap.

$$ S(t) = P(X_s > 0 \text{ for } s \leq t), \quad X_0 = 1, \quad S(t) \sim t^{-\alpha/2} $$

Particles start at distance 1 from an absorbing wall. Times of ordinary and of subdiffusive motion are drawn from their
exact distributions, without time steps. Lines are exact: an error function, and integrals of Wright functions.

S. Redner, A Guide to First-Passage Processes (2001); R. Metzler, J. Klafter, Physica A 278 (2000) 107-125.
"""

from math import inf

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import erf

import hpfracc as hf
from hpfracc import noise, transport

t = np.geomspace(0.1, 1e4, 26)
fig, axes = plt.subplots()
worst = []
for number, alpha in enumerate((1.0, 0.7, 0.4)):
    motion = noise.StableLevy(2.0) if alpha == 1.0 else noise.Subordinated(noise.StableLevy(2.0), alpha)
    survival = transport.first_passage(motion, (0.0, inf), start=1.0, paths=40_000, rng=5).survival(t)
    # 1 - S solves the diffusion equation of order alpha with value 1 at the wall: a Wright function at distance 1.
    exact = erf(0.5 / np.sqrt(t)) if alpha == 1.0 else 1.0 - hf.wright(-(t ** (-alpha / 2)), -alpha / 2, 1.0)
    axes.loglog(t, exact, color=f"C{number}", label=rf"$\alpha = {alpha:g}$")
    axes.loglog(t, survival.value, "o", color=f"C{number}")
    worst.append(np.abs((survival.value - exact) / survival.standard_error).max())
error = max(worst)  # in standard errors
axes.set(xlabel="$t$", ylabel="survival probability", title="40,000 particles (dots) and exact (lines)")
axes.legend()
print(f"largest deviation {error:.1f} standard errors")
plt.show()
