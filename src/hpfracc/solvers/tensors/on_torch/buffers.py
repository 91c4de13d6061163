"""Buffers of the modules that a function calls, such as the running statistics of BatchNorm.

Evaluations of the forward pass change them as the module says. Other evaluations, those of the backward pass and those
that look at the graph of a function, see the buffers as they were and leave them unchanged.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from hpfracc.errors import InvalidInputError, SolveError, warn
from hpfracc.solvers.tensors.programs import captured

#: Larger buffers, in bytes, are copied only where their module has changed one of its buffers in place.
_ALWAYS_COPIED = 1 << 16
#: Functions that call functions, and containers of them, are followed down to this depth.
_DEEPEST = 4
#: Containers with more members are data.
_LONGEST = 256


#: A module and the name of one of its buffers.
Entry = tuple[nn.Module, str]
#: A tensor that is a buffer, and a copy of its values.
Held = tuple[torch.Tensor, torch.Tensor]


class Buffers:
    """The buffers of all modules that can be found from some functions and their arguments.

    Modules are found if they are given, in lists, tuples and dictionaries, as attributes of the object that is called,
    in ``functools.partial``, and by the names that a function refers to: from its closure, its defaults and its
    globals.

    Parameters
    ----------
    *sources
        Functions, modules, and their arguments.
    """

    def __init__(self, *sources: Any) -> None:
        found = {id(each): each for module in _modules(sources) for each in module.modules()}
        self._entries = [(one, name) for one in found.values() for name, _ in one.named_buffers(recurse=False)]
        self._versions = [_version(each) for each in self._entries]

    def leave_out_constants(self) -> None:
        """Leave out large buffers of modules that have changed none; to be called after an evaluation."""
        pairs = zip(self._entries, self._versions, strict=True)
        changed = {id(entry[0]) for entry, before in pairs if _version(entry) != before}
        self._entries = [
            each
            for each in self._entries
            if id(each[0]) in changed or getattr(*each).numel() * getattr(*each).element_size() <= _ALWAYS_COPIED
        ]

    def unchanged(self) -> UnchangedBuffers:
        """A context whose evaluations leave all buffers as they are."""
        return UnchangedBuffers(self._entries, None)

    def replayed(self) -> UnchangedBuffers:
        """A context for a later time, whose evaluations see the buffers of now, and leave those of then unchanged."""
        return UnchangedBuffers(self._entries, _held(self._entries))


class UnchangedBuffers:
    """A context that puts the buffers back when it is left; it may be entered again.

    Parameters
    ----------
    entries : list
        The buffers.
    replayed : list of pairs of tensors, or None
        Tensors that are the buffers within the context, and their values.
    """

    def __init__(self, entries: list[Entry], replayed: list[Held] | None) -> None:
        self._entries, self._replayed = entries, replayed
        self._before: list[list[Held]] = []

    def __enter__(self) -> None:
        self._before.append(_held(self._entries))
        if self._replayed is not None:
            self._put(self._replayed)

    def __exit__(self, *_: object) -> None:
        self._put(self._before.pop())

    def _put(self, wanted: list[Held]) -> None:
        for entry, (tensor, values) in zip(self._entries, wanted, strict=True):
            if getattr(*entry) is not tensor:  # the module has assigned another tensor
                setattr(*entry, tensor)
            # Graphs that were recorded before may hold these tensors: to them nothing has happened.
            tensor.data.copy_(values)


def _held(entries: list[Entry]) -> list[Held]:
    now = [getattr(*each) for each in entries]
    return [(each, each.detach().clone()) for each in now]


def _version(entry: Entry) -> tuple[int, int]:
    """Which tensor a buffer is, and how often it was changed in place."""
    now = getattr(*entry)
    return id(now), 0 if now.is_inference() else now._version


def _modules(sources: tuple[Any, ...]) -> Iterator[nn.Module]:
    """The modules among ``sources`` and those that they refer to."""
    todo: list[tuple[Any, int]] = [(each, 0) for each in sources]
    seen = set[int]()
    while todo:
        each, depth = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, nn.Module):
            yield each
        elif depth < _DEEPEST:
            todo += [(one, depth + 1) for one in _referred(each)]


def _referred(value: Any) -> list[Any]:
    """What a function or a container refers to, and the modules of any other object."""
    if isinstance(value, list | tuple | dict):
        members = value.values() if isinstance(value, dict) else value
        return list(members) if len(value) <= _LONGEST else []
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        own_code = (value.__module__ or "").partition(".")[0] != "torch"
        return [getattr(value, "__wrapped__", None), *captured(value)[1]] if own_code else []
    own = getattr(value, "__dict__", None)
    if isinstance(value, torch.Tensor | types.ModuleType | type) or not isinstance(own, dict):
        return []
    return [each for each in own.values() if isinstance(each, nn.Module)]


def warn_of_captured(owner: nn.Module, **functions: Any) -> None:
    """Warn of modules that functions of ``owner`` call and that are no part of it: no optimiser would train them."""
    own = {id(each) for each in owner.parameters()}
    for name, function in functions.items():
        for module in _modules((function,)):
            count = sum(each.numel() for each in module.parameters() if each.requires_grad and id(each) not in own)
            if count:
                warn(
                    f"{name} calls a module, {type(module).__name__}, whose {count:,} parameters are not among the "
                    f"parameters of {type(owner).__name__}; give the module itself (a class with forward(t, y)) to "
                    "train it with this one",
                    UserWarning,
                )


Gradients = Sequence[torch.Tensor | None]
#: ``solve(matrix, right)`` for each member of a batch.
Solve = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def differentiable_once(
    gradients: Callable[[], Gradients], depends_on: Sequence[torch.Tensor | None], remedy: str
) -> list[torch.Tensor | None]:
    """The result of ``gradients()`` in a backward pass; differentiating it again raises an error.

    Parameters
    ----------
    gradients : callable
        Computes the gradients; called once, without recording.
    depends_on : sequence of tensors or None
        The tensors that the gradients depend on.
    remedy : str
        What to do for a second derivative.
    """
    graphed = torch.is_grad_enabled()
    with torch.no_grad():
        found = list(gradients())
    there = [place for place, each in enumerate(found) if each is not None]
    tensors = [each for each in depends_on if each is not None and each.requires_grad]
    if graphed and there and tensors:
        closed = _Once.apply(remedy, len(there), *(found[place] for place in there), *tensors)
        for place, each in zip(there, closed, strict=True):
            found[place] = each
    return found


class _Once(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, remedy: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.remedy = remedy
        return tuple(each.detach() for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> Any:
        raise SolveError(f"this gradient cannot be differentiated twice: {ctx.remedy}")


def of_the_equation(z: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor, solve: Solve) -> torch.Tensor:
    """``y``; its derivative is that of ``z``, with ``y = z``, through ``(1 - weight df/dy) dy = dz``."""
    found: torch.Tensor = _OfTheEquation.apply(z, y, matrix, solve)
    return found


class _OfTheEquation(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, y: torch.Tensor, matrix: torch.Tensor, solve: Solve) -> torch.Tensor:
        ctx.save_for_backward(z, matrix)
        ctx.solve = solve
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, None, None]:
        z, matrix = ctx.saved_tensors
        remedy = "use torch.func, or an explicit method"
        (found,) = differentiable_once(lambda: [ctx.solve(matrix.mH, grad)], [z, grad], remedy)
        return found, None, None, None


def check_members(fun: Callable[[torch.Tensor], torch.Tensor], y: torch.Tensor) -> None:
    """Refuse functions that mix the members of a batch: gradients are those of one matrix for each member.

    Raises
    ------
    InvalidInputError
        If the value of the first member depends on another member of ``y``, of shape (..., d).
    """
    if y[..., 0].numel() < 2:
        return
    with torch.random.fork_rng(devices=[y.device] if y.is_cuda else []), torch.enable_grad():
        place = y.detach().requires_grad_()
        value = fun(place)
        if not value.requires_grad:
            return
        first = value.reshape(-1, value.shape[-1])[0]
        (slope,) = torch.autograd.grad(first, place, torch.rand_like(first), allow_unused=True)
    if slope is not None and bool((slope.reshape(-1, y.shape[-1])[1:] != 0).any()):
        raise InvalidInputError(
            "func mixes the members of the batch (BatchNorm?), and gradients of implicit methods are those of separate "
            "members; use func.eval(), an explicit method such as 'pece', or one state of all members"
        )
