"""Memory by address, and private functions of other libraries: only where there is no other way."""

from __future__ import annotations

import ast

from tests.helpers.source import SOURCE

#: Names of other libraries, and the files that may use them.
ALLOWED = {
    "_functorch": {"_torch_transforms.py"},
    "_DisableFuncTorch": {"_torch_transforms.py"},
    "_current_level": {"_torch_transforms.py"},
    "_get_running_loop": set(),
    "_CudaEventBase": set(),
    "_CudaStreamBase": set(),
    "_mmap": set(),
    "__array_interface__": set(),
    # One kernel for all tensors of a group (benchmarks/optimizers.py); tests/ml/test_optimizers.py has both ways.
    "_foreach_add_": {"ml/torch/optimizers.py"},
    "_foreach_addcdiv_": {"ml/torch/optimizers.py"},
    "_foreach_addcmul_": {"ml/torch/optimizers.py"},
    "_foreach_div_": {"ml/torch/optimizers.py"},
    "_foreach_mul": {"ml/torch/optimizers.py"},
    "_foreach_mul_": {"ml/torch/optimizers.py"},
    "_foreach_sqrt": {"ml/torch/optimizers.py"},
    # CuPy's copies take addresses; PyTorch ends the process on memory that is not aligned for it.
    "ctypes": {"engine/backends/cupy/transfers.py", "engine/backends/torch/transfers.py"},
}


def names_in(source: str) -> set[str]:
    """Attributes that are read, names that are imported, and strings, in which a name may be looked up."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_private_names_are_used_in_one_place():
    """The files that use a name are those that may; one that no longer does is taken off the list."""
    using: dict[str, set[str]] = {name: set() for name in ALLOWED}
    for path in SOURCE.rglob("*.py"):
        for name in names_in(path.read_text(encoding="utf-8")) & using.keys():
            using[name].add(path.relative_to(SOURCE).as_posix())
    assert using == ALLOWED


def test_every_kind_of_use_is_found():
    """An attribute, an import, and a string for ``getattr``."""
    source = "from asyncio.events import _one\nx._two.data\ngetattr(x, '_three', None)\n"
    assert {"_one", "_two", "_three"} <= names_in(source)
