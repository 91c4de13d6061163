r"""The smile of rough volatility.

$$ V_t = V_0 + \frac{1}{\Gamma(H + \frac{1}{2})} \int_0^t (t - s)^{H - 1/2}
   \left(\kappa(\theta - V_s)\, ds + \sigma \sqrt{V_s}\, dW_s\right) $$

Implied volatilities of the rough Heston model, from its characteristic function, the solution of a fractional Riccati
equation. With H = 0.1 smiles of short maturities are steeper than with H = 0.5, the model of Heston.

O. El Euch, M. Rosenbaum, Math. Finance 29 (2019) 3-38.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpfracc import rough

moneyness = np.linspace(-0.25, 0.2, 46)
maturities = np.array([[1 / 52], [0.25], [1.0]])
fig, axes = plt.subplots()
slopes, error = {}, 0.0
for index, style in ((0.1, "-"), (0.5, ":")):
    model = rough.Heston(H=index, v0=0.04, theta=0.04, kappa=0.3, sigma=0.4, rho=-0.7)
    found = model.implied_volatility(np.exp(moneyness), maturities)
    for row, name in enumerate(("a week", "a quarter", "a year")):
        seen = np.abs(moneyness) < 4.5 * 0.2 * np.sqrt(maturities[row, 0])
        error = max(error, found.error[row, seen].max())
        label = f"{name}, $H = {index}$"
        axes.plot(moneyness[seen], 100 * found.value[row, seen], style, color=f"C{row}", label=label)
    slopes[index] = np.gradient(found.value[0], moneyness)[moneyness.size * 5 // 9]
axes.set(xlabel=r"log-moneyness $\log(K/S_0)$", ylabel="implied volatility / %")
axes.legend(fontsize=9)
print("slope at the money, a week: " + ", ".join(f"{s:.2f} for H = {h}" for h, s in slopes.items()))
print(f"largest error estimate of a volatility {error:.0e}")
plt.show()
