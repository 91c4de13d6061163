"""The Mittag-Leffler exponential integrator, where it finds the linear part itself."""

from __future__ import annotations

import numpy as np

import hpfracc as hf


def test_a_stiff_linear_part_is_found_to_ten_digits():
    """What a matrix by differences lacks is left to the corrector, whose steps do not resolve the stiff layer."""
    matrix = np.array([[-54.0, -68.0], [68.0, -54.0]])
    found = hf.solve_fode(lambda t, y: matrix @ y, (0.0, 2.0), [1.0, 0.5], 0.8, method="mittag_leffler", rtol=1e-3)
    # y0 + i y1 is one complex mode.
    truth = hf.mittag_leffler((-54.0 + 68.0j) * found.t**0.8, 0.8) * (1.0 + 0.5j)
    error = float(np.abs(found.y[0] + 1j * found.y[1] - truth).max())
    assert error < 1e-10
    assert error < 3.0 * float(np.max(found.error_estimate))
