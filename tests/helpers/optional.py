"""Tests that need a library that is not installed are left out, and the head of the run says which libraries are."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpfracc.errors import BackendUnavailableError, InvalidInputError, MissingDependencyError
from tests.helpers.source import REPOSITORY

#: Libraries that the extras of ``pyproject.toml`` bring.
OPTIONAL = (
    "cloudpickle",
    "control",
    "dask",
    "distributed",
    "equinox",
    "flax",
    "igraph",
    "jax",
    "jsonschema",
    "matplotlib",
    "mypy",
    "networkx",
    "numba",
    "optax",
    "pandas",
    "rustworkx",
    "selenium",
    "sklearn",
    "torch",
    "torchdiffeq",
    "xarray",
)


class OptionalLibraries:
    """Leaves out modules that import a missing library, and skips tests that do."""

    def __init__(self) -> None:
        self.missing = {name for name in OPTIONAL if importlib.util.find_spec(name) is None}

    def pytest_report_header(self) -> str:
        return f"left out, because not installed: {', '.join(sorted(self.missing)) or 'nothing'}"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if self.missing and collection_path.suffix == ".py" and self._imports(collection_path) & self.missing:
            return True
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        return (yield from self._left_out())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        return (yield from self._left_out())

    def _left_out(self) -> Iterator[None]:
        """A step of a test, or of its fixtures, that is skipped if it needs a missing library."""
        try:
            return (yield)
        except (ImportError, BackendUnavailableError, InvalidInputError) as error:
            if not self._explains(error):
                raise
            pytest.skip(str(error).partition("\n")[0])

    def _explains(self, error: Exception) -> bool:
        """Whether a test failed only because a library is missing."""
        if isinstance(error, BackendUnavailableError):
            return bool(self.missing) and "not installed" in str(error)
        if isinstance(error, InvalidInputError):
            return "cloudpickle" in self.missing and str(error).endswith("or install cloudpickle")
        if str(error.name).partition(".")[0] not in self.missing:  # type: ignore[attr-defined]
            return False
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        ours = frame is None or Path(frame.tb_frame.f_code.co_filename).is_relative_to(REPOSITORY / "src")
        # A plain import in hpfracc that fails is an error of ours; a typed one says what to install.
        return isinstance(error, MissingDependencyError) or not ours

    def _imports(self, path: Path) -> set[str]:
        """Libraries that the module imports when it is loaded, itself or by helpers of the tests."""
        found: set[str] = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            else:
                continue
            for name in names:
                helper = REPOSITORY / f"{name.replace('.', '/')}.py"
                if name.startswith(("tests.", "benchmarks.")) and helper.is_file():
                    found |= self._imports(helper)
                found.add(name.partition(".")[0])
        return found
