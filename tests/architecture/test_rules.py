"""Rules that every file of the library keeps, read from its source; each is tried on a file that breaks it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpfracc import _lazy
from hpfracc._config import BACKENDS
from tests.helpers.source import PACKAGE, SOURCE, Module, find_imports, find_modules, resolve

#: Each optional library, and the folders and files that may import it.
HOMES = {
    # A solver's steps call the user's own function of tensors: the folder is imported only for such a solve.
    "torch": ("engine.backends.torch", "ml.torch", "solvers.ode.tensors.on_torch", "solvers.tensors.on_torch"),
    "jax": ("distributed.devices", "engine.backends.jax", "ml.jax", "solvers.ode.tensors.on_jax"),
    "jaxlib": ("engine.backends.jax", "ml.jax"),
    "cupy": ("engine.backends.cupy",),
    "cupyx": ("engine.backends.cupy",),
    # Steps call the user's function, and what a search visits depends on the data: neither is a primitive.
    "numba": ("engine.backends.numba", "solvers.ode.compiled", "lattice.compiled", "solvers.pde.compiled"),
    "llvmlite": ("engine.backends.numba",),
    "dask": ("distributed",),
    "distributed": ("distributed",),
    "matplotlib": (
        *("_results", "cli.demo", "control.frequency", "distributed.results", "solvers.fitting.result"),
        *("solvers.ode.result", "solvers.pde.plot"),
    ),
    "igraph": ("lattice.graphs",),
    "networkx": ("lattice.graphs",),
    "rustworkx": ("lattice.graphs",),
    "sklearn": ("ml._differencer",),
    "pandas": ("_results", "ml._differencer"),
    "polars": ("_results",),
    "xarray": ("_results", "distributed"),
}
#: Modules outside the engine that import one of a backend's own: Numba inlines the heap's functions into the search.
NAMES_A_BACKEND = {f"{PACKAGE}.lattice.compiled.searches"}
_BACKENDS = f"{PACKAGE}.engine.backends."
#: What a kernel, and the mathematics that kernels share, may not know: settings, logs, profiles, other kernels' fates.
IMPURE = ("logging", "warnings", "os", f"{PACKAGE}._config", f"{PACKAGE}.profiling")
#: Calls that wait for a device; adapters, clocks and transfers make them.
WAITS = {"synchronize", "block_until_ready"}
#: A program on one device that several operators share; its kernel has no primitive.
USES_A_BACKEND = {f"{PACKAGE}.operators.core.order_tables"}
#: How the docstring of a module begins that only keeps an old import path alive.
OLD_PATH = "Keeps an old import path alive"
#: Python around a lock: an interrupt within leaves it held. See hpfracc._interrupts, the one file that starts threads.
FORBIDDEN = {"Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier", "Thread", "Timer"}
THREADS = {"threading", "concurrent.futures", "multiprocessing"}
STARTS_THREADS = f"{PACKAGE}._interrupts"
LOGGERS = {"debug", "info", "warning", "error", "exception"}
#: Memory by address, and private names of other libraries: the files that use them because there is no other way.
PRIVATE = {
    "_functorch": {"_torch_transforms.py"},
    "_DisableFuncTorch": {"_torch_transforms.py"},
    "_current_level": {"_torch_transforms.py"},
    **{name: set() for name in ("_get_running_loop", "_CudaEventBase", "_CudaStreamBase", "_mmap")},
    "__array_interface__": set(),
    # One kernel for all tensors of a group (benchmarks/optimizers.py); tests/ml/test_optimizers.py has both ways.
    **{
        f"_foreach_{name}": {"ml/torch/optimizers.py"}
        for name in ("add_", "addcdiv_", "addcmul_", "div_", "mul", "mul_", "sqrt")
    },
    # CuPy's copies take addresses; PyTorch ends the process on memory that is not aligned for it; glibc trims memory.
    "ctypes": {
        *("engine/backends/cupy/transfers.py", "engine/backends/torch/transfers.py"),
        "engine/execution/pressure/ladder.py",
    },
}
#: Decorators of kernels.
KERNEL = re.compile(r"njit\b|triton\.jit\b|compile_kernel\b")


def isolation(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Optional libraries are imported in their folders alone, and adapters, read to list what there is, do so late."""
    inside = module.name.removeprefix(f"{PACKAGE}.")
    for use in find_imports(module):
        library = use.target.partition(".")[0]
        homes = HOMES.get(library, ())
        if homes and not any(f"{inside}.".startswith(f"{home}.") for home in homes):
            yield f"{use.line} imports {library} outside {' and '.join(homes)}"
        elif homes and use.at_import and (inside in homes or inside.endswith(".adapter")):
            yield f"{use.line} imports {library} as soon as it is imported: do so inside the functions that need it"


def backends(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Only the engine names a backend's module, in an import or in a text; others ask the registry for functions."""
    if module.name.startswith(f"{PACKAGE}.engine.") or module.name in NAMES_A_BACKEND:
        return
    targets = [use.target for use in find_imports(module)]
    targets += [str(node.value) for node in ast.walk(module.tree()) if isinstance(node, ast.Constant)]
    names = {target.removeprefix(_BACKENDS).partition(".")[0] for target in targets if target.startswith(_BACKENDS)}
    if names & {*BACKENDS, "generic", ""}:
        yield "0 names a backend: ask hpfracc.engine.backends.registry for the function"


def purity(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Kernels know no settings, logs or profiles and wait for no device; operators know no backend."""
    inside = module.name.removeprefix(f"{PACKAGE}.engine.")
    kernel = inside.startswith(("numerics.", "backends.generic.")) or ".kernels." in inside
    operator = module.name.startswith(f"{PACKAGE}.operators.") and module.name not in USES_A_BACKEND
    for use in find_imports(module):
        if kernel and any(f"{use.target}.".startswith(f"{name}.") for name in IMPURE):
            yield f"{use.line} imports {use.target}: kernels are pure functions of arrays"
        if operator and use.target.startswith(_BACKENDS):
            yield f"{use.line} imports {use.target}: an operator lowers itself to primitives and knows no backend"
    for node in ast.walk(module.tree()) if kernel else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAITS:
            yield f"{node.lineno} calls {node.func.attr}: only adapters wait for a device"


def old_paths(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Modules that only keep an old import path alive are imported by each other alone."""
    if _is_old(module):
        return
    for use in find_imports(module):
        target = modules.get(resolve(use.target, modules) or "")
        if target is not None and _is_old(target):
            yield f"{use.line} imports {target.name}, which only keeps an old import path alive"


def _is_old(module: Module) -> bool:
    return (ast.get_docstring(module.tree()) or "").startswith(OLD_PATH)


def underscores(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """A package's underscored modules are its own, except for public names, whose home may have an underscore."""
    public = {f"{home}.{name}" for name, home in _lazy.homes(PACKAGE).items()}
    for use in find_imports(module) if module.name != PACKAGE else ():
        target = resolve(use.target, modules)
        own = target is None or (module.is_package and target.startswith(f"{module.name}."))
        folder, underscore, _ = (target or "").partition("._")
        if not own and use.target not in public and underscore and not f"{module.name}.".startswith(f"{folder}."):
            yield f"{use.line} imports {target}, a private module of {folder}"


def locks(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Locks are taken by ``with``, threads wait on queues, and there are no conditions, semaphores or executors."""
    for node in _nodes(module, "threading|concurrent|multiprocessing|acquire"):
        if isinstance(node, ast.ImportFrom) and node.module in THREADS:
            yield f"{node.lineno} imports names of {node.module}"
        elif isinstance(node, ast.Import) and any(name.name.startswith("concurrent") for name in node.names):
            yield f"{node.lineno} imports concurrent.futures"
        elif isinstance(node, ast.Attribute) and node.attr == "acquire":
            yield f"{node.lineno} calls acquire: take a lock by with"
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN and module.name != STARTS_THREADS:
            yield from [f"{node.lineno} uses {name}"] if (name := ast.unparse(node)).startswith("threading.") else ()


def handlers(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """A handler of any error raises, logs or uses it, or a comment says why it must not escape."""
    lines = module.path.read_text(encoding="utf-8").splitlines()
    for node in _nodes(module, "except|suppress"):
        if isinstance(node, ast.ExceptHandler):
            silent, reach = _is_broad(node.type) and not any(_hands_on(each, node.name) for each in ast.walk(node)), 2
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            silent, reach = any(map(_is_broad, node.args)), 1
        else:
            continue
        if silent and not any("# " in line for line in lines[node.lineno - 1 : node.lineno - 1 + reach]):
            yield f"{node.lineno} drops any error without a word"


def _is_broad(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_is_broad, kind.elts))
    return kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"})


def _hands_on(node: ast.AST, error: str | None) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in LOGGERS
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Name) and node.id == error)


def prints(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Only the command line prints."""
    for node in _nodes(module, "print") if not f"{module.name}.".startswith(f"{PACKAGE}.cli.") else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{node.lineno} prints: log it, or return it"


def length(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """A file has less than 500 lines, and nothing in it is left unfinished."""
    text = module.path.read_text(encoding="utf-8")
    if len(text.splitlines()) >= 500:
        yield "500 is too long"
    for match in re.finditer(r"\b(TODO|FIXME|XXX|HACK)\b", text):
        yield f"{text.count(chr(10), 0, match.start()) + 1} says {match.group()}"


def parameters(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """A function has at most nine positional parameters; kernels of Numba and Triton take all arrays one by one."""
    for node in _nodes(module, "def ") if not module.name.endswith("on_cuda.kernels") else ():
        if not isinstance(node, ast.FunctionDef) or any(map(KERNEL.match, map(ast.unparse, node.decorator_list))):
            continue
        if (count := len(node.args.posonlyargs) + len(node.args.args)) > 9:
            yield f"{node.lineno} {node.name} has {count} positional parameters: group some in a dataclass"


def _nodes(module: Module, anywhere: str) -> Iterator[ast.AST]:
    """The nodes of a file in which ``anywhere`` matches."""
    if re.search(anywhere, module.path.read_text(encoding="utf-8")):
        yield from ast.walk(module.tree())


RULES: dict[str, Callable[[Module, dict[str, Module]], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (isolation, backends, purity, old_paths, underscores, locks, handlers, prints, length, parameters)
}


def problems(rule: str, source: Path) -> list[str]:
    modules = find_modules(source)
    return [f"{module.name}:{problem}" for module in modules.values() for problem in RULES[rule](module, modules)]


@pytest.mark.parametrize("rule", RULES)
def test_the_library_keeps_its_rules(rule: str):
    """Each rule, in every file."""
    assert problems(rule, SOURCE) == []


@pytest.mark.parametrize(
    ("rule", "file", "text", "complaint"),
    [
        ("isolation", "engine/workload.py", "def f():\n    import torch.fft", "imports torch outside engine.backends"),
        ("isolation", "engine/backends/torch/kernels/fft.py", "import jax", "imports jax outside"),
        ("isolation", "engine/backends/torch/adapter.py", "class A:\n    import torch", "as soon as it is imported"),
        ("isolation", "engine/backends/torch/kernels/fft.py", "import torch", None),
        ("isolation", "engine/backends/torch/adapter.py", "if TYPE_CHECKING:\n    import torch", None),
        ("isolation", "engine/workload.py", "import numpy\nimport hpfracc.engine.backends.torch.adapter", None),
        ("backends", "operators/a.py", "from hpfracc.engine.backends import torch", "names a backend"),
        ("backends", "operators/a.py", "from hpfracc.engine.backends.registry import library_functions", None),
        ("purity", "engine/backends/numpy/kernels/fft.py", "import logging", "kernels are pure"),
        ("purity", "engine/numerics/a.py", "def f():\n    from hpfracc.profiling import recorder", "kernels are pure"),
        ("purity", "engine/backends/generic/fft.py", "def f(event):\n    event.synchronize()", "only adapters wait"),
        ("purity", "operators/_mine.py", "from hpfracc.engine.backends.registry import arms", "knows no backend"),
        ("old_paths", "operators/_mine.py", "from hpfracc.old import name", "keeps an old import path"),
        (
            "underscores",
            "solvers/a.py",
            "def f():\n    import hpfracc.operators._rules",
            "private module of hpfracc.op",
        ),
        ("underscores", "solvers/a.py", "from hpfracc.operators._caputo import Caputo", None),
        ("locks", "engine/a.py", "import threading\nready = threading.Event()", "uses threading.Event"),
        ("locks", "engine/a.py", "def f(lock):\n    lock.acquire(timeout=1.0)", "calls acquire"),
        ("handlers", "a.py", "try: f()\nexcept:\n    return_nothing = 1", "drops any error"),
        ("handlers", "a.py", "with contextlib.suppress(Exception):\n    f()", "drops any error"),
        ("handlers", "a.py", "try: f()\nexcept Exception:\n    # A driver may raise anything.\n    pass", None),
        ("handlers", "a.py", "try: f()\nexcept Exception:\n    logger.debug('failed', exc_info=True)", None),
        ("handlers", "a.py", "try: f()\nexcept Exception as error:\n    notes.append(str(error))", None),
        ("prints", "clients.py", "def f():\n    print(1)", "prints"),
        ("length", "a.py", "x = 1  # FIXME", "says FIXME"),
        ("parameters", "a.py", "def f(a, b, c, d, e, g, h, i, j, k): ...", "has 10 positional"),
        ("parameters", "a.py", "@njit(cache=True)\ndef f(a, b, c, d, e, g, h, i, j, k): ...", None),
        ("parameters", "a.py", "def f(a, b, c, d, e, g, h, i, j, *, k): ...", None),
        ("length", "a.py", "\n" * 500, "too long"),
    ],
)
def test_a_breach_is_noticed(rule: str, file: str, text: str, complaint: str | None, tmp_path: Path):
    """Each way to break a rule, taken in a file of its own, is reported; what is near it is allowed."""
    for name, words in {
        "old.py": f'"""{OLD_PATH}: it lives elsewhere."""',
        "operators/_rules.py": "",
        "operators/_caputo.py": "",
        file: text,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(words, encoding="utf-8")
    found = problems(rule, tmp_path)
    assert len(found) == (complaint is not None)
    assert all(complaint in each for each in found)


def test_private_names_are_used_where_they_must_be():
    """As attributes, imports and texts for ``getattr``; who no longer uses one is taken off the list."""
    using: dict[str, set[str]] = {name: set() for name in PRIVATE}
    for module in find_modules(SOURCE).values():
        for node in _nodes(module, "|".join(PRIVATE)):
            spelled = [getattr(node, "attr", None), getattr(node, "value", None), getattr(node, "name", None)]
            for name in using.keys() & {each for each in spelled if isinstance(each, str)}:
                using[name].add(module.path.relative_to(SOURCE).as_posix())
    assert using == PRIVATE
