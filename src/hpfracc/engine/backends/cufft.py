"""Bytes of cuFFT's work area for a plan, by a rule. Imports no array library.

The size depends on lengths, batch and precision in a way that no simple rule describes: on an H200 between nothing and
five times the transform. The rule is that of most transforms; the measured peak of a call corrects the prediction of
later ones.
"""

from __future__ import annotations

import math

from hpfracc.engine.numerics.lengths import largest_factor, power_of_two
from hpfracc.engine.primitives.base import Transform

#: Points of the longest row that cuFFT mostly transforms in one pass, and of the largest block of several axes.
_ONE_PASS, _ONE_BLOCK = 4096, 2**20
#: The largest prime with special passes.
_LARGEST_PRIME = 127


def work_bytes(transform: Transform) -> int:
    """Typical work area: nothing for one pass, otherwise the size of the transform; odd real ones as complex ones."""
    # A plan supports up to three axes; more are transformed in groups.
    lengths, batch = transform.lengths[-3:], transform.rows * math.prod(transform.lengths[:-3])
    points, item = math.prod(lengths), 8 if transform.dtype in ("float32", "complex64") else 16
    if not points * batch:
        return 0
    real = transform.dtype.startswith("float")
    whole = batch * points * item
    spectrum = batch * (points // lengths[-1]) * (lengths[-1] // 2 + 1) * item if real else whole
    if len(lengths) > 1:
        return spectrum if points > _ONE_BLOCK else 0
    if points > _ONE_PASS and largest_factor(points) > _LARGEST_PRIME:
        # A convolution of at least twice the length, with its two factors (Bluestein); of half the length for a real
        # transform of even length, which is a complex one of half that length.
        row = points // 2 if real and points % 2 == 0 else points
        return 2 * batch * power_of_two(2 * row - 1) * item + (spectrum if real else 0)
    if real and points % 2:
        return whole
    in_one_pass = points <= _ONE_PASS and (not real or points == power_of_two(points))
    return 0 if in_one_pass else spectrum
