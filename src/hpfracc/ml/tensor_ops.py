"""Arrays of a library chosen by name, and the few operations on them that existing code uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from hpfracc._arrays import library_of, to_host
from hpfracc._config import check_backend
from hpfracc._optional import import_optional
from hpfracc._xp import Namespace, namespace
from hpfracc.engine.backends.registry import BackendType, get_backend
from hpfracc.engine.execution.api import fft, matmul
from hpfracc.errors import InvalidInputError

__all__ = ["TensorOps", "create_tensor", "get_tensor_ops"]

#: The library whose arrays a backend computes on.
_LIBRARIES = {"numpy": "numpy", "numba": "numpy", "torch": "torch", "jax": "jax", "cupy": "cupy"}


@final
class TensorOps:
    """Creates and combines arrays of the library of one backend.

    Parameters
    ----------
    backend : str or BackendType
        ``"auto"`` is the selected backend (``hf.use_backend``, ``HPFRACC_FORCE_*``), or NumPy.

    Notes
    -----
    ``matmul`` and ``fft`` call the engine: the result is an array of the same library, wherever it was computed.

    Examples
    --------
    >>> from hpfracc.ml.tensor_ops import TensorOps
    >>> ops = TensorOps("numpy")
    >>> ops.matmul(ops.ones((2, 2)), ops.create_tensor([[1.0], [2.0]])).tolist()
    [[3.0], [3.0]]
    """

    def __init__(self, backend: Any = "auto") -> None:
        chosen = BackendType(check_backend(backend, auto=True))
        if chosen is BackendType.AUTO:
            chosen = get_backend()
        self.backend = BackendType.NUMPY if chosen is BackendType.AUTO else chosen
        import_optional(_LIBRARIES[self.backend.value])

    @property
    def _xp(self) -> Namespace:
        return namespace(_LIBRARIES[self.backend.value])

    def create_tensor(self, data: Any, *, requires_grad: bool = False) -> Any:
        """``data`` as an array of the library; integers stay integers. Only PyTorch supports gradients."""
        made = self._xp.asarray(data if library_of(data) == self._xp.library else self.to_numpy(data))
        if not requires_grad:
            return made
        if self._xp.library != "torch":
            raise InvalidInputError(f"requires_grad=True needs PyTorch; {self._xp.library} arrays have no such flag")
        return made.requires_grad_()

    def zeros(self, shape: Sequence[int], dtype: str = "float64") -> Any:
        """Zeros."""
        with self._xp.scope():
            return self._xp.zeros(tuple(shape), dtype)

    def ones(self, shape: Sequence[int], dtype: str = "float64") -> Any:
        """Ones."""
        with self._xp.scope():
            return self._xp.zeros(tuple(shape), dtype) + 1

    def concatenate(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Concatenate arrays along an existing axis."""
        return self._xp.concatenate(list(parts), axis)

    def stack(self, parts: Sequence[Any], axis: int = 0) -> Any:
        """Stack arrays along a new axis."""
        return self._xp.stack(list(parts), axis)

    def matmul(self, a: Any, b: Any) -> Any:
        """Their product."""
        return matmul(a, b)

    def fft(self, x: Any) -> Any:
        """Fourier transform along the last axis."""
        return fft(x)

    @staticmethod
    def to_numpy(x: Any) -> Any:
        """The values on the host, without their gradient."""
        return to_host(x)

    def __repr__(self) -> str:
        return f"TensorOps({self.backend.value!r})"


def get_tensor_ops(backend: Any = None) -> TensorOps:
    """The operations of a backend; by default of the selected one."""
    return TensorOps("auto" if backend is None else backend)


def create_tensor(data: Any, backend: Any = None, *, requires_grad: bool = False) -> Any:
    """``data`` as an array of the library of a backend."""
    return get_tensor_ops(backend).create_tensor(data, requires_grad=requires_grad)
