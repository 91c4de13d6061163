"""Functions that exist for some libraries only are handed out by the registry."""

from __future__ import annotations

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


def test_a_library_without_them_is_refused():
    """With those that have them."""
    with pytest.raises(
        BackendUnavailableError, match="cupy has no special functions; convert the arrays to torch or jax"
    ):
        registry.library_functions("cupy", "special_functions")
