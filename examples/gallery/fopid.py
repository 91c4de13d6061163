r"""Step response of a fractional PID loop.

$$ C(s) = K_p + K_d s^\mu, \quad G(s) = \frac{1}{0.8 s^{2.2} + 0.5 s^{0.9} + 1} $$

A plant of fractional order with the controllers of Podlubny's paper: the derivative of order 1.15 damps the loop better
than the ordinary one, which was designed for the best model of integer order.

I. Podlubny, IEEE Trans. Autom. Control 44 (1999) 208-214.
"""

import matplotlib.pyplot as plt
import numpy as np

from hpfracc import control

s = control.s
plant = 1 / (0.8 * s**2.2 + 0.5 * s**0.9 + 1)
laws = {"integer PD": control.FOPID(20.5, Kd=2.7343), r"PD$^{1.15}$": control.FOPID(20.5, Kd=3.7343, mu=1.15)}
t = np.linspace(0.0, 10.0, 1001)
w = np.geomspace(0.1, 100.0, 500)
fig, (above, below) = plt.subplots(2, height_ratios=[1.6, 1], layout="constrained")
for name, law in laws.items():
    response = control.step_response(law.closed_loop(plant), t)
    above.plot(t, response.y, label=f"{name}, overshoot {response.y.max() / response.y[-1] - 1:.0%}")
    margins = control.margins(law.transfer_function() * plant)
    below.semilogx(w, control.bode(law.transfer_function() * plant, w).degrees, label=name)
    below.plot(margins.w_gain_crossing, np.degrees(margins.phase) - 180.0, "ko")
    error = response.error_estimate
    print(f"{name}: phase margin {np.degrees(margins.phase):.0f} degrees, error {error:.0e}")
above.axhline(20.5 / 21.5, color="grey", linestyle=":", linewidth=1)
above.set(xlabel="$t$", ylabel="$y(t)$", title="A fractional controller on a fractional plant")
above.legend()
below.axhline(-180.0, color="grey", linestyle=":", linewidth=1)
below.set(xlabel=r"$\omega$", ylabel="phase in degrees")
plt.show()
