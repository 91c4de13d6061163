"""Public names, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.profiling.comparison import Comparison as Comparison
from hpfracc.profiling.comparison import compare_profiles as compare_profiles
from hpfracc.profiling.document import load_profile as load_profile
from hpfracc.profiling.profiler import Profiler as Profiler
from hpfracc.profiling.profiler import get_profiler as get_profiler
from hpfracc.profiling.spans import Span as Span
