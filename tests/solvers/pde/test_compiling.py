"""When the steps of L1 and L2-1sigma are compiled: on request, or when that pays off on the engine's account."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.selection import rent_or_buy
from hpfracc.engine.selection.rent_or_buy import compile_account
from hpfracc.errors import BackendUnavailableError, InvalidInputError
from hpfracc.pde import Diffusion
from hpfracc.solvers.pde.marching import MARCHING
from hpfracc.solvers.pde.methods import differences as difference

pytest.importorskip("numba")

X = np.linspace(0.0, np.pi, 17)


def solve(**options: Any) -> Any:
    given = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "method": "l1", "step": 0.02}
    return hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **{**given, **options})


def is_compiled(**options: Any) -> bool:
    """Whether a solve compiled its steps."""
    result = solve(**options)
    assert result.success
    return bool(result.stats.get("compiled", False))


@pytest.fixture(autouse=True)
def _uncached(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy in Numba's cache, and an import that costs nothing."""
    monkeypatch.setattr(rent_or_buy.KernelPrice, "find_copy", lambda self: False)
    monkeypatch.setattr(rent_or_buy, "import_cost", lambda name: 0.0)


def test_steps_in_numpy_pay_for_a_compilation() -> None:
    """Their time is credited, and the time of compiling is measured."""
    assert not is_compiled()
    first = compile_account.saved(MARCHING.item)
    assert first > 0.0
    assert not is_compiled()
    assert compile_account.saved(MARCHING.item) == pytest.approx(2 * first)
    MARCHING.credit(MARCHING.cold)
    assert is_compiled() and MARCHING.is_bought
    assert compile_account.price(("pde marching", "cold"), "another") != MARCHING.cold
    assert is_compiled()


def test_a_deterministic_run_ignores_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whether something is compiled already: the size decides."""
    with hf.config(deterministic=True):
        assert not is_compiled()
        compile_account.credit(MARCHING.item, 100.0)
        MARCHING.buy()
        assert not is_compiled()
        monkeypatch.setattr(difference, "_SECONDS_A_STEP", MARCHING.cached / 49)
        assert is_compiled()


def test_settings_are_obeyed() -> None:
    """In the order of operations: argument, block, pin."""
    MARCHING.buy()
    assert is_compiled()
    with hf.config(pin={"solve_fpde": "numpy"}):
        assert not is_compiled()
        assert is_compiled(backend="numba")
        with hf.use_backend("numba"):
            assert is_compiled()
        with pytest.raises(InvalidInputError, match=r"config\(pin=.*forbids it"):
            solve(compile=True)
    with hf.config(pin={"solve_fpde": "torch"}), pytest.raises(BackendUnavailableError, match=r"asks for 'torch'"):
        solve()
    with hf.use_backend("numpy"):
        assert not is_compiled()
    with hf.config(never={"solve_fpde": ["numba"]}):
        assert not is_compiled()
        for options in ({"compile": True}, {"backend": "numba"}):
            with pytest.raises(BackendUnavailableError, match=r"asks for 'numba'.*never=...\) rules it out"):
                solve(**options)


def test_a_real_source_of_a_complex_state():
    """Compiled steps take its real coefficients."""
    x = np.linspace(0.0, np.pi, 9)
    given = {"x": x, "space": Diffusion(1.0), "boundary": "dirichlet", "alpha": 0.5, "method": "l1", "step": 0.05}
    one, other = (
        hf.solve_fpde(None, (0.0, 1.0), (1.0 + 1.0j) * np.sin(x), source=lambda t, x: t * x, compile=wish, **given)
        for wish in (True, False)
    )
    assert np.abs(one.u - other.u).max() < 1e-13
