"""Ordinary equations with known solutions, as :mod:`hpfracc.models` keeps them."""

from hpfracc.models.problems.ordinary import *  # noqa: F403
from hpfracc.models.problems.ordinary import __all__ as __all__
