"""Functions that exist for some libraries only are handed out by the registry."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from hpfracc._config import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.errors import BackendUnavailableError

FOLDER = Path(registry.__file__).parent


@pytest.mark.parametrize("name", sorted(registry._FUNCTIONS))
def test_the_table_is_that_of_the_folders(name: str):
    """A backend is listed if and only if its folder has the file."""
    there = {backend for backend in BACKENDS if (FOLDER / backend / f"{name}.py").exists()}
    assert set(registry._FUNCTIONS[name]) == there != set()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_the_functions_are_those_of_the_library(library: str):
    """The module in the library's folder, the same one at each call."""
    pytest.importorskip(library)
    found = registry.library_functions(library, "special_functions")
    assert found is importlib.import_module(f"hpfracc.engine.backends.{library}.special_functions")
    assert registry.library_functions(library, "special_functions") is found


def test_a_library_without_them_is_refused():
    """With those that have them."""
    with pytest.raises(
        BackendUnavailableError, match="cupy has no special functions; convert the arrays to torch or jax"
    ):
        registry.library_functions("cupy", "special_functions")


def test_asking_for_nothing_imports_nothing():
    """The modules that use these functions import no library before a call needs one."""
    used = "hpfracc.special, hpfracc.operators.core.order_tables, hpfracc.solvers.sde.noise.circulant"
    code = f"import sys, {used}\nassert not {{'torch', 'jax', 'cupy', 'numba'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
