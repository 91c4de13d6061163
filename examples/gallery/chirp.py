r"""A chirp found by the fractional Fourier transform.

$$ \mathcal{F}^a f(u) = \sqrt{1 - i \cot\phi} \int f(t)\, e^{i\pi (u^2 \cot\phi - 2 u t \csc\phi + t^2 \cot\phi)}\, dt,
   \quad \phi = \frac{a\pi}{2} $$

A chirp in noise is spread out in time and in frequency. The transform of order a turns the time-frequency plane by a
right angle times a: at the order that matches the chirp's rate it is a single peak.

H. M. Ozaktas, O. Arikan, M. A. Kutay, G. Bozdagi, IEEE Trans. Signal Process. 44 (1996) 2141-2150.
"""

import matplotlib.pyplot as plt
import numpy as np

import hpfracc as hf

n, order = 512, 0.3
u = (np.arange(n) - n // 2) / np.sqrt(n)
chirp = np.exp(-np.pi * (u / 5) ** 2 - 1j * np.pi * u**2 / np.tan(order * np.pi / 2))
generator = np.random.default_rng(0)
signal = chirp + 0.4 * (generator.standard_normal(n) + 1j * generator.standard_normal(n))
orders = np.linspace(0.0, 1.0, 101)
plane = np.abs([hf.frft(signal, a) for a in orders])
found = orders[plane.max(axis=1).argmax()]
error = abs(found - order)

fig, (image, curves) = plt.subplots(1, 2, width_ratios=[1, 1.25], figsize=(5.6, 3.2))
image.imshow(plane, aspect="auto", origin="lower", extent=(u[0], u[-1], 0, 1), cmap="magma", vmax=4.0)
image.set(xlabel="$u$", ylabel="order $a$", title="in all orders")
shown = ((0.0, "time"), (found, f"order {found:.2f}"), (1.0, "frequency"))
for number, (a, name) in enumerate(shown):
    curves.plot(u, np.abs(hf.frft(signal, a)) + 9.0 * (2 - number), color=f"C{number}", linewidth=1)
    curves.text(u[0], 9.0 * (2 - number) + 4.0, name, color=f"C{number}", fontsize=10)
curves.set(xlabel="$u$", yticks=[])
curves.spines["left"].set_visible(False)
print(f"order of the highest peak {found:.2f}, true {order}")
plt.show()
