"""An optional library is imported only in the folders that are made for it, and never by merely listing backends.

A backend's own modules are imported by the engine alone: others ask the registry for functions of a library.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hpfracc._config import BACKENDS
from tests.helpers.source import PACKAGE, SOURCE, find_imports, find_modules

#: Each optional library, and the folders that may import it: none, where nothing of ours uses it yet.
HOMES = {
    # A solver's steps call the user's own function of tensors: the folder is imported only for such a solve.
    "torch": ("engine.backends.torch", "ml.torch", "solvers.ode.tensors.on_torch"),
    "jax": ("distributed.devices", "engine.backends.jax", "ml.jax", "solvers.ode.tensors.on_jax"),
    "jaxlib": ("engine.backends.jax", "ml.jax"),
    "cupy": ("engine.backends.cupy",),
    "cupyx": ("engine.backends.cupy",),
    # The stepping of a solver calls the user's own function at every step, so it is compiled together with that, not as
    # a primitive; the folder is imported only by a solve that is long enough.
    # A search for one path stops when it gets there, so what it visits depends on the data: it is no primitive either.
    "numba": ("engine.backends.numba", "solvers.ode.compiled", "lattice.compiled", "solvers.pde.compiled"),
    "llvmlite": ("engine.backends.numba",),
    "dask": ("distributed",),
    "distributed": ("distributed",),
    "matplotlib": (
        "cli.demo",
        "distributed.results",
        "solvers.ode.result",
        "solvers.pde.plot",
        "solvers.sde.result",
        "control.frequency",
        "control.responses",
        "models.base",
        "solvers.sde.rough.model",
        "solvers.sde.transport",
    ),
    "igraph": ("lattice.graphs",),
    "networkx": ("lattice.graphs",),
    "rustworkx": ("lattice.graphs",),
    "sklearn": ("ml._differencer",),
    "pandas": ("_results", "ml._differencer"),
    "xarray": ("_results", "distributed"),
}


#: Modules outside the engine that may import one of a backend's own, and why.
NAMES_A_BACKEND = {
    "lattice.compiled.searches": "compiled by Numba, which inlines the heap's functions into the search",
}
_BACKENDS = f"{PACKAGE}.engine.backends."


def named_backends(source: Path) -> list[str]:
    """Modules outside the engine that name a backend's module: in an import, or in a text from which to import."""
    found = []
    for module in find_modules(source).values():
        if module.name.startswith(f"{PACKAGE}.engine."):
            continue
        targets = [use.target for use in find_imports(module)]
        targets += [
            node.value if isinstance(node.value, str) else ""
            for node in ast.walk(module.tree())
            if isinstance(node, ast.Constant)  # parts of f-strings too
        ]
        names = {target.removeprefix(_BACKENDS).partition(".")[0] for target in targets if target.startswith(_BACKENDS)}
        if names & {*BACKENDS, "generic", ""}:
            found.append(module.name.removeprefix(f"{PACKAGE}."))
    return found


def problems(source: Path) -> list[str]:
    """Imports below ``source`` that let an optional library out of its folder, as sentences."""
    found = []
    for module in find_modules(source).values():
        inside = module.name.removeprefix(f"{PACKAGE}.")
        for use in find_imports(module):
            library = use.target.partition(".")[0]
            if library not in HOMES:
                continue
            where = f"{module.name}:{use.line} imports {library}"
            if not any(inside == home or inside.startswith(f"{home}.") for home in HOMES[library]):
                homes = " and ".join(HOMES[library]) or "nothing, for it has no folder in HOMES"
                found.append(f"{where} outside {homes}")
            elif use.at_import and (inside in HOMES[library] or inside.endswith(".adapter")):
                found.append(f"{where} as soon as it is imported: do so inside the functions that need it")
    return found


def test_libraries_stay_in_their_folders():
    """Only the folders for torch import torch, and so on; adapters, read to list what there is, import lazily."""
    assert problems(SOURCE) == []


def test_only_the_engine_names_backends():
    """Operators, solvers and layers get what a library alone has from the registry; exceptions are still needed."""
    assert sorted(named_backends(SOURCE)) == sorted(NAMES_A_BACKEND)


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("operators/a.py", "from hpfracc.engine.backends.torch import fused", True),
        ("operators/a.py", "from hpfracc.engine.backends import torch", True),
        ("operators/a.py", "def f():\n    import hpfracc.engine.backends.jax.wide", True),
        ("operators/a.py", "importlib.import_module('hpfracc.engine.backends.numba.heap')", True),
        ("operators/a.py", "import_module(f'hpfracc.engine.backends.{library}.special_functions')", True),
        ("operators/a.py", "from hpfracc.engine.backends.generic.fft import make_kernels", True),
        ("operators/a.py", "from hpfracc.engine.backends import registry", False),
        ("operators/a.py", "from hpfracc.engine.backends.registry import library_functions", False),
        ("engine/execution/a.py", "from hpfracc.engine.backends.torch import fused", False),
    ],
)
def test_a_named_backend_is_noticed(file: str, text: str, named: bool, tmp_path: Path):
    """By every kind of import, also of a name that is put together when it runs."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert bool(named_backends(tmp_path)) == named


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("engine/workload.py", "import torch", "imports torch outside engine.backends.torch and ml.torch and solvers"),
        ("engine/workload.py", "def f():\n    import torch.fft", "imports torch outside"),
        ("engine/workload.py", "from jax import numpy as jnp", "imports jax outside"),
        ("engine/workload.py", "import_optional('cupy')", "imports cupy outside"),
        ("engine/workload.py", "importlib.import_module('dask.array')", "imports dask outside"),
        ("engine/backends/numpy/kernels/fft.py", "import numba", "imports numba outside"),
        ("engine/backends/torch/kernels/fft.py", "import jax", "imports jax outside"),
        ("ml/torch/layers.py", "import matplotlib.pyplot", "imports matplotlib outside"),
        ("engine/backends/torch/adapter.py", "import torch", "as soon as it is imported"),
        ("engine/backends/torch/adapter.py", "class A:\n    import torch", "as soon as it is imported"),
        ("engine/backends/torch/adapter.py", "try:\n    from torch import fft\nexcept ImportError: ...", "as soon as"),
        ("engine/backends/numba/__init__.py", "import numba", "as soon as it is imported"),
    ],
)
def test_an_escape_is_noticed(file: str, text: str, complaint: str, tmp_path: Path):
    """Each way out, taken in a file of its own, is reported."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    (found,) = problems(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("engine/backends/torch/kernels/fft.py", "import torch"),
        ("engine/backends/torch/adapter.py", "def free_bytes():\n    import torch"),
        ("engine/backends/torch/adapter.py", "if sys:\n    def free_bytes():\n        import torch"),
        ("engine/backends/torch/adapter.py", "if TYPE_CHECKING:\n    import torch"),
        ("engine/backends/torch/adapter.py", "from hpfracc._optional import import_optional"),
        ("distributed/ensembles.py", "import dask.array"),
        ("engine/workload.py", "import numpy\nimport hpfracc.engine.backends.torch.adapter"),
    ],
)
def test_use_at_home_is_allowed(file: str, text: str, tmp_path: Path):
    """A kernel imports its library, an adapter does so inside functions or for the type checker."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    assert problems(tmp_path) == []
