"""Which backend a solve uses: the same order of precedence, and the same errors, as for an operation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.selection.rent_or_buy import KernelPrice
from hpfracc.errors import BackendUnavailableError, InvalidInputError
from hpfracc.solvers.ode import compilation, compiled

numba = pytest.importorskip("numba")


def decay(t: float, y: Any) -> Any:
    return -0.3 * y


def is_compiled(**options: Any) -> bool:
    """Whether a solve compiled its right-hand side."""
    given = {"method": "pece", "step": 1e-3, **options}
    result = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, **given)
    assert result.success and result.decision is not None
    return bool(result.decision.compiled)


@pytest.fixture
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling costs nothing, so a free choice compiles."""
    monkeypatch.setattr(compilation, "import_cost", lambda name: 0.0)
    for name in ("_FIRST", "_FUNCTION"):
        monkeypatch.setattr(compilation, name, 0.0)


def pin(backend: str) -> AbstractContextManager[Any]:
    return hf.config(pin={"solve_fode": backend})


def never(*backends: str) -> AbstractContextManager[Any]:
    return hf.config(never={"solve_fode": backends})


def test_a_pin_to_numba_is_honoured() -> None:
    """Also where little is to be gained."""
    assert not is_compiled()
    with pin("numba"):
        assert is_compiled()


@pytest.mark.usefixtures("_cheap")
def test_a_pin_to_numpy_is_honoured() -> None:
    """Also where compiling would pay off."""
    assert is_compiled()
    with pin("numpy"):
        assert not is_compiled()
        with pytest.raises(InvalidInputError, match=r"config\(pin=.* forbids it"):
            is_compiled(compile=True)


@pytest.mark.usefixtures("_cheap")
def test_never_numba_keeps_a_solve_in_numpy() -> None:
    """A request for it is an error."""
    with never("numba"):
        assert not is_compiled()
        for options, source in (({"backend": "numba"}, "the backend= argument"), ({"compile": True}, "compile=True")):
            with pytest.raises(BackendUnavailableError, match=rf"{source} asks for 'numba'.*never=...\) rules"):
                is_compiled(**options)
        with pin("numba"), pytest.raises(BackendUnavailableError, match=r"config\(pin=.*never=...\) rules it out"):
            is_compiled()


def test_never_numpy_leaves_numba() -> None:
    """Methods without compiled steps refuse, and so does a setting that leaves neither."""
    with never("numpy"):
        assert is_compiled()
        with pytest.raises(InvalidInputError, match="Numba was requested"):
            is_compiled(method="l1")
    with never("numpy", "numba"), pytest.raises(BackendUnavailableError, match="no backend can serve it"):
        is_compiled()


@pytest.mark.usefixtures("_cheap")
def test_argument_beats_block_beats_pin_beats_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for operations."""
    monkeypatch.setenv("HPFRACC_FORCE_NUMPY", "1")
    assert not is_compiled()
    with pin("numba"):
        assert is_compiled()
        with hf.use_backend("numpy"):
            assert not is_compiled()
            assert is_compiled(backend="numba")


def test_the_error_is_that_of_operations() -> None:
    """Up to the name and the reasons in brackets."""
    weights = np.ones(3)
    with hf.config(never={"causal_convolution": ["numba"]}), pytest.raises(BackendUnavailableError) as of_operation:
        hf.causal_convolution(weights, weights, backend="numba")
    with never("numba"), pytest.raises(BackendUnavailableError) as of_solve:
        is_compiled(backend="numba")
    told = str(of_operation.value).replace("causal_convolution", "solve_fode")
    head, _, reasons = told.partition("(")
    assert str(of_solve.value).startswith(head)
    assert reasons.endswith(str(of_solve.value).partition(")")[2].partition(")")[2])


def test_a_library_that_solves_no_numpy_problem_is_refused() -> None:
    """With the setting that names it."""
    with (
        pin("torch"),
        pytest.raises(BackendUnavailableError, match=r"config\(pin=.*'torch'.*y0 as an array of torch"),
    ):
        is_compiled()


def test_tensors_stay_where_settings_allow_it() -> None:
    """A pin to their own library is met; another one, and never, are refused."""
    torch = pytest.importorskip("torch")
    y0 = torch.ones(1, dtype=torch.float64)

    def solve() -> Any:
        return hf.solve_fode(decay, (0.0, 1.0), y0, 0.5, method="pece", step=0.1)

    with pin("torch"):
        assert solve().success
    with pin("numpy"), pytest.raises(InvalidInputError, match=r"was requested by config\(pin="):
        solve()
    with never("torch"), pytest.raises(InvalidInputError, match=r"never=...\) rules it out for solve_fode"):
        solve()
    with never("numba"):
        assert solve().success


def test_a_setting_is_explained() -> None:
    """Before the solve."""
    with pin("numpy"):
        told = hf.explain(hf.solve_fode, decay, (0.0, 1.0), [1.0], 0.5, method="pece", step=1e-3)
    assert "the settings ask for NumPy" in str(told)


@pytest.mark.parametrize("copy", [True, False])
def test_kernels_tell_what_they_cost(copy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured seconds of the first use are the price of kernels for other numbers."""
    monkeypatch.setattr(KernelPrice, "find_copy", lambda self: copy)
    compiled._compiled.clear()  # as in a new process
    price, other = (compilation.kernel_price("corrected", np.dtype(kind)) for kind in (float, complex))
    assert other.seconds() == (compilation._CACHED_KERNEL if copy else compilation._COLD_KERNEL)
    prior = other.seconds()
    assert is_compiled(backend="numba")
    assert price.is_bought and not other.is_bought
    assert 0.0 < other.seconds() != prior


@pytest.mark.usefixtures("_cheap")
def test_a_function_compiled_by_the_user_needs_no_source() -> None:
    """Numba's own functions are recognised, and nothing else is."""
    scope: dict[str, Any] = {}
    exec("table = [-0.3]\ndef fun(t, y):\n    return -0.3 * y\ndef other(t, y):\n    return table[0] * y", scope)
    made = numba.njit(scope["fun"])
    assert compiled.is_jitted(made) and not compiled.is_jitted(scope["fun"])
    for fun, expected in ((made, True), (scope["other"], False)):
        result = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, method="pece", step=1e-3, backend="numba")
        assert result.success and result.decision is not None and result.decision.compiled is expected
