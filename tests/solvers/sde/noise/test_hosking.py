"""Fractional Brownian motion that goes on: exact in law, and the same in any portions."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from hpfracc import noise
from hpfracc.errors import InvalidInputError


def test_values_are_those_of_the_motion() -> None:
    """Variance t^(2H), with the step and the time."""
    stream = noise.FractionalBrownian(0.3).stream(0.25, size=4000, rng=1)
    values = stream.draw(8)
    assert stream.time == 2.0 and stream.steps == 8
    variance = values.var(0) / (0.25 * np.arange(1, 9)) ** 0.6
    assert np.all(np.abs(variance - 1) < 4 * np.sqrt(2 / 4000))
    assert "steps=8" in repr(stream)


def test_portions_batches_and_copies() -> None:
    """One call or many, alone or with others, before and after a copy: the same bits."""
    process = noise.FractionalBrownian(0.7)
    whole = process.stream(0.1, size=(2, 3), rng=2).draw(150)
    stream = process.stream(0.1, size=(2, 3), rng=2)
    head = stream.draw(70)
    again = copy.deepcopy(stream)
    np.testing.assert_array_equal(np.concatenate([head, stream.draw(0), stream.draw(80)], axis=-1), whole)
    np.testing.assert_array_equal(again.draw(80), whole[..., 70:])
    np.testing.assert_array_equal(process.stream(0.1, rng=2, first_path=4).draw(150), whole[1, 1])


def test_refusals() -> None:
    """The Volterra kind, bad steps and counts."""
    with pytest.raises(InvalidInputError, match="not stationary"):
        noise.FractionalBrownian(0.3, kind="volterra").stream(0.1)
    with pytest.raises(InvalidInputError, match="step"):
        noise.FractionalBrownian(0.3).stream(0.0)
    with pytest.raises(InvalidInputError, match="count=-1"):
        noise.FractionalBrownian(0.3).stream(0.1, rng=1).draw(-1)
