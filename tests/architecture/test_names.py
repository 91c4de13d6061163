"""Public names: each loads, has words of its own, names its options, and is not hidden by a module."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import hpfracc
from hpfracc import _lazy
from hpfracc._config import SettingsOptions
from hpfracc.ml._differencer import DifferencerOptions
from hpfracc.models.problems.base import EvolutionOptions
from hpfracc.operators.core.call_types import CallOptions, DerivativeOptions, IntegralOptions
from hpfracc.operators.core.registry import definitions
from hpfracc.solvers.ode_solvers import FixedStepOptions
from hpfracc.solvers.stepping.options import SolveOptions
from tests.helpers.public_api import PUBLIC_MODULES
from tests.helpers.source import SOURCE, find_modules

PACKAGES = "hpfracc hpfracc.distributed hpfracc.engine hpfracc.ml hpfracc.profiling hpfracc.solvers.ode hpfracc.special"
LAZY = PACKAGES.split()
LAYERS = [name for name in find_modules(SOURCE) if name.startswith("hpfracc.ml.")]
MODULES = [f"hpfracc.{name}" for name in _lazy.modules("hpfracc")]
FACES = sorted({*PUBLIC_MODULES, *MODULES, *LAYERS, "hpfracc.models.problems.partial"})
#: Functions and methods with keywords that no list can hold, and what those are; a ``plot`` or ``draw`` hands them on
#: to Matplotlib.
FREE_KEYWORDS = {
    "circuit": "names of the parameters of its elements",
    "explain": "keywords of the call that is explained, or of the function that an adapter wraps",
    "grid": "names of the user's parameters",
    "points": "names of the user's parameters",
    "elementwise": "names of the variables of the expression",
    "evaluate_blocks": "names of the variables of the expression",
    "run": "keywords of the user's function",
    "Operation.__call__": "parameters of the operation, which may be the user's own",
    "Operation.decide": "parameters of the operation, which may be the user's own",
    "WorkloadCharacteristics.__init__": "the user's own notes",
    "HighPerformanceAdapter.__call__": "keywords of the function that it wraps",
    "HighPerformanceAdapter.explain": "keywords of the function that it wraps",
    "assign": "fields of a layer",
    "parameter_groups": "options of the user's optimiser",
    "Model.replace": "parameters of the model",
    "Profiler.profile": "the user's own notes",
    "Profiler.profile_function": "the user's own notes",
    "Span.annotate": "the user's own notes",
}
#: Words of other libraries for parameters that have a word here, and that word.
ONE_WORD = {
    "rtol": ("tol", "tolerance", "reltol", "rel_tol"),
    "atol": ("abstol", "abs_tol"),
    "step": ("dt", "h", "delta_t", "time_step", "step_size"),
    "alpha": ("fractional_order", "fractional_orders"),
    "H": ("hurst", "hurst_exponent"),
    "K": ("strike", "strikes"),
    "T": ("maturity", "maturities"),
    "paths": ("n_paths", "num_paths"),
    "size": ("n_samples", "num_samples"),
    "max_steps": ("max_iter", "maxiter", "max_iterations", "n_steps", "num_steps"),
    "workers": ("n_jobs", "jobs", "n_workers", "num_workers", "cores", "n_threads", "num_threads"),
    "progress": ("verbose", "show_progress", "progress_bar", "on_progress"),
    "rng": ("random_state", "generator", "random_seed"),
    "t": ("time",),
    "path": ("file", "filename", "file_path"),
    "dim": ("dimension",),
    "backend": ("engine", "platform"),
}
#: Old names, and h, the hidden state of a layer.
OTHER_WORDS = {
    "hpfracc.lattice": {"time"},
    "hpfracc.ml": {"fractional_order", "h"},
    "hpfracc.algorithms.gpu_optimized_methods": {"h"},
    "hpfracc.solvers.ode_solvers": {"h"},
}


def import_face(face: str) -> ModuleType:
    """A public module; the test is skipped where the library of its layers is not installed."""
    if face.startswith("hpfracc.ml"):
        library = "jax" if face.startswith("hpfracc.ml.jax") else "torch"
        pytest.importorskip(library, reason=f"{face} has layers of {library}")
    return importlib.import_module(face)


def functions_of(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The public functions of a module, and the constructors and public methods of its classes."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        members = [
            (f"{name}.{member}", getattr(each, "__func__", each))  # without classmethod and staticmethod
            for base in (value.__mro__ if inspect.isclass(value) else ())
            if base.__module__.startswith("hpfracc")
            for member, each in vars(base).items()
            if not member.startswith("_") or member in ("__init__", "__new__", "__call__")
        ]
        for path, each in members or [(name, value)]:
            if inspect.isfunction(each) and each.__module__.startswith("hpfracc"):
                yield path, each


def free_keywords(function: Callable[..., Any]) -> tuple[str, Any] | None:
    """``**name`` of a function as its source spells it, and the annotation; None where it has none."""
    written = inspect.unwrap(function)
    code = written.__code__
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    named = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return code.co_varnames[named], written.__annotations__.get(code.co_varnames[named])


@pytest.mark.parametrize("name", [name for name in hpfracc.__all__ if not name.startswith("__")])
def test_public_name_loads_and_is_documented(name: str):
    """Every name of ``hpfracc.__all__`` is there and has a docstring of its own, not one that it inherits."""
    value = getattr(hpfracc, name)
    assert (value.__doc__ or "").strip()
    inherited = value.__mro__[1:] if inspect.isclass(value) else type(value).__mro__
    assert all(value.__doc__ != base.__doc__ for base in inherited)


def test_what_is_listed_is_there_and_sorted():
    """``__all__``, ``dir(hpfracc)`` and the stub agree; the engine's names can be used here and are listed there."""
    kept = {name for name, home in _lazy.homes("hpfracc").items() if home == "hpfracc.engine"}
    assert (set(_lazy.homes("hpfracc")) - kept) | {"errors", "__version__"} == set(hpfracc.__all__)
    assert set(dir(hpfracc)) == {*hpfracc.__all__, *_lazy.modules("hpfracc"), "__version__"}
    assert kept <= set(hpfracc.engine.__all__)
    assert all(getattr(hpfracc, name) is getattr(hpfracc.engine, name) for name in kept)
    assert hpfracc.__all__ == sorted(hpfracc.__all__)


@pytest.mark.parametrize("package", LAZY)
def test_a_type_checker_sees_the_names_and_no_others(package: str):
    """The stub that loads lazy names has nothing but imports under the names that they have there."""
    stub = ast.parse((SOURCE / Path(*package.split(".")[1:]) / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    others = [node for node in stub.body if not isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    assert all(isinstance(node, ast.Expr | ast.AnnAssign) for node in others)  # its docstring, and __version__
    assert all(hasattr(importlib.import_module(package), name) for name in importlib.import_module(package).__all__)


def test_help_begins_with_a_page_that_names_what_there_is():
    """``help(hpfracc)`` opens with the docstring: it names the public functions by what they are for."""
    page = hpfracc.__doc__ or ""
    functions = {name for name in hpfracc.__all__ if inspect.isfunction(getattr(hpfracc, name))}
    missing = {name for name in functions if not re.search(rf"\b{name}\b", page)}
    assert {name for name in missing if not name.endswith(("_integral", "_riemann"))} == set()  # "their integrals"
    assert len(page.splitlines()) < 60


def test_modules_are_there_once_they_are_touched():
    """``hf.batch.run`` works after ``import hpfracc as hf`` alone, in a process that imported nothing else."""
    code = (
        "import hpfracc as hf\nfrom hpfracc._lazy import modules\n"
        "for name in sorted(modules('hpfracc')): assert getattr(hf, name).__name__ == f'hpfracc.{name}'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_an_attribute_error():
    """A misspelt name fails as on any module, so that ``hasattr`` and ``getattr`` with a default work."""
    with pytest.raises(AttributeError, match="'hpfracc' has no attribute 'caputoo'"):
        _ = hpfracc.caputoo


def test_no_module_hides_a_public_name():
    """Importing a submodule replaces the attribute of its name in the folder, so no function may be called alike."""
    modules = find_modules(SOURCE)
    public = {f"{face}.{name}" for face in {*LAZY, *PUBLIC_MODULES} for name in importlib.import_module(face).__all__}
    assert public & modules.keys() == {"hpfracc.errors"}


@pytest.mark.parametrize("face", FACES)
def test_editors_know_the_options(face: str):
    """Keywords are named, or ``Unpack[...]`` of a ``TypedDict``, whose names a signature shows; one word, one thing."""
    meant = {word: right for right, words in ONE_WORD.items() for word in words}
    for path, function in functions_of(import_face(face)):
        where = f"{function.__module__}.{path}"
        signature = inspect.signature(function)
        allowed = {word for start, kept in OTHER_WORDS.items() if where.startswith(start) for word in kept}
        assert {word: meant[word] for word in signature.parameters.keys() & meant.keys() - allowed} == {}, where
        free = free_keywords(function)
        if free is None or inspect.unwrap(function).__qualname__ in FREE_KEYWORDS or path.endswith((".plot", ".draw")):
            continue
        assert str(free[1]).startswith("Unpack["), where
        if free[0] not in signature.parameters:
            options = eval(free[1], inspect.unwrap(function).__globals__).__args__[0]
            options = getattr(options, "__origin__", options)  # of the methods that an operator has
            code = inspect.unwrap(function).__code__
            own = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
            assert set(signature.parameters) - own == options.__optional_keys__ - own, where


def test_options_for_type_checkers_are_those_that_are_taken():
    """The ``TypedDict`` of each group of options holds the names that the function behind it takes."""

    def keywords(function: object) -> set[str]:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}

    assert set(CallOptions.__optional_keys__) == keywords(hpfracc.FractionalOperator.__call__)
    assert set(CallOptions.__optional_keys__) == keywords(hpfracc.FractionalLaplacian.__call__)
    assert set(SolveOptions.__annotations__) | {"method", "step"} == keywords(hpfracc.fdeint)
    assert set(SettingsOptions.__annotations__) == keywords(hpfracc.config)
    assert set(EvolutionOptions.__annotations__) == set(inspect.signature(hpfracc.solve_fpde).parameters)
    results = {"dense_output", "derivative"}  # what the result of the old solver has no place for, and its own
    assert FixedStepOptions.__optional_keys__ == keywords(hpfracc.solve_fode) - results
    assert DifferencerOptions.__optional_keys__ == set(hpfracc.FractionalDifferencer().get_params())
    for options, kind in ((DerivativeOptions, "derivative"), (IntegralOptions, "integral")):
        fields = {name for each in definitions(kind).values() for name in [*inspect.signature(each).parameters][1:]}
        assert options.__optional_keys__ == fields
