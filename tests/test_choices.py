"""The texts that arguments take are those that they take at run time, and mypy refuses all others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from hpfracc import _choices
from hpfracc._config import BACKENDS, BackendName
from hpfracc.operators.core.registry import all_operators
from hpfracc.solvers.ode.method import all_methods
from hpfracc.solvers.pde.boundary import read_boundary
from hpfracc.solvers.pde.method import all_evolution_methods
from hpfracc.solvers.sde.methods import ALIASES, CAPUTO_METHODS, METHODS
from tests.helpers.source import REPOSITORY

WRONG = (
    'hf.solve_fode(f, (0.0, 1.0), [1.0], 0.5, method="peec")',
    'hf.solve_fode(f, (0.0, 1.0), [1.0], 0.5, derivative="captuo")',
    'hf.solve_fode(f, (0.0, 1.0), [1.0], 0.5, backend="nunpy")',
    'hf.solve_fpde(None, (0.0, 1.0), x, x=x, space=pde.Diffusion(1.0), boundary="perodic")',
    'hf.solve_fpde(None, (0.0, 1.0), x, x=x, space=pde.Diffusion(1.0), boundary="periodic", method="l3")',
    'hf.solve_fsde(f, 0.1, (0.0, 1.0), [1.0], step=0.1, keep="moment")',
    'hf.solve_fsde(f, 0.1, (0.0, 1.0), [1.0], step=0.1, interpretation="itoo")',
    'hf.fit_fode(f, x, x, parameters={"k": 1.0}, loss="hubber")',
    'hf.use_backend("torhc")',
    'hf.caputo(x, x, 0.5, side="rihgt")',
    'hf.caputo(x, x, 0.5, side="rihgt", full_output=True)',
    'hf.caputo(x, x, "half")',
    'hf.caputo(x, x, alpha="half", full_output=True)',
    "hf.caputo(x, x, 0.5, rate=1.0)",
    'hf.Caputo("half")',
    'hf.RiemannLiouville(0.5, side="rihgt")',
    'hf.create_fractional_derivative("half")',
    'hf.create_fractional_integral(0.5, side="rihgt")',
    'pde.OneSided(1.5, side="rihgt")',
    'hf.caputo(x, x, 0.5, method="l2")',
    'hf.RiemannLiouvilleIntegral(0.5, "simson")',
    'hf.create_fractional_derivative(0.5, "captuo")',
    'hf.solve_fode(f, (0.0, 1.0), [1.0], "0.5")',
    'hf.solve_fode(f, (0.0, 1.0), "abc", 0.5)',
    'hf.mittag_leffler("z", 0.5)',
    'hf.mittag_leffler(x, "half")',
    'hf.fbm(8, "0.3")',
    'hf.Caputo(0.5).stream(step=0.1).push("chunk")',
    'hf.caputo(x, x, 0.5, method="simpson")',
    'hf.Caputo(0.5, "trapezoid")',
    "hf.solve_fode(lambda y: -y, (0.0, 1.0), [1.0], 0.5)",
    "hf.solve_fsde(lambda y: -y, 0.1, (0.0, 1.0), [1.0], step=0.1)",
    "hf.solve_fpde(lambda u: -u, (0.0, 1.0), x, x=x, space=pde.Diffusion(1.0))",
    "hf.fit_fode(lambda y: -y, x, x, parameters={})",
    "hf.fdeint(lambda y: -y, 1.0, x, 0.5)",
    'pde.Diffusion("a")',
)
RIGHT = (
    'hf.solve_fode(f, (0.0, 1.0), [1.0], 0.5, method="pece", derivative="caputo", backend="numba-cuda")',
    "hf.solve_fode(f, (0.0, 1.0), [1.0], 0.5, method=hf.solvers.ode.PECE(), backend=hf.BackendType.NUMPY)",
    'hf.solve_fpde(None, (0.0, 1.0), x, x=x, space=pde.Diffusion(1.0), boundary=("dirichlet", pde.Neumann(0.0)))',
    'hf.solve_fsde(f, 0.1, (0.0, 1.0), [1.0], step=0.1, keep="moments", method="euler")',
    'hf.use_backend("torch")',
    "assert_type(hf.caputo(x, x, 0.5), NDArray[Any])",
    "assert_type(hf.caputo([0.0, 1.0], step=1.0, alpha=np.float64(0.5)), NDArray[Any])",
    'assert_type(hf.riemann_liouville(Tensor(), x, 0.5, side="right"), Tensor)',
    "assert_type(hf.tempered(Tensor(), x, 0.5, 2.0), Tensor)",
    "assert_type(hf.psi_caputo(x, x, 0.5, np.square, full_output=True), hf.OperatorResult)",
    "assert_type(hf.variable_order(x, x, lambda t: 0.5 + 0.4 * t), NDArray[Any])",
    "assert_type(hf.Caputo(0.5)(Tensor(), x), Tensor)",
    "assert_type(hf.Caputo(0.5)(np.exp, x, full_output=True), hf.OperatorResult)",
    "hf.solve_fode(h, (0.0, 1.0), [[1.0, 2j]], [0.5, 0.6], args=(2.0,))",
    "hf.solve_fode(lambda t, y: -y, (0.0, 1.0), Tensor(), lambda t: 0.5 + 0.1 * t)",
    "assert_type(hf.mittag_leffler(x, 0.5), NDArray[Any])",
    "assert_type(hf.mittag_leffler(-1.0, 0.5), np.float64)",
    "assert_type(hf.mittag_leffler(Tensor(), np.array([0.5, 0.6])), Tensor)",
    "assert_type(hf.fbm(8, 0.3, size=2, rng=0), NDArray[Any])",
    "assert_type(hf.Caputo(0.5).stream(step=0.1).push(x), NDArray[Any])",
    "assert_type(hf.Caputo(0.5).stream(step=0.1).push(Tensor()), Tensor)",
    "assert_type(hf.solve_fode(f, (0.0, 1.0), [1.0], 0.5).y, NDArray[Any])",
    "assert_type(hf.solve_fode(lambda t, y, k: -k * y, (0.0, 1.0), Tensor(), 0.5, args=(2.0,)).y, Tensor)",
    "assert_type(hf.solve_fode(f, (0.0, 1.0), x, 0.5).error_estimate, float | NDArray[Any])",
    "assert_type(hf.solve_fsde(f, lambda t, y: 0.1, (0.0, 1.0), [1.0], step=0.1).y, NDArray[Any])",
    "assert_type(hf.solve_fpde(None, (0.0, 1.0), Tensor(), x=x, space=pde.Diffusion(lambda x: x)).u, Tensor)",
    'hf.solve_fpde(None, (0.0, 1.0), {"u": x, "v": np.sin}, x=x, space=pde.Diffusion((1.0, np.cos)))',
    "pde.Diffusion([[2.0, 1.0], [1.0, 2.0]])",
    'assert_type(hf.fit_fode(h, x, x, parameters={"k": 1.0}).parameters["k"], float | NDArray[Any])',
)
#: Like a tensor for type checkers, with and without PyTorch.
TENSOR = "class Tensor:\n    shape = (5,)\n"


def test_names_of_methods_are_complete():
    """Every name and alias of a method, and no other."""
    names = {"auto"} | {name for method in all_methods() for name in (method.name, *method.aliases)}
    told = f"make MethodName in src/hpfracc/_choices.py Literal[{str(sorted(names))[1:-1]}]"
    assert set(get_args(_choices.MethodName)) == names, told
    assert set(get_args(_choices.EvolutionMethodName)) == {"auto"} | {each.name for each in all_evolution_methods()}
    assert set(get_args(_choices.PathMethodName)) == {"auto", *METHODS, *CAPUTO_METHODS, *ALIASES}


def test_names_of_rules_and_definitions_are_complete():
    """Methods of all operators for samples, those for callables, and every name of a definition."""
    for operator in all_operators():  # each has the names of its rules, and few others
        own = set(get_args(getattr(_choices, operator.__dataclass_fields__["method"].type)))
        valid = {"auto", *operator.rules, *operator.any_grid_rules}
        more = {"soe", "graded", "spectral", "quadrature"} | {"fast", "centred", "centred4"}
        assert valid <= own <= valid | more, operator.definition
    rules = {
        name for operator in all_operators() for table in (operator.rules, operator.any_grid_rules) for name in table
    }
    assert set(get_args(_choices.RuleName)) == rules | {"auto", "soe", "graded", "spectral", "quadrature"}
    assert set(get_args(_choices.DefinitionName)) == {
        name for operator in all_operators() for name in (operator.definition, *operator.short_names)
    }


def test_names_of_backends_and_boundaries_are_complete():
    assert set(get_args(BackendName)) == {"auto", *BACKENDS}
    for name in get_args(_choices.BoundaryName):
        assert read_boundary(name, 1)


@pytest.mark.slow
def test_mypy_refuses_wrong_calls_and_takes_right_ones(tmp_path: Path):
    """Each wrong call is an error at its line; the right ones are none, nor are the README and the gallery."""
    pytest.importorskip("mypy")
    head = "from typing import Any, assert_type\nimport numpy as np\nfrom numpy.typing import NDArray\n"
    head += "import hpfracc as hf\nfrom hpfracc import pde\n"
    head += f"x = np.linspace(0.0, 1.0, 5)\ndef f(t: Any, y: Any) -> Any: ...\n{TENSOR}"
    head += "def h(t: Any, y: Any, k: float) -> Any: ...\n"
    first = head.count("\n") + 1
    script, readme = tmp_path / "calls.py", tmp_path / "readme.py"
    script.write_text(head + "\n".join((*WRONG, *RIGHT)) + "\n")
    readme.write_text("\n".join(re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)))
    gallery = map(str, sorted((REPOSITORY / "examples" / "gallery").glob("*.py")))
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(tmp_path / "cache")]
    # Scripts need no annotations of their own, and do not ask whether there is a decision or a dense solution.
    command += [
        "--no-strict-optional",
        "--allow-untyped-defs",
        "--allow-untyped-calls",
        "--allow-incomplete-defs",
        "--allow-subclassing-any",
    ]
    done = subprocess.run(
        [*command, str(script), str(readme), *gallery], cwd=REPOSITORY, capture_output=True, text=True, timeout=550
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    lines = [line for line in errors if "calls.py:" in line]
    refused = {int(line.split("calls.py:")[1].split(":")[0]) for line in lines}
    assert refused == set(range(first, first + len(WRONG))), done.stdout
    assert all(re.search(r"\[(arg-type|call-overload)\]$", line) for line in lines)
    for number in refused:  # the answer to a call is short; for functions of operators mypy repeats all their options
        answer = "".join(re.findall(rf"calls\.py:{number}: (.*)", done.stdout))
        assert len(answer) < 800 or "OperatorFunction" in answer, answer
    assert errors == lines, done.stdout
