"""From measurements to a verdict: relaxation times, Kramers-Kronig tests.

>>> import numpy as np
>>> import hpfracc as hf
>>> w = np.geomspace(1e-2, 1e4, 50)
>>> cell = hf.models.randles()
>>> hf.lab.kramers_kronig(w, cell.impedance(w)).ok
True
"""

from hpfracc import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__)
