"""The public names of the library, their signatures, and whether one version still takes the calls of another."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc import _lazy

#: The modules whose ``__all__`` is public.
PUBLIC_MODULES = (
    "hpfracc",
    "hpfracc.algorithms.gpu_optimized_methods",
    "hpfracc.analytics",
    "hpfracc.batch",
    "hpfracc.engine",
    "hpfracc.core.fractional_implementations",
    "hpfracc.errors",
    "hpfracc.lattice",
    "hpfracc.memory",
    "hpfracc.ml.backends",
    "hpfracc.ml.intelligent_backend_selector",
    "hpfracc.profiling",
    "hpfracc.solvers.ode",
    "hpfracc.solvers.ode.problems",
    "hpfracc.solvers.ode_solvers",
    "hpfracc.special",
    "hpfracc.special.binomial",
    "hpfracc.special.gamma_beta",
)
#: Methods with underscores that are called by users' own syntax.
CALLED_BY_SYNTAX = ("__call__", "__enter__", "__exit__", "__getitem__", "__iter__", "__len__")
#: Parameters whose default is spelled otherwise and means the same.
SAME_DEFAULTS = {("axis", -1, None)}  # None: the last axis, or the one that labels of pandas and xarray name
#: Members of public classes that only the library itself uses; the reference names none of them.
INTERNAL = {
    "Operation": {
        "call_plainly",
        "known_plan",
        "plan_for",
        "primitive",
        "renew_lock",
        "reset",
        "reset_plans",
        "retire",
    },
    "FractionalOperator": {"any_grid_rules", "applied", "grids", "rules", "usual_origin"},
    "Method": {"at_minus_one", "at_one", "fixed", "implicit", "libraries", "refuses", "solve", "weights"},
}
Call = tuple[int, tuple[str, ...]]


def public_objects() -> dict[str, Any]:
    """Every public name of the version that is imported, by its dotted path."""
    found = {}
    for path in PUBLIC_MODULES:
        module = importlib.import_module(path)
        kept = _lazy.homes(path) if path == "hpfracc" else ()  # the engine's names, which dir() does not list
        for name in {*module.__all__, *kept}:
            found[f"{path}.{name}"] = getattr(module, name)
    return found


def returned_objects() -> dict[str, Any]:
    """Objects that users meet only as results, by the expression that gives them."""
    import hpfracc as hf

    @hf.operation(name="recorded_doubling")
    def doubling(x: Any) -> Any:
        return 2 * x

    hf.fft(np.ones(8))
    selector = hf.IntelligentBackendSelector()
    selector.record_performance(hf.BackendType.NUMPY, "fft", 8, 1e-3, True)
    decision = hf.last_decision()
    return {
        "operation(...)": doubling,
        "explain(...)": hf.explain("fft", shape=(64,)),
        "last_decision()": decision,
        "last_decision().candidates[0]": decision.candidates[0],
        "get_performance_history()[0]": selector.get_performance_history()[0],
    }


def describe(value: Any) -> dict[str, Any]:
    """The signature of ``value``, if it has one, and the members that are called or read by users."""
    # The signatures that Python itself gives exceptions and enumerations differ between its versions.
    told: dict[str, Any] = {"signature": spell(value) if callable(value) and not _made_by_python(value) else None}
    if inspect.ismodule(value) or inspect.isfunction(value) or isinstance(value, dict | list | tuple | str | float):
        return told
    owner = value if inspect.isclass(value) else type(value)
    if (owner.__module__ or "").startswith("hpfracc"):
        told["members"] = {name: spell_member(value, name) for name in members(value)}
    return told


def _made_by_python(value: Any) -> bool:
    """Whether ``value`` is an enumeration, or an exception without an ``__init__`` of ours."""
    if not inspect.isclass(value) or not issubclass(value, BaseException | enum.Enum):
        return False
    return not any("__init__" in vars(base) for base in value.__mro__ if base.__module__.startswith("hpfracc"))


def members(value: Any) -> list[str]:
    """Names of the public attributes that the library itself defines on ``value``."""
    owner = value if inspect.isclass(value) else type(value)
    ours = {name for base in owner.__mro__ if base.__module__.startswith("hpfracc") for name in vars(base)}
    if not inspect.isclass(value):
        ours |= set(getattr(value, "__dict__", ()))
    for base in owner.__mro__:
        ours -= INTERNAL.get(base.__name__, set())
    return sorted(name for name in ours if not name.startswith("_") or name in CALLED_BY_SYNTAX)


def spell_member(value: Any, name: str) -> str | None:
    """The signature of a method as it is called on an instance; None for data."""
    owner = value if inspect.isclass(value) else type(value)
    try:
        static = inspect.getattr_static(owner, name)
    except AttributeError:
        return None
    if isinstance(static, staticmethod | classmethod):
        return spell(getattr(owner, name))
    return spell(static, bound=True) if inspect.isfunction(static) else None


def spell(value: Any, *, bound: bool = False) -> str | None:
    """The signature of ``value`` in Python's own spelling, without annotations; None where it has none."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    plain = [each.replace(annotation=inspect.Parameter.empty, default=_literal(each.default)) for each in parameters]
    return str(inspect.Signature(plain[1:] if bound else plain))


def _literal(default: Any) -> Any:
    """``default`` if its spelling can be read back, else an ellipsis."""
    if default is inspect.Parameter.empty:
        return default
    try:
        return default if ast.literal_eval(repr(default)) == default else ...
    except (ValueError, SyntaxError):
        return ...


def read_signature(spelled: str) -> inspect.Signature:
    """The signature that :func:`spell` wrote."""
    namespace: dict[str, Any] = {}
    exec(f"def function{spelled}: ...", namespace)
    return inspect.signature(namespace["function"])


def calls_of(signature: inspect.Signature) -> Iterator[Call]:
    """Calls that bind to ``signature``, as a number of positional arguments and the names of keywords.

    Every number of positional arguments, everything by keyword, and each option by itself.
    """
    every = list(signature.parameters.values())
    positional = [each for each in every if each.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    by_keyword = [
        each.name
        for each in every
        if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    needed = {
        each.name
        for each in every
        if each.default is inspect.Parameter.empty
        and each.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    only_by_place = [each.name for each in positional if each.kind is inspect.Parameter.POSITIONAL_ONLY]
    for count in range(len(only_by_place), len(positional) + 1):
        given = {each.name for each in positional[:count]}
        rest = needed - given
        if rest <= set(by_keyword):
            yield count, tuple(name for name in by_keyword if name in rest)
    yield len(only_by_place), tuple(by_keyword)
    for option in by_keyword:
        yield (
            len(only_by_place),
            tuple(name for name in by_keyword if name == option or name in needed - set(only_by_place)),
        )
    kinds = {each.kind for each in every}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        yield (
            len(positional) + 3,
            tuple(name for name in by_keyword if name in needed - {each.name for each in positional}),
        )
    if inspect.Parameter.VAR_KEYWORD in kinds:
        yield (
            len(only_by_place),
            (*(name for name in by_keyword if name in needed - set(only_by_place)), "an_option_of_the_user"),
        )


def binds(signature: inspect.Signature, call: Call) -> bool:
    """Whether ``call`` binds to ``signature``."""
    try:
        signature.bind(*range(call[0]), **dict.fromkeys(call[1]))
    except TypeError:
        return False
    return True


def broken_calls(old: inspect.Signature, new: inspect.Signature) -> Iterator[str]:
    """Calls that bound to ``old`` and do not bind to ``new``, or give an argument another meaning, as sentences."""
    first = next(iter(old.parameters.values()), None)
    if first is not None and first.kind is inspect.Parameter.VAR_POSITIONAL:
        return  # ``(*arrays, ...)`` says nothing of how many there must be; recorded calls do
    for count, keywords in calls_of(old):
        places = list(old.bind(*range(count), **dict.fromkeys(keywords)).arguments)[:count]
        shown = ", ".join([*places[:count], *(f"{name}=" for name in keywords)])
        try:
            bound = new.bind(*range(count), **dict.fromkeys(keywords))
        except TypeError as error:
            yield f"({shown}): {error}"
            continue
        named = [name for name in places if old.parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        moved = [name for name in named if name not in bound.arguments]
        if moved:
            yield f"({shown}): {', '.join(moved)} is now called otherwise or stands elsewhere"
    for name, before in old.parameters.items():
        after = new.parameters.get(name)
        known = before.default not in (inspect.Parameter.empty, ...)
        if after is None or not known or (name, before.default, after.default) in SAME_DEFAULTS:
            continue
        if after.default != before.default:
            yield f"{name} was {before.default!r} where it was not given, and is {after.default!r}"


def find_spelled(names: dict[str, Any], path: str) -> str | None:
    """The recorded signature of a public name, or of a method of a public class."""
    if path in names:
        return names[path]["signature"]
    owner, _, member = path.rpartition(".")
    return names.get(owner, {}).get("members", {}).get(member)
