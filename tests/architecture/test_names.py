"""Public names: each loads, has words of its own, and is not hidden by a module; no file is a chore to read."""

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
from typing import Any, Unpack

import pytest

import hpfracc
from hpfracc import _lazy
from hpfracc._config import SettingsOptions
from hpfracc.ml._differencer import DifferencerOptions
from hpfracc.operators.core.call_types import CallOptions, DerivativeOptions, IntegralOptions
from hpfracc.operators.core.registry import definitions
from hpfracc.solvers.ode_solvers import FixedStepOptions
from hpfracc.solvers.pde.problems.base import EvolutionOptions
from hpfracc.solvers.stepping.options import SolveOptions
from tests.helpers.public_api import PUBLIC_MODULES
from tests.helpers.source import SOURCE, Module, find_modules

#: Public names that are the module of that name itself, and so may share it.
MODULES_THAT_ARE_NAMES = {("hpfracc", name) for name in _lazy.modules("hpfracc")}
MAX_LINES = 500
LAZY = [
    "hpfracc", "hpfracc.distributed", "hpfracc.engine", "hpfracc.ml", "hpfracc.profiling", "hpfracc.solvers.ode",
    "hpfracc.special",
]  # fmt: skip
PUBLIC = [name for name in hpfracc.__all__ if not name.startswith("__")]


def exported(module: Module) -> list[str]:
    """``__all__`` of a module as its source spells it, or nothing."""
    if module.name in LAZY:
        return list(_lazy.homes(module.name))
    for node in module.tree().body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return []


def hidden_names(source: Path) -> list[str]:
    """Public names of a folder that importing one of its own modules would replace."""
    modules = find_modules(source)
    return [
        f"{module.name}.{name} and the module {module.name}.{name} share a name: call the file _{name}.py"
        for module in modules.values()
        if module.is_package
        for name in exported(module)
        if f"{module.name}.{name}" in modules and (module.name, name) not in MODULES_THAT_ARE_NAMES
    ]


def overlong(source: Path) -> list[str]:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source.rglob("*.py")}
    return [f"{path.relative_to(source)} has {lines} lines" for path, lines in lengths.items() if lines >= MAX_LINES]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_loads_and_is_documented(name: str):
    """Every name of ``hpfracc.__all__`` is there and has a docstring of its own, not one that it inherits."""
    value = getattr(hpfracc, name)
    assert (value.__doc__ or "").strip()
    inherited = value.__mro__[1:] if inspect.isclass(value) else type(value).__mro__
    assert all(value.__doc__ != base.__doc__ for base in inherited)


def test_what_is_listed_is_there_and_sorted():
    """``__all__``, ``dir(hpfracc)`` and the stub agree; the engine's names can be used here and are listed there."""
    modules = _lazy.modules("hpfracc")
    kept = {name for name, home in _lazy.homes("hpfracc").items() if home == "hpfracc.engine"}
    assert (set(_lazy.homes("hpfracc")) - kept) | {"errors", "__version__"} == set(hpfracc.__all__)
    assert set(dir(hpfracc)) == set(hpfracc.__all__) | modules | {"__version__"}
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
    for name in importlib.import_module(package).__all__:
        assert hasattr(importlib.import_module(package), name)


def test_help_begins_with_a_page_that_names_what_there_is():
    """``help(hpfracc)`` opens with the docstring: it names the public functions by what they are for."""
    page = hpfracc.__doc__ or ""
    missing = {
        name
        for name in hpfracc.__all__
        if inspect.isfunction(getattr(hpfracc, name)) and not re.search(rf"\b{name}\b", page)
    }
    grouped = {name for name in missing if name.endswith(("_integral", "_riemann"))}  # "their integrals"
    assert missing - grouped == set()
    assert len(page.splitlines()) < 60


@pytest.mark.parametrize(("package", "name"), sorted(MODULES_THAT_ARE_NAMES))
def test_a_name_that_shares_a_modules_name_is_that_module(package: str, name: str):
    """The exceptions really are modules, so that importing them changes nothing."""
    assert package == "hpfracc"
    assert isinstance(getattr(hpfracc, name), ModuleType)


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
    assert not hasattr(hpfracc, "caputoo")


def test_no_module_hides_a_public_name():
    """Importing a submodule replaces the attribute of its name in the folder, so no function may be called alike."""
    assert hidden_names(SOURCE) == []


def test_files_are_short():
    """Every file of the library has less than 500 lines."""
    assert overlong(SOURCE) == []


def test_a_hiding_module_and_a_long_file_are_noticed(tmp_path: Path):
    """The two checks above fail where they should."""
    (tmp_path / "__init__.py").write_text('__all__ = ["config", "errors"]\n', encoding="utf-8")
    (tmp_path / "errors.py").write_text("", encoding="utf-8")
    assert hidden_names(tmp_path) == []
    (tmp_path / "config.py").write_text("\n" * MAX_LINES, encoding="utf-8")
    assert [text.partition(" ")[0] for text in hidden_names(tmp_path)] == ["hpfracc.config"]
    assert overlong(tmp_path) == ["config.py has 500 lines"]


#: Functions whose further keywords are the user's own names, or those of whatever they make.
OPEN_ENDED = {
    "create_fractional_derivative",
    "create_fractional_integral",
    "elementwise",
    "explain",
    "grid",
    "points",
}
FUNCTIONS = [
    name for name in PUBLIC if callable(getattr(hpfracc, name)) and not inspect.isclass(getattr(hpfracc, name))
]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in OPEN_ENDED])
def test_options_are_named_in_signatures(name: str):
    """An editor or ``help`` shows what may be given, and not ``**options``."""
    kinds = {parameter.kind for parameter in inspect.signature(getattr(hpfracc, name)).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


#: Functions and methods with keywords that no list can hold, and what those are.
FREE_KEYWORDS = {
    "hpfracc._explain.explain": "keywords of the call that is explained",
    "hpfracc.distributed.items.grid": "names of the user's parameters",
    "hpfracc.distributed.items.points": "names of the user's parameters",
    "hpfracc.engine.execution.api.elementwise": "names of the variables of the expression",
    "hpfracc.engine.execution.batch.out_of_core.evaluate_blocks": "names of the variables of the expression",
    "hpfracc.engine.execution.batch.run.run": "keywords of the user's function",
    "hpfracc.engine.execution.operation.Operation.__call__": "parameters of the operation, which may be the user's own",
    "hpfracc.engine.execution.operation.Operation.decide": "parameters of the operation, which may be the user's own",
    "hpfracc.engine.workload.WorkloadCharacteristics.__init__": "the user's own notes",
    "hpfracc.ml.adapters.HighPerformanceAdapter.__call__": "keywords of the function that it wraps",
    "hpfracc.ml.adapters.HighPerformanceAdapter.explain": "keywords of the function that it wraps",
    "hpfracc.ml.jax.order.assign": "fields of a layer",
    "hpfracc.ml.torch.order.parameter_groups": "options of the user's optimiser",
    "hpfracc.models.base.Model.replace": "parameters of the model",
    "hpfracc.models.base.Model.draw": "properties of Matplotlib's artists",
    "hpfracc.models.base.Model.plot": "properties of Matplotlib's artists",
    "hpfracc.models.responses.ResponseModel.draw": "properties of Matplotlib's artists",
    "hpfracc.models.responses.ResponseModel.plot": "properties of Matplotlib's artists",
    "hpfracc.models.dielectric.Dielectric.draw": "properties of Matplotlib's artists",
    "hpfracc.models.impedance.Impedance.draw": "properties of Matplotlib's artists",
    "hpfracc.models.equations.FieldModel.draw": "properties of Matplotlib's artists",
    "hpfracc.models.equations.TimeCourse.plot": "properties of Matplotlib's artists",
    "hpfracc.profiling.profiler.Profiler.profile": "the user's own notes",
    "hpfracc.profiling.profiler.Profiler.profile_function": "the user's own notes",
    "hpfracc.profiling.spans.Span.annotate": "the user's own notes",
    "hpfracc.solvers.ode.result.FODEResult.plot": "properties of Matplotlib's artists",
    "hpfracc.solvers.pde.result.FPDEResult.plot": "properties of Matplotlib's artists",
    "hpfracc.control.frequency.FrequencyResponse.plot": "properties of Matplotlib's artists",
    "hpfracc.control.responses.Response.plot": "properties of Matplotlib's artists",
    "hpfracc.solvers.sde.rough.model.VolatilityModel.plot": "properties of Matplotlib's artists",
    "hpfracc.solvers.sde.transport.displacement.MeanSquaredDisplacement.plot": "properties of Matplotlib's artists",
    "hpfracc.solvers.sde.transport.passage.FirstPassage.plot": "properties of Matplotlib's artists",
}
CALLED = ("__init__", "__new__", "__call__")
LAYERS = [name for name in find_modules(SOURCE) if name.startswith("hpfracc.ml.")]
FACES = sorted(
    {
        *PUBLIC_MODULES,
        *(f"hpfracc.{name}" for name in _lazy.modules("hpfracc")),
        *LAYERS,
        "hpfracc.solvers.pde.problems",
    }
)


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
        bases = value.__mro__ if inspect.isclass(value) else ()
        members = [
            (f"{name}.{member}", getattr(each, "__func__", each))  # without classmethod and staticmethod
            for base in bases
            if base.__module__.startswith("hpfracc")
            for member, each in vars(base).items()
            if not member.startswith("_") or member in CALLED
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


def is_listed(annotation: Any) -> bool:
    """Whether a type checker, and so an editor, reads the names of keywords from the annotation."""
    return isinstance(annotation, str) and annotation.startswith("Unpack[")


def unlisted(module: ModuleType) -> dict[str, str]:
    """The functions and methods whose keywords no type checker knows, by name."""
    found = {}
    for path, function in functions_of(module):
        free = free_keywords(function)
        if free is not None and not is_listed(free[1]):
            name = f"{inspect.unwrap(function).__module__}.{inspect.unwrap(function).__qualname__}"
            found[name] = f"{module.__name__}.{path} takes **{free[0]}: {free[1]}"
    return found


@pytest.mark.parametrize("face", FACES)
def test_editors_know_the_options(face: str):
    """Functions, constructors and methods name their keywords, or take ``Unpack[...]`` of a ``TypedDict``."""
    found = unlisted(import_face(face))
    assert [told for name, told in found.items() if name not in FREE_KEYWORDS] == []


def test_bare_options_are_noticed():
    """The check above fails for constructors, methods and functions, and for ``**options`` without a type."""

    class Layer:
        def __init__(self, alpha: float, *sizes: int, **options: Any) -> None: ...

        @classmethod
        def like(cls, other: Layer, **options) -> None: ...  # type: ignore[no-untyped-def]

        @staticmethod
        def named(*, step: float = 1.0, **options: Unpack[CallOptions]) -> None: ...

        def _private(self, **options: Any) -> None: ...

    def function(**params: Any) -> None: ...

    module = ModuleType("hpfracc.made_up")
    for value in (Layer, function):
        value.__module__ = module.__name__
    for name in ("__init__", "like", "named", "_private"):
        static = inspect.getattr_static(Layer, name)
        getattr(static, "__func__", static).__module__ = module.__name__
    module.Layer, module.function, module.__all__ = Layer, function, ["Layer", "function"]  # type: ignore[attr-defined]
    assert sorted(unlisted(module).values()) == [
        "hpfracc.made_up.Layer.__init__ takes **options: Any",
        "hpfracc.made_up.Layer.like takes **options: None",
        "hpfracc.made_up.function takes **params: Any",
    ]


def test_every_exception_is_needed():
    """No entry of ``FREE_KEYWORDS`` outlives its function."""
    pytest.importorskip("torch", reason="hpfracc.ml.adapters is imported with the layers")
    faces = [face for face in FACES if not face.startswith("hpfracc.ml.jax")]
    found = {name for face in faces for name in unlisted(importlib.import_module(face))}
    assert {name for name in FREE_KEYWORDS if not name.startswith("hpfracc.ml.jax")} - found == set()


@pytest.mark.parametrize("face", FACES)
def test_shown_options_are_those_of_type_checkers(face: str):
    """Where a signature shows the names behind ``**options``, they are those of its ``TypedDict``."""
    for path, function in functions_of(import_face(face)):
        free = free_keywords(function)
        shown = {each.name: each for each in inspect.signature(function).parameters.values()}
        if free is None or free[0] in shown:
            continue
        options = eval(free[1], inspect.unwrap(function).__globals__).__args__[0]
        code = inspect.unwrap(function).__code__
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        assert set(shown) - set(own) == options.__optional_keys__ - set(own), path


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
#: Functions that have another word all the same: the beginning of the name, the words, and why.
OTHER_WORDS = {
    "hpfracc.lattice": ({"time"}, "an old name"),
    "hpfracc.ml": ({"fractional_order", "h"}, "an old name, and the hidden state of a layer"),
    "hpfracc.algorithms.gpu_optimized_methods": ({"h"}, "an old import path"),
    "hpfracc.solvers.ode_solvers": ({"h"}, "an old import path"),
}


def other_words(module: ModuleType) -> list[str]:
    """Parameters of public functions that have another word than the rest of the package, as sentences."""
    meant = {word: right for right, words in ONE_WORD.items() for word in words}
    found = []
    for path, function in functions_of(module):
        where = f"{function.__module__}.{path}"
        allowed = {word for start, (kept, _) in OTHER_WORDS.items() if where.startswith(start) for word in kept}
        words = sorted((inspect.signature(function).parameters.keys() & meant.keys()) - allowed)
        found += [f"{where}({word}=...): the word of this package is {meant[word]}" for word in words]
    return found


@pytest.mark.parametrize("face", FACES)
def test_parameters_have_one_word_for_one_thing(face: str):
    """Tolerances, steps, orders, workers and others are spelled alike in every room."""
    assert other_words(import_face(face)) == []


def test_another_word_is_noticed():
    """In functions, methods and constructors."""
    made = ModuleType("hpfracc.made_up")
    source = """
        __all__ = ["solve", "Solver"]
        def solve(fun, rtol, step): ...
        class Solver:
            def __init__(self, n_jobs=1): ...
            def run(self, y0, *, verbose=False): ...
    """
    exec(inspect.cleandoc(source), made.__dict__)
    assert other_words(made) == [
        "hpfracc.made_up.Solver.__init__(n_jobs=...): the word of this package is workers",
        "hpfracc.made_up.Solver.run(verbose=...): the word of this package is progress",
    ]
