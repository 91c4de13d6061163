"""Names of older versions and keywords of other libraries are answered with those that serve here."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc._reading import corrects_keywords
from tests.helpers.source import SOURCE

OLD: dict[str, str] = json.loads((SOURCE / "old_names.json").read_text(encoding="utf-8"))
T = np.linspace(0.0, 1.0, 11)


def decay(t: Any, y: Any) -> Any:
    return -y


@pytest.mark.parametrize("path", sorted(OLD))
def test_an_import_of_an_old_name_says_what_takes_its_place(path: str):
    """As a module, from its package, and as an attribute; and no name of today is called old."""
    package, _, name = path.rpartition(".")
    for code in (f"import {path}", f"from {package} import {name}", f"from {path} import anything"):
        with pytest.raises(ModuleNotFoundError, match=re.escape(f"Now: {OLD[path]}")):
            exec(code)
    with pytest.raises(AttributeError, match=re.escape(name)):
        getattr(importlib.import_module(package), name)


def test_successors_exist():
    """Every name of ours in the answers can be had."""
    for words in OLD.values():
        for _, path in re.findall(r"\b(hf|hpfracc)\.([\w.]*\w)", words):
            parent, _, name = f"hpfracc.{path}".rpartition(".")
            module = importlib.import_module(parent)
            assert hasattr(module, name) or importlib.util.find_spec(f"{parent}.{name}"), words


def test_other_names_are_not_found_as_usual():
    """Python's own errors stay."""
    with pytest.raises(ModuleNotFoundError, match="No module named 'hpfracc.nothing'"):
        importlib.import_module("hpfracc.nothing")
    with pytest.raises(AttributeError, match="module 'hpfracc' has no attribute 'nothing'"):
        _ = hf.nothing
    assert not hasattr(hf, "jax_gpu_setup")


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "order of an operator": (lambda: hf.caputo(np.sin, T, order=0.5), "here it is alpha="),
    "dt of an operator": (lambda: hf.caputo(np.sin(T), None, 0.5, dt=0.1), "here it is step="),
    "order of a class": (lambda: hf.Caputo(order=0.5), "here it is alpha="),  # type: ignore[call-arg]
    "order": (lambda: hf.solve_fode(decay, (0, 1), [1.0], order=0.5), "here it is alpha="),
    "dt": (lambda: hf.solve_fode(decay, (0, 1), [1.0], 0.5, dt=0.1), "here it is step="),
    "h": (lambda: hf.fdeint(decay, np.ones(1), T, 0.5, h=0.1), "here it is step="),
    "tol": (lambda: hf.solve_fode(decay, (0, 1), [1.0], 0.5, tol=0.1), "here it is rtol="),
    "vectorized": (lambda: hf.solve_fode(decay, (0, 1), [1.0], 0.5, vectorized=True), "leave it out"),
    "hurst": (lambda: hf.fbm(10, hurst=0.3), "here it is H="),
    "seed": (lambda: hf.fgn(10, 0.3, seed=1), "here it is rng="),
    "tol of a field": (lambda: hf.solve_fpde(None, (0, 1), np.ones(5), x=T, tol=0.1), "here it is rtol="),
    "seed of paths": (lambda: hf.solve_fsde(decay, decay, (0, 1), [1.0], seed=1), "here it is rng="),
    "tol of a special function": (lambda: hf.mittag_leffler(-1.0, 0.5, tol=1e-9), "there are: z, alpha"),
    "order of a special function": (lambda: hf.mittag_leffler(-1.0, order=0.5), "here it is alpha="),
    "h of an operator": (lambda: hf.Caputo(0.5)(T, h=0.1), "here it is step="),
    "h of its function": (lambda: hf.caputo(T, alpha=0.5, h=0.1), "here it is step="),
    "order by name": (lambda: hf.create_fractional_derivative(order=0.5), "here it is alpha="),  # type: ignore[call-arg]
    "q by name": (lambda: hf.create_fractional_integral(q=0.5), "here it is alpha="),  # type: ignore[call-arg]
    "a slip in a field": (lambda: hf.caputo(T, T, 0.5, metod="l1"), "did you mean 'method'"),
    "a slip": (lambda: hf.fbm(10, 0.3, sise=2), "did you mean 'size'"),
}


@pytest.mark.parametrize(("call", "answer"), CALLS.values(), ids=CALLS)
def test_an_unknown_keyword_is_answered_with_ours(call: Callable[[], Any], answer: str):
    """A ``TypeError``, as Python's own, with the name to use."""
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument .*{answer}"):
        call()


def test_methods_for_integer_orders_name_ours():
    """``RK45`` and its like are answered with adaptive steps."""
    with pytest.raises(hf.errors.InvalidInputError, match="method='RK45' is for integer orders; here it is 'adaptive'"):
        hf.solve_fode(decay, (0, 1), [1.0], 0.5, method="RK45")  # type: ignore[arg-type]


def test_errors_of_users_functions_stay():
    """The same words from inside a call are not about it."""

    def inner(**_: Any) -> None:
        raise TypeError("f() got an unexpected keyword argument 'dt'")

    with pytest.raises(TypeError, match=r"'dt'$"):
        corrects_keywords(inner)(alpha=0.5)
