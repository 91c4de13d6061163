"""Fractional calculus at the speed of the hardware.

Derivatives, integrals and equations of fractional order for NumPy, PyTorch, JAX and CuPy arrays. For each expensive
call an engine selects the fastest algorithm, backend and device on this machine.

Examples
--------
>>> import numpy as np
>>> import hpfracc as hf
>>> t = np.linspace(0.0, 1.0, 101)
>>> half = hf.caputo(t, t, 0.5)  # derivative of order 1/2 of samples: 2 sqrt(t / pi)
>>> bool(np.allclose(half, 2 * np.sqrt(t / np.pi)))
True
>>> solution = hf.solve_fode(lambda t, y: -y, (0.0, 2.0), [1.0], alpha=0.5)  # D^0.5 y = -y, y(0) = 1
>>> bool(abs(solution.y[0, -1] - hf.mittag_leffler(-(2.0**0.5), 0.5)) < 1e-5)
True

Equations
    solve_fode, fdeint; solve_fsde with noise; solve_fpde with the terms and conditions of pde;
    fit_fode estimates parameters, order and initial values from data
Operators on samples or functions, at points ``t``, of order ``alpha``
    caputo, riemann_liouville, grunwald_letnikov, riemann_liouville_integral, caputo_fabrizio, atangana_baleanu,
    hadamard, caputo_hadamard, marchaud, psi_caputo, tempered, tempered_caputo, variable_order, their integrals,
    weyl, riesz, fractional_laplacian, fractional_difference, create_fractional_derivative, create_fractional_integral;
    each has a class of the same name (``Caputo(0.5)``), which can be stored, applied and streamed
Transforms and grids
    frft, fractional_fft, graded_grid
Noise with memory
    fbm, fgn, hurst; noise has the processes as objects (``noise.FractionalBrownian(0.3)``); rough has volatility
    models; transport has random walks, first passage and mean squared displacement
Special functions
    mittag_leffler, mittag_leffler_derivative, mittag_leffler_matrix, wright, m_wright, gamma, digamma, beta,
    incomplete_beta, generalized_binomial
Many parameters, many machines
    sweep calls a function for all items of a grid or of points, on an executor, with a store that resumes; distributed
    has the rest
The engine
    explain and last_decision show what is chosen and why; config and use_backend override the choice; operation
    registers your own work; select_optimal_backend selects for a workload; causal_convolution, history_sum, fft,
    matmul, ... are its operations
Modules
    errors, batch, distributed, memory, noise, pde, rough, transport, profiling, analytics, lattice, ml, solvers,
    special, operators
Command line
    ``hpfracc demo``, ``hpfracc info``, ``hpfracc --help``

``help(hpfracc.caputo)`` describes one name. Names are loaded on first use, so ``import hpfracc`` is fast and imports no
accelerator library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hpfracc import _clusters
from hpfracc.profiling.clocks import Counters, DeviceClock, plug_in, plug_in_energy

if TYPE_CHECKING:
    from hpfracc import analytics as analytics
    from hpfracc import batch as batch
    from hpfracc import distributed as distributed
    from hpfracc import errors
    from hpfracc import lattice as lattice
    from hpfracc import memory as memory
    from hpfracc import ml as ml
    from hpfracc import noise as noise
    from hpfracc import operators as operators
    from hpfracc import pde as pde
    from hpfracc import profiling as profiling
    from hpfracc import rough as rough
    from hpfracc import solvers as solvers
    from hpfracc import special as special
    from hpfracc import transport as transport
    from hpfracc._config import config, use_backend
    from hpfracc._explain import explain
    from hpfracc.distributed.parameters import grid, points
    from hpfracc.distributed.results import SweepResult
    from hpfracc.distributed.sweeps import sweep
    from hpfracc.engine.backends.registry import BackendType
    from hpfracc.engine.execution.api import (
        Operation,
        bitwise_xor,
        causal_convolution,
        elementwise,
        exponential_recurrence,
        fft,
        history_sum,
        last_decision,
        matmul,
        operation,
        reduction,
        spectral_multiply,
        stencil_relax,
        toeplitz_apply,
    )
    from hpfracc.engine.selection.selector import IntelligentBackendSelector, select_optimal_backend
    from hpfracc.engine.workload import WorkloadCharacteristics
    from hpfracc.errors import AccuracyWarning
    from hpfracc.ml._differencer import FractionalDifferencer
    from hpfracc.operators._atangana_baleanu import AtanganaBaleanu, atangana_baleanu
    from hpfracc.operators._atangana_baleanu_integral import AtanganaBaleanuIntegral, atangana_baleanu_integral
    from hpfracc.operators._atangana_baleanu_riemann import AtanganaBaleanuRiemann, atangana_baleanu_riemann
    from hpfracc.operators._caputo import Caputo, caputo
    from hpfracc.operators._caputo_fabrizio import CaputoFabrizio, caputo_fabrizio
    from hpfracc.operators._caputo_fabrizio_integral import CaputoFabrizioIntegral, caputo_fabrizio_integral
    from hpfracc.operators._caputo_hadamard import CaputoHadamard, caputo_hadamard
    from hpfracc.operators._fractional_difference import fractional_difference
    from hpfracc.operators._fractional_fft import fractional_fft
    from hpfracc.operators._fractional_laplacian import FractionalLaplacian, fractional_laplacian
    from hpfracc.operators._frft import frft
    from hpfracc.operators._grunwald_letnikov import GrunwaldLetnikov, grunwald_letnikov
    from hpfracc.operators._hadamard import Hadamard, hadamard
    from hpfracc.operators._hadamard_integral import HadamardIntegral, hadamard_integral
    from hpfracc.operators._marchaud import Marchaud, marchaud
    from hpfracc.operators._psi_caputo import PsiCaputo, psi_caputo
    from hpfracc.operators._riemann_liouville import RiemannLiouville, riemann_liouville
    from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral, riemann_liouville_integral
    from hpfracc.operators._riesz import Riesz, riesz
    from hpfracc.operators._stream import OperatorStream
    from hpfracc.operators._tempered import TemperedRiemannLiouville, tempered
    from hpfracc.operators._tempered_caputo import TemperedCaputo, tempered_caputo
    from hpfracc.operators._tempered_integral import TemperedIntegral, tempered_integral
    from hpfracc.operators._variable_order import VariableOrder, variable_order
    from hpfracc.operators._weyl import Weyl, weyl
    from hpfracc.operators._weyl_integral import WeylIntegral, weyl_integral
    from hpfracc.operators.core.base import FractionalOperator
    from hpfracc.operators.core.grids import graded_grid
    from hpfracc.operators.core.registry import create_fractional_derivative, create_fractional_integral
    from hpfracc.operators.core.reporting import OperatorResult
    from hpfracc.solvers.ode._fdeint import fdeint
    from hpfracc.solvers.ode.fitting.fit import fit_fode
    from hpfracc.solvers.ode.fitting.result import FODEFit
    from hpfracc.solvers.ode.result import FODEResult
    from hpfracc.solvers.ode.solve import solve_fode
    from hpfracc.solvers.pde.result import FPDEResult
    from hpfracc.solvers.pde.solve import solve_fpde
    from hpfracc.solvers.sde.noise.estimation import hurst
    from hpfracc.solvers.sde.noise.fractional_brownian import fbm, fgn
    from hpfracc.solvers.sde.result import FSDEResult
    from hpfracc.solvers.sde.solve import solve_fsde
    from hpfracc.special._mittag_leffler import mittag_leffler, mittag_leffler_derivative
    from hpfracc.special._mittag_leffler_matrix import mittag_leffler_matrix
    from hpfracc.special._wright import m_wright, wright
    from hpfracc.special.binomial import generalized_binomial
    from hpfracc.special.gamma_beta import beta, digamma, gamma, incomplete_beta

__version__ = "0.1.0"

__all__ = [
    "AccuracyWarning",
    "AtanganaBaleanu",
    "AtanganaBaleanuIntegral",
    "AtanganaBaleanuRiemann",
    "BackendType",
    "Caputo",
    "CaputoFabrizio",
    "CaputoFabrizioIntegral",
    "CaputoHadamard",
    "FODEFit",
    "FODEResult",
    "FPDEResult",
    "FSDEResult",
    "FractionalDifferencer",
    "FractionalLaplacian",
    "FractionalOperator",
    "GrunwaldLetnikov",
    "Hadamard",
    "HadamardIntegral",
    "IntelligentBackendSelector",
    "Marchaud",
    "Operation",
    "OperatorResult",
    "OperatorStream",
    "PsiCaputo",
    "RiemannLiouville",
    "RiemannLiouvilleIntegral",
    "Riesz",
    "SweepResult",
    "TemperedCaputo",
    "TemperedIntegral",
    "TemperedRiemannLiouville",
    "VariableOrder",
    "Weyl",
    "WeylIntegral",
    "WorkloadCharacteristics",
    "__version__",
    "atangana_baleanu",
    "atangana_baleanu_integral",
    "atangana_baleanu_riemann",
    "beta",
    "bitwise_xor",
    "caputo",
    "caputo_fabrizio",
    "caputo_fabrizio_integral",
    "caputo_hadamard",
    "causal_convolution",
    "config",
    "create_fractional_derivative",
    "create_fractional_integral",
    "digamma",
    "elementwise",
    "errors",
    "explain",
    "exponential_recurrence",
    "fbm",
    "fdeint",
    "fft",
    "fgn",
    "fit_fode",
    "fractional_difference",
    "fractional_fft",
    "fractional_laplacian",
    "frft",
    "gamma",
    "generalized_binomial",
    "graded_grid",
    "grid",
    "grunwald_letnikov",
    "hadamard",
    "hadamard_integral",
    "history_sum",
    "hurst",
    "incomplete_beta",
    "last_decision",
    "m_wright",
    "marchaud",
    "matmul",
    "mittag_leffler",
    "mittag_leffler_derivative",
    "mittag_leffler_matrix",
    "operation",
    "points",
    "psi_caputo",
    "reduction",
    "riemann_liouville",
    "riemann_liouville_integral",
    "riesz",
    "select_optimal_backend",
    "solve_fode",
    "solve_fpde",
    "solve_fsde",
    "spectral_multiply",
    "stencil_relax",
    "sweep",
    "tempered",
    "tempered_caputo",
    "tempered_integral",
    "toeplitz_apply",
    "use_backend",
    "variable_order",
    "weyl",
    "weyl_integral",
    "wright",
]

#: The module that defines each public name. Public modules have no entry.
_HOMES: dict[str, str] = {
    "AccuracyWarning": "hpfracc.errors",
    "AtanganaBaleanu": "hpfracc.operators._atangana_baleanu",
    "AtanganaBaleanuIntegral": "hpfracc.operators._atangana_baleanu_integral",
    "AtanganaBaleanuRiemann": "hpfracc.operators._atangana_baleanu_riemann",
    "BackendType": "hpfracc.engine.backends.registry",
    "Caputo": "hpfracc.operators._caputo",
    "CaputoFabrizio": "hpfracc.operators._caputo_fabrizio",
    "CaputoFabrizioIntegral": "hpfracc.operators._caputo_fabrizio_integral",
    "CaputoHadamard": "hpfracc.operators._caputo_hadamard",
    "FODEFit": "hpfracc.solvers.ode.fitting.result",
    "FODEResult": "hpfracc.solvers.ode.result",
    "FPDEResult": "hpfracc.solvers.pde.result",
    "FSDEResult": "hpfracc.solvers.sde.result",
    "FractionalDifferencer": "hpfracc.ml._differencer",
    "FractionalLaplacian": "hpfracc.operators._fractional_laplacian",
    "FractionalOperator": "hpfracc.operators.core.base",
    "GrunwaldLetnikov": "hpfracc.operators._grunwald_letnikov",
    "Hadamard": "hpfracc.operators._hadamard",
    "HadamardIntegral": "hpfracc.operators._hadamard_integral",
    "IntelligentBackendSelector": "hpfracc.engine.selection.selector",
    "Marchaud": "hpfracc.operators._marchaud",
    "Operation": "hpfracc.engine.execution.api",
    "OperatorResult": "hpfracc.operators.core.reporting",
    "OperatorStream": "hpfracc.operators._stream",
    "PsiCaputo": "hpfracc.operators._psi_caputo",
    "RiemannLiouville": "hpfracc.operators._riemann_liouville",
    "RiemannLiouvilleIntegral": "hpfracc.operators._riemann_liouville_integral",
    "Riesz": "hpfracc.operators._riesz",
    "SweepResult": "hpfracc.distributed.results",
    "TemperedCaputo": "hpfracc.operators._tempered_caputo",
    "TemperedIntegral": "hpfracc.operators._tempered_integral",
    "TemperedRiemannLiouville": "hpfracc.operators._tempered",
    "VariableOrder": "hpfracc.operators._variable_order",
    "Weyl": "hpfracc.operators._weyl",
    "WeylIntegral": "hpfracc.operators._weyl_integral",
    "WorkloadCharacteristics": "hpfracc.engine.workload",
    "atangana_baleanu": "hpfracc.operators._atangana_baleanu",
    "atangana_baleanu_integral": "hpfracc.operators._atangana_baleanu_integral",
    "atangana_baleanu_riemann": "hpfracc.operators._atangana_baleanu_riemann",
    "beta": "hpfracc.special.gamma_beta",
    "bitwise_xor": "hpfracc.engine.execution.api",
    "caputo": "hpfracc.operators._caputo",
    "caputo_fabrizio": "hpfracc.operators._caputo_fabrizio",
    "caputo_fabrizio_integral": "hpfracc.operators._caputo_fabrizio_integral",
    "caputo_hadamard": "hpfracc.operators._caputo_hadamard",
    "causal_convolution": "hpfracc.engine.execution.api",
    "config": "hpfracc._config",
    "create_fractional_derivative": "hpfracc.operators.core.registry",
    "create_fractional_integral": "hpfracc.operators.core.registry",
    "digamma": "hpfracc.special.gamma_beta",
    "elementwise": "hpfracc.engine.execution.api",
    "explain": "hpfracc._explain",
    "exponential_recurrence": "hpfracc.engine.execution.api",
    "fbm": "hpfracc.solvers.sde.noise.fractional_brownian",
    "fdeint": "hpfracc.solvers.ode._fdeint",
    "fft": "hpfracc.engine.execution.api",
    "fgn": "hpfracc.solvers.sde.noise.fractional_brownian",
    "fit_fode": "hpfracc.solvers.ode.fitting.fit",
    "fractional_difference": "hpfracc.operators._fractional_difference",
    "fractional_fft": "hpfracc.operators._fractional_fft",
    "fractional_laplacian": "hpfracc.operators._fractional_laplacian",
    "frft": "hpfracc.operators._frft",
    "gamma": "hpfracc.special.gamma_beta",
    "generalized_binomial": "hpfracc.special.binomial",
    "graded_grid": "hpfracc.operators.core.grids",
    "grid": "hpfracc.distributed.parameters",
    "grunwald_letnikov": "hpfracc.operators._grunwald_letnikov",
    "hadamard": "hpfracc.operators._hadamard",
    "hadamard_integral": "hpfracc.operators._hadamard_integral",
    "history_sum": "hpfracc.engine.execution.api",
    "hurst": "hpfracc.solvers.sde.noise.estimation",
    "incomplete_beta": "hpfracc.special.gamma_beta",
    "last_decision": "hpfracc.engine.execution.api",
    "m_wright": "hpfracc.special._wright",
    "marchaud": "hpfracc.operators._marchaud",
    "matmul": "hpfracc.engine.execution.api",
    "mittag_leffler": "hpfracc.special._mittag_leffler",
    "mittag_leffler_derivative": "hpfracc.special._mittag_leffler",
    "mittag_leffler_matrix": "hpfracc.special._mittag_leffler_matrix",
    "operation": "hpfracc.engine.execution.api",
    "points": "hpfracc.distributed.parameters",
    "psi_caputo": "hpfracc.operators._psi_caputo",
    "reduction": "hpfracc.engine.execution.api",
    "riemann_liouville": "hpfracc.operators._riemann_liouville",
    "riemann_liouville_integral": "hpfracc.operators._riemann_liouville_integral",
    "riesz": "hpfracc.operators._riesz",
    "select_optimal_backend": "hpfracc.engine.selection.selector",
    "solve_fode": "hpfracc.solvers.ode.solve",
    "solve_fpde": "hpfracc.solvers.pde.solve",
    "solve_fsde": "hpfracc.solvers.sde.solve",
    "spectral_multiply": "hpfracc.engine.execution.api",
    "stencil_relax": "hpfracc.engine.execution.api",
    "sweep": "hpfracc.distributed.sweeps",
    "tempered": "hpfracc.operators._tempered",
    "tempered_caputo": "hpfracc.operators._tempered_caputo",
    "tempered_integral": "hpfracc.operators._tempered_integral",
    "toeplitz_apply": "hpfracc.engine.execution.api",
    "use_backend": "hpfracc._config",
    "variable_order": "hpfracc.operators._variable_order",
    "weyl": "hpfracc.operators._weyl",
    "weyl_integral": "hpfracc.operators._weyl_integral",
    "wright": "hpfracc.special._wright",
}


#: Public modules, imported on first access, as in ``hf.batch.run(...)``.
_MODULES = frozenset(
    {
        "analytics",
        "batch",
        "distributed",
        "errors",
        "lattice",
        "memory",
        "ml",
        "noise",
        "operators",
        "pde",
        "profiling",
        "rough",
        "solvers",
        "special",
        "transport",
    }
)


def _device_clocks() -> list[DeviceClock]:
    from hpfracc.engine.backends.registry import device_clocks

    return device_clocks()


# The profiler must not import the backends, so the backends' clocks are registered here.
plug_in(_device_clocks)


def _energy_counters() -> tuple[Counters, str]:
    from hpfracc.engine.hardware import read_energy_counters

    return read_energy_counters()


plug_in_energy(_energy_counters)


def _cluster_support() -> _clusters.ClusterSupport:
    from hpfracc.distributed import chunked

    return chunked


# Operators and batches must not import hpfracc.distributed, so its support is registered here.
_clusters.plug_in(_cluster_support)


# Hidden from type checkers, which would otherwise accept any attribute.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = importlib.import_module(f"{__name__}.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Cached, so that the next lookup does not call this function.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
