"""Public names, loaded on first use: see ``_lazy.py``."""

from hpfracc.lab._kramers_kronig import KramersKronig as KramersKronig
from hpfracc.lab._kramers_kronig import kramers_kronig as kramers_kronig
from hpfracc.lab.relaxation import Peak as Peak
from hpfracc.lab.relaxation import RelaxationSpectrum as RelaxationSpectrum
from hpfracc.lab.relaxation import relaxation_times as relaxation_times
from hpfracc.lab.states import CircuitStates as CircuitStates
from hpfracc.lab.states import circuit_states as circuit_states
