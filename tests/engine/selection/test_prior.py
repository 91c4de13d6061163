"""The packaged prior: there for every operation, in a form the engine reads, and sane before anything was measured."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.backends import registry
from hpfracc.engine.backends.base import Arm, KernelSpec
from hpfracc.engine.primitives import PRIMITIVES
from hpfracc.engine.selection.prior import Prior, general_name, load_prior

OPERATIONS = ("causal_convolution", "matmul", "fft", "elementwise", "reduction", "bitwise_xor")


def arm(backend: str, algorithm: str, device: str = "cpu", workers: int = 1) -> Arm:
    return Arm(backend, KernelSpec("fft", algorithm, frozenset()), device, workers)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_arm_of_the_host_is_expected_to_take_some_time(operation: str):
    """Each has knots whose work and time rise, in the operation's usual dtype."""
    dtype = "int64" if operation == "bitwise_xor" else "float64"
    for each in registry.arms(operation):
        if each.on_host:
            knots = load_prior().knots(operation, each, "host", dtype)
            assert knots, f"{each} of {operation} is not in the prior; run benchmarks/make_prior.py"
            works, times = zip(*knots, strict=True)
            assert list(works) == sorted(set(works))
            assert list(times) == sorted(times)
            assert min(times) > 0.0


def test_the_very_first_choice_is_sane():
    """Uncalibrated: a direct sum for 16 points, transforms for a million; a matrix product never by loops."""
    with hf.config(never={name: ["torch", "jax", "cupy"] for name in OPERATIONS}):
        assert hf.explain("causal_convolution", shape=(16,)).decision.algorithm == "direct"
        for points in (10_000, 100_000, 1_000_000):
            assert hf.explain("causal_convolution", shape=(points,)).decision.algorithm == "fft"
        assert hf.explain("matmul", shape=(512, 512)).decision.backend == "numpy"


def test_the_first_call_waits_for_no_library():
    """One small call is not worth importing or compiling anything for."""
    for operation in OPERATIONS:
        assert hf.explain(operation, shape=(8, 8)).decision.backend == "numpy"


def test_another_dtype_is_taken_in_proportion():
    """Without knots of its own a dtype costs what its bytes say."""
    prior = Prior({"knots": {"fft": {"numpy:a@cpu": {"host": {"float64": [[10.0, 4e-6]]}}}}})
    assert prior.knots("fft", arm("numpy", "a"), "host", "float32") == [(10.0, 2e-6)]
    assert prior.knots("fft", arm("numpy", "a"), "device", "float32") == []
    assert prior.knots("fft", arm("numpy", "b"), "host", "float64") == []


def test_names_do_not_depend_on_the_machine():
    """Neither the number of a GPU nor the number of workers is part of what is looked up."""
    assert general_name(arm("torch", "fft", "cuda:3")) == "torch:fft@cuda"
    assert general_name(arm("numba", "direct", workers=16)) == "numba:direct@cpux*"


def test_the_file_is_what_it_claims():
    """Only operations that exist, knots of two numbers each, at most ten, and the machines named."""
    data = json.loads(resources.files("hpfracc.engine.selection").joinpath("prior.json").read_text(encoding="utf-8"))
    assert data["version"] == 1
    assert data["made"]
    assert all(entry["date"] and entry["processor"] for entry in data["made"])
    assert set(data["knots"]) <= set(PRIMITIVES)
    rows = [
        row
        for arms in data["knots"].values()
        for starts in arms.values()
        for dtypes in starts.values()
        for row in dtypes.values()
    ]
    assert rows
    assert all(1 <= len(row) <= 10 and np.shape(row) == (len(row), 2) for row in rows)
    assert all(seconds > 0.0 for seconds in data["compile"].values())
    assert all(latency > 0.0 and rate > 0.0 for latency, rate in data["transfers"].values())
