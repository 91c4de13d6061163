"""One array namespace: functions of NumPy, PyTorch, JAX and CuPy under NumPy's names.

Mathematics that runs in several libraries takes a :class:`Namespace` as its argument ``xp``. :func:`namespace` gives
that of a library and :func:`array_namespace` that of an array. :func:`namespace_of` gives that for weights that depend
on a value: PyTorch's or JAX's for their arrays, NumPy's for all others, CuPy's included. Nothing is imported: the
library of an existing array is in ``sys.modules``.
"""

from __future__ import annotations

from hpfracc._xp.base import Namespace
from hpfracc._xp.lookup import array_namespace, namespace, namespace_of
from hpfracc._xp.numpy import NUMPY
from hpfracc._xp.variables import of_variables, user_scope

__all__ = ["NUMPY", "Namespace", "array_namespace", "namespace", "namespace_of", "of_variables", "user_scope"]
