"""Parameters that are tensors: results with their derivatives."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from hpfracc._arrays import is_tracer, library_of, to_host
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError, ShapeError

__all__ = ["attach_gradient", "is_tensor", "plain_model", "tensors_of", "without_tensor"]

_Model = TypeVar("_Model")


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is an array of PyTorch or JAX."""
    return library_of(value) in ("torch", "jax")


def tensors_of(model: Any, **more: Any) -> dict[str, Any]:
    """Fields of the model and further arguments that are tensors."""
    fields = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    found = {name: value for name, value in {**fields, **more}.items() if is_tensor(value)}
    if len({library_of(value) for value in found.values()}) > 1:
        raise InvalidInputError("parameters are arrays of PyTorch and of JAX; use one library")
    return found


def plain_model(model: _Model) -> _Model:
    """The model with numbers in place of tensors."""
    scalars = {name: without_tensor(name, value) for name, value in tensors_of(model).items()}
    for name, value in scalars.items():
        if value.shape:
            raise ShapeError(f"{name} has shape {value.shape}; give one number, and call once for each")
    numbers = {name: float(value) for name, value in scalars.items()}
    replaced: _Model = dataclasses.replace(model, **numbers) if numbers else model  # type: ignore[type-var]
    return replaced


def without_tensor(name: str, value: Any) -> Any:
    """The values of a tensor on the host; anything else unchanged."""
    if not is_tensor(value):
        return value
    held = array_namespace(value).stop_gradient(value)
    if is_tracer(held):
        raise InvalidInputError(f"{name} is traced, and its value is needed; call this outside jax.jit and jax.vmap")
    return np.asarray(to_host(held), dtype=float)


def attach_gradient(value: Any, slopes: dict[str, Any], tensors: dict[str, Any]) -> Any:
    """``value`` as a tensor with the given derivatives with respect to the tensors; second derivatives are nan.

    Parameters
    ----------
    value : ndarray
        The result.
    slopes : dict of ndarray
        Its derivatives, of the same shape, by the name of the tensor.
    tensors : dict
        The tensors, scalars or of a shape that broadcasts to that of the result.
    """
    one = next(iter(tensors.values()))
    xp = array_namespace(one)
    total = xp.asarray(np.array(value), like=one)
    for name, tensor in tensors.items():
        change = tensor - xp.stop_gradient(tensor)
        # The power has the derivative 0 at 0, and times 0 no second one: it is nan, not 0.
        total = total + xp.asarray(np.array(slopes[name]), like=one) * change + 0.0 * xp.abs(change) ** 1.5
    return total
