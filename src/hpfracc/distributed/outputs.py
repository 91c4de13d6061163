"""The results of a sweep's calls, as named arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.errors import InvalidInputError, ShapeError, SolveError, UnsupportedDtypeError

__all__ = ["VALUE", "Output", "check_output", "describe_output", "read_outputs", "stack_outputs"]

#: The name of a single result.
VALUE = "value"

Output = None | str | tuple[str, ...] | Callable[[Any], Any]


def check_output(output: Any) -> Output:
    """What to keep of each result: a name, several, a function, or None."""
    if output is None or isinstance(output, str):
        return output
    if callable(output):
        function: Callable[[Any], Any] = output
        return function
    names = tuple(output) if isinstance(output, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InvalidInputError(
            f"output={output!r} does not say what to keep; use the name of a field such as 'y', several, or a function"
        )
    return names


def describe_output(output: Output) -> str:
    """The output option in words, for a manifest; functions are hashed elsewhere."""
    if output is None or isinstance(output, str):
        return str(output)
    return ",".join(output) if isinstance(output, tuple) else "function"


def read_outputs(result: Any, output: Output) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of one result by name. A solution that did not reach its end raises :class:`SolveError`."""
    if getattr(result, "success", True) is False:
        raise SolveError(f"the solver stopped: {getattr(result, 'message', 'no message')}")
    if callable(output):
        result = output(result)
    elif isinstance(output, str):
        return {output: _array(output, _field(result, output))}
    elif output is not None:
        return {name: _array(name, _field(result, name)) for name in output}
    elif hasattr(result, "t") and (hasattr(result, "y") or hasattr(result, "u")):  # a solution
        result = {"y": result.y} if hasattr(result, "y") else {"u": result.u}
    if isinstance(result, Mapping):
        if not result:
            raise InvalidInputError("the function returned an empty mapping; return at least one array")
        return {str(name): _array(str(name), value) for name, value in result.items()}
    return {VALUE: _array("the result", result)}


def _field(result: Any, name: str) -> Any:
    try:
        return result[name] if isinstance(result, Mapping) else getattr(result, name)
    except (KeyError, AttributeError):
        known = sorted(result) if isinstance(result, Mapping) else [each for each in dir(result) if each[0] != "_"]
        raise InvalidInputError(
            f"output={name!r} is not a field of a {type(result).__name__}, which has {', '.join(map(str, known[:20]))}"
        ) from None


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    library = library_of(value)
    if library == "torch":
        value = value.detach().cpu().numpy()
    elif library == "cupy":
        value = value.get()
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        raise ShapeError(f"{name} is a {type(value).__name__} of unequal parts; return an array") from None
    if array.dtype.kind not in "biufc":
        raise UnsupportedDtypeError(
            f"{name} is a {type(value).__name__} and not numeric; return a number, an array or a dict of them, or say "
            "with output= what to keep"
        )
    return array


def stack_outputs(indices: list[int], found: list[dict[str, np.ndarray[Any, Any]]]) -> dict[str, np.ndarray[Any, Any]]:
    """Results of several items, which must agree in names and shapes, along a new first axis."""
    stacked = {}
    for name in found[0]:
        for index, each in zip(indices, found, strict=True):
            require_like(indices[0], found[0], index, each)
        stacked[name] = np.stack([each[name] for each in found])
    return stacked


def require_like(
    first: int, like: Mapping[str, np.ndarray[Any, Any]], index: int, found: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Raise an error unless item ``index`` has the names and shapes that item ``first`` has."""
    if found.keys() != like.keys():
        raise ShapeError(
            f"item {index} returned {', '.join(found)} and item {first} {', '.join(like)}; return the same names for "
            "all items"
        )
    for name, array in found.items():
        if array.shape != like[name].shape:
            raise ShapeError(
                f"item {index} returned {name} of shape {array.shape} and item {first} of shape {like[name].shape}; "
                "return one shape for all items, such as the values at t_eval= or the last one"
            )
