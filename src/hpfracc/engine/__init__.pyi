"""Public names of the engine, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.engine.backends.registry import BackendType as BackendType
from hpfracc.engine.execution.api import Operation as Operation
from hpfracc.engine.execution.api import bitwise_xor as bitwise_xor
from hpfracc.engine.execution.api import causal_convolution as causal_convolution
from hpfracc.engine.execution.api import elementwise as elementwise
from hpfracc.engine.execution.api import exponential_recurrence as exponential_recurrence
from hpfracc.engine.execution.api import fft as fft
from hpfracc.engine.execution.api import history_sum as history_sum
from hpfracc.engine.execution.api import last_decision as last_decision
from hpfracc.engine.execution.api import matmul as matmul
from hpfracc.engine.execution.api import reduction as reduction
from hpfracc.engine.execution.api import spectral_multiply as spectral_multiply
from hpfracc.engine.execution.api import stencil_relax as stencil_relax
from hpfracc.engine.execution.api import toeplitz_apply as toeplitz_apply
from hpfracc.engine.execution.custom import operation as operation
from hpfracc.engine.selection.decision import Decision as Decision
from hpfracc.engine.selection.decision import Explanation as Explanation
from hpfracc.engine.selection.selector import IntelligentBackendSelector as IntelligentBackendSelector
from hpfracc.engine.selection.selector import select_optimal_backend as select_optimal_backend
from hpfracc.engine.workload import WorkloadCharacteristics as WorkloadCharacteristics
