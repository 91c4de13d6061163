"""The program of equal steps: scans within scans, which hardly grow with the number of steps."""

from __future__ import annotations

from typing import Any

import pytest

import hpfracc as hf

jax = pytest.importorskip("jax")
jnp = jax.numpy


def test_a_program_hardly_grows_with_the_number_of_steps():
    """The right-hand side is traced for four blocks, of 256 steps or of 4,096; once there were sixteen."""
    calls = []

    def program(steps: int) -> str:
        def fun(t: Any, y: Any) -> Any:
            calls.append(t)
            return -y

        def last(y0: Any) -> Any:
            return hf.solve_fode(fun, (0.0, 1.0), y0, 0.7, method="pece", step=1.0 / steps).y[..., -1]

        return str(jax.make_jaxpr(last)(jnp.ones(2)))

    short, count = program(256), len(calls)
    long = program(4096)
    assert len(calls) - count <= count + 2
    assert long.count("\n") < 2.5 * short.count("\n")
    assert "16777216" not in long and max(map(len, long.splitlines())) < 10_000  # no tables as constants
