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
    solve_fode, fdeint; solve_fsde with noise; solve_fpde with the terms and conditions of pde, and
    steady_state; fit_fode and fit_fpde estimate parameters, orders and initial values from data;
    audit judges a solution
Operators on samples or functions, at points ``t``, of order ``alpha``
    caputo, riemann_liouville, grunwald_letnikov, riemann_liouville_integral, caputo_fabrizio, atangana_baleanu,
    hadamard, caputo_hadamard, katugampola, caputo_katugampola, erdelyi_kober, hilfer, marchaud, psi_caputo,
    tempered, tempered_caputo, variable_order, distributed_order, prabhakar, their integrals,
    sonine_derivative and sonine_integral with your own kernel, weyl, riesz, riesz_feller, fractional_laplacian,
    fractional_difference, smooth_derivative, create_fractional_derivative, create_fractional_integral;
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
    registers your own work; engine has its own operations (``engine.causal_convolution``) and the selector;
    interrupted returns what the last call that Ctrl-C ended had done
Measurements
    lab has distributions of relaxation times and the test of Kramers and Kronig; ``transport.fit_tracks`` fits tracks
Modules
    errors, batch, distributed, engine, memory, noise, pde, rough, transport, profiling, analytics, lattice, ml,
    solvers, special, operators
Command line
    ``hpfracc demo``, ``hpfracc info``, ``hpfracc --help``; show_versions prints what a report of a problem needs

``help(hpfracc.caputo)`` describes one name. Names are loaded on first use, so ``import hpfracc`` is fast and imports no
accelerator library.
"""

from __future__ import annotations

import sys as _sys

from hpfracc import _lazy, _plugs

__version__ = "0.3.0.dev0"

# The engine's names can be used here too, as existing code does; they are listed in ``hpfracc.engine``.
__getattr__, __dir__, __all__ = _lazy.attach(__name__, unlisted="hpfracc.engine")
__all__ = sorted([*__all__, "__version__", "errors"])
_sys.meta_path.append(_lazy.OldNames)

_plugs.plugged.update(
    {
        "device clocks": ("hpfracc.engine.backends.registry", "device_clocks"),
        "energy counters": ("hpfracc.engine.hardware.energy", "read_energy_counters"),
        "cluster support": ("hpfracc.distributed.chunked", ""),
    }
)
