"""Public names, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.solvers.ode._fdeint import fdeint as fdeint
from hpfracc.solvers.ode.method import Method as Method
from hpfracc.solvers.ode.method import all_methods as all_methods
from hpfracc.solvers.ode.methods.adaptive import Adaptive as Adaptive
from hpfracc.solvers.ode.methods.adaptive import AdaptiveLocal as AdaptiveLocal
from hpfracc.solvers.ode.methods.explicit_rectangle import ExplicitRectangle as ExplicitRectangle
from hpfracc.solvers.ode.methods.graded import L1 as L1
from hpfracc.solvers.ode.methods.graded import L2Sigma as L2Sigma
from hpfracc.solvers.ode.methods.implicit_rectangle import ImplicitRectangle as ImplicitRectangle
from hpfracc.solvers.ode.methods.implicit_trapezoid import ImplicitTrapezoid as ImplicitTrapezoid
from hpfracc.solvers.ode.methods.mittag_leffler import MittagLeffler as MittagLeffler
from hpfracc.solvers.ode.methods.multistep import BDF2 as BDF2
from hpfracc.solvers.ode.methods.multistep import MultistepTrapezoid as MultistepTrapezoid
from hpfracc.solvers.ode.methods.multistep import NewtonGregory as NewtonGregory
from hpfracc.solvers.ode.methods.pece import PECE as PECE
from hpfracc.solvers.ode.methods.variable_order import VariableOrder as VariableOrder
from hpfracc.solvers.ode.problem import Problem as Problem
from hpfracc.solvers.ode.result import FODEResult as FODEResult
from hpfracc.solvers.ode.solve import solve_fode as solve_fode
from hpfracc.solvers.stepping.options import Options as Options
