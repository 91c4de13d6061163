"""Environment variables are read strictly, and a missing library is told with what installs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import _optional
from hpfracc._config import get_settings, read_environment
from hpfracc.engine.backends import registry
from hpfracc.errors import ConfigurationError


@pytest.mark.parametrize(("text", "value"), [("1", True), ("0", False), ("true", True), ("False", False)])
def test_flags(text: str, value: bool) -> None:
    """``0`` and ``false`` are False."""
    assert read_environment({"HPFRACC_ENABLE_LEARNING": text})["enable_learning"] is value
    assert (read_environment({"HPFRACC_FORCE_NUMPY": text}).get("force") == "numpy") is value


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"HPFRACC_ENABLE_LEARNING": "yes"}, "HPFRACC_ENABLE_LEARNING='yes'.*use 1, 0, true or false"),
        ({"HPFRACC_DISABLE_JAX": "2"}, "HPFRACC_DISABLE_JAX='2'"),
        ({"HPFRACC_GPU_MEMORY_LIMIT": "2"}, "HPFRACC_GPU_MEMORY_LIMIT='2'.*at most 1"),
        ({"HPFRACC_GPU_MEMORY_LIMIT": "nan"}, "HPFRACC_GPU_MEMORY_LIMIT='nan'"),
        ({"HPFRACC_GPU_MEMORY_LIMIT": "most"}, "HPFRACC_GPU_MEMORY_LIMIT='most'"),
        ({"HPFRACC_FORCE_NUMPY": "1", "HPFRACC_DISABLE_NUMPY": "1"}, "forced and disabled.*unset one"),
        ({"HPFRACC_FORCE_NUMPY": "1", "HPFRACC_FORCE_TORCH": "1"}, "only one backend can be forced"),
        (
            {f"HPFRACC_DISABLE_{n}": "1" for n in ("NUMPY", "NUMBA", "TORCH", "JAX", "CUPY")},
            "every backend is disabled",
        ),
    ],
)
def test_bad_values_name_the_variable_and_the_remedy(variables: dict[str, str], words: str) -> None:
    """An invalid variable raises an error; it is not replaced by a default."""
    with pytest.raises(ConfigurationError, match=words):
        read_environment(variables)


def test_unknown_variables_are_reported() -> None:
    """A misspelt variable has no effect, and a warning names it, its value and the variables there are."""
    with pytest.warns(UserWarning, match="HPFRACC_FORCE_NUMPI='1' is no setting.*HPFRACC_FORCE_NUMPY.*unset it"):
        assert read_environment({"HPFRACC_FORCE_NUMPI": "1"}) == {"disabled": frozenset()}


def test_forcing_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install it."""
    monkeypatch.setattr("hpfracc._config.is_installed", lambda name: False)
    monkeypatch.setenv("HPFRACC_FORCE_TORCH", "1")
    with pytest.raises(ConfigurationError, match=r"HPFRACC_FORCE_TORCH.*hpfracc\[torch\]"):
        hf.IntelligentBackendSelector()


def test_every_new_selector_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change takes effect with the next selector, and in the engine from then on."""
    assert get_settings().gpu_memory_limit == 0.8
    monkeypatch.setenv("HPFRACC_GPU_MEMORY_LIMIT", "0.25")
    assert get_settings().gpu_memory_limit == 0.8
    assert hf.IntelligentBackendSelector().gpu_memory_limit == 0.25
    assert get_settings().gpu_memory_limit == 0.25


T = np.linspace(0.0, 1.0, 33)
CALLS: dict[str, Callable[[], Any]] = {
    "operation": lambda: hf.causal_convolution(T, T),
    "elementwise": lambda: hf.elementwise("2*x", x=T),
    "operator": lambda: hf.caputo(T, T, 0.5),
    "operator of a function": lambda: hf.Caputo(0.5)(np.exp, T),
    "operator in space": lambda: hf.riesz(T, step=0.1, alpha=0.5),
    "transform": lambda: hf.frft(T, 0.5),
    "special function": lambda: hf.mittag_leffler(T, 0.5),
    "noise": lambda: hf.fbm(100, 0.7),
    "solve_fode": lambda: hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.1),
    "solve_fsde": lambda: hf.solve_fsde(lambda t, y: -y, 0.1, (0.0, 1.0), [1.0], step=0.1),
    "solve_fpde": lambda: hf.solve_fpde(
        None, (0.0, 1.0), np.sin(np.pi * T), x=T, space=hf.pde.Diffusion(1.0), boundary="dirichlet", alpha=0.5, step=0.1
    ),
    "fit_fode": lambda: hf.fit_fode(lambda t, y, k: -k * y, T, T, parameters={"k": 1.0}),
    "explain": lambda: hf.explain(hf.solve_fode, lambda t, y: -y, (0.0, 1.0), [1.0], 0.5, step=0.1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_backend_that_is_not_installed_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every function, also in those that never run on it."""
    monkeypatch.setattr(registry, "is_installed", lambda library: library != "torch")
    monkeypatch.setattr(registry._registry, "missing", {})
    words = r"use_backend asks for 'torch', .*not installed: pip install 'hpfracc\[torch\]'"
    with hf.use_backend("torch"), pytest.raises(hf.errors.BackendUnavailableError, match=words):
        CALLS[name]()


def test_missing_library_names_the_extra() -> None:
    """Importing a missing library raises an error that names what to install."""
    with pytest.raises(hf.errors.MissingDependencyError, match="pip install surely_not_there"):
        _optional.import_optional("surely_not_there")
