"""The texts that arguments take, for type checkers and editors.

A type checker refuses any other text; at run time ``_reading.choice`` and the registries of the methods do. Upper case
and hyphens in the names of methods and backends are accepted at run time only.
"""

from __future__ import annotations

from typing import Literal

from hpfracc._environment import BackendName

#: Backends of solvers of ordinary equations.
SolverBackendName = BackendName | Literal["numba-cuda"]

#: Definitions of the derivative in an equation.
DerivativeName = Literal["caputo", "riemann_liouville"]

#: Methods of ``solve_fode``, with their other names.
MethodName = Literal[
    "auto", "abm", "adams", "adaptive", "adaptive_local", "alikhanov", "backward_euler", "bdf2", "euler",
    "explicit_rectangle", "exponential", "fbdf2", "flmm_bdf2", "flmm_ng2", "flmm_trapezoid", "forward_euler",
    "graded_l1", "graded_l2", "implicit_euler", "implicit_rectangle", "implicit_trapezoid", "l1", "l2_1sigma",
    "mittag_leffler", "multistep_trapezoid", "newton_gregory", "ng2", "pece", "predictor_corrector", "soe", "trapezoid",
    "trapezoidal", "tustin", "variable_order", "variable_order_graded", "variable_order_l1", "variable_order_l2",
]  # fmt: skip

#: Methods of ``solve_fpde``.
EvolutionMethodName = Literal[
    "auto", "adaptive", "convolution_quadrature", "crank_nicolson", "etdrk4", "exact_modes", "imex_bdf2", "l1",
    "l2_1sigma", "strang", "yoshida4",
]  # fmt: skip

#: Methods of ``solve_fsde``.
PathMethodName = Literal["auto", "euler", "second_order", "milstein", "doss_sussmann", "implicit_euler"]

#: Methods of operators; each has some of them.
RuleName = Literal[
    "auto", "centred", "centred4", "cq2", "cq3", "cq4", "cq5", "cq6", "dirichlet", "fast", "gl", "graded",
    "integral", "l1", "l1-2", "linear", "neumann", "periodic", "quadratic", "quadrature", "simpson", "soe",
    "spectral", "trapezoid", "wsgl",
]  # fmt: skip

#: Definitions of derivatives and integrals, with their short names.
DefinitionName = Literal[
    "AB", "ABC", "ABR", "atangana_baleanu", "atangana_baleanu_riemann", "C", "caputo", "caputo_fabrizio",
    "caputo_hadamard", "caputo_katugampola", "CF", "CH", "CK", "coimbra", "distributed_order", "DO", "EK",
    "erdelyi_kober", "feller", "FL", "fractional_laplacian", "GL", "grunwald_letnikov", "hadamard", "hilfer",
    "katugampola", "laplacian", "marchaud", "P", "prabhakar", "psi_caputo", "R", "RF", "riemann_liouville", "riesz",
    "riesz_feller", "RL", "sonine", "TC", "tempered", "tempered_caputo", "tempered_riemann_liouville", "TRL",
    "variable_order", "VO", "W", "weyl",
]  # fmt: skip

#: Sides from which an operator starts.
SideName = Literal["left", "right"]

#: Boundary conditions with data 0.
BoundaryName = Literal["periodic", "dirichlet", "neumann", "no_flux", "exterior"]

#: Meanings of a stochastic integral.
Interpretation = Literal["ito", "stratonovich", "young"]

#: Loss functions of a fit.
LossName = Literal["linear", "soft_l1", "huber", "cauchy", "arctan"]
