"""Public names, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.special._mittag_leffler import mittag_leffler as mittag_leffler
from hpfracc.special._mittag_leffler import mittag_leffler_derivative as mittag_leffler_derivative
from hpfracc.special._mittag_leffler_matrix import mittag_leffler_matrix as mittag_leffler_matrix
from hpfracc.special._wright import m_wright as m_wright
from hpfracc.special._wright import wright as wright
from hpfracc.special.binomial import generalized_binomial as generalized_binomial
from hpfracc.special.binomial import grunwald_weights as grunwald_weights
from hpfracc.special.gamma_beta import BetaFunction as BetaFunction
from hpfracc.special.gamma_beta import GammaFunction as GammaFunction
from hpfracc.special.gamma_beta import beta as beta
from hpfracc.special.gamma_beta import digamma as digamma
from hpfracc.special.gamma_beta import gamma as gamma
from hpfracc.special.gamma_beta import incomplete_beta as incomplete_beta
