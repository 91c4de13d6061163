"""``hpfracc explain``: show which arm (backend, algorithm, device) a call would use, and why, without running it."""

from __future__ import annotations

import argparse
from typing import Any

from hpfracc.cli.answer import Answer


def add_command(commands: Any, summary: str, common: argparse.ArgumentParser) -> None:
    """Add this command to the parser."""
    parser = commands.add_parser("explain", help=summary, parents=[common], allow_abbrev=False)
    parser.add_argument(
        "--op", required=True, metavar="NAME", help="operation or operator, such as causal_convolution or caputo"
    )
    parser.add_argument("--alpha", type=float, help="order of an operator (default: 0.5)")
    parser.add_argument(
        "--shape", required=True, help="shape of the main operand: 100000, or 32x1000 for 32 rows of 1000"
    )
    parser.add_argument(
        "--dtype", help="dtype of the operands (default: float64, or int64 for operations on integers only)"
    )
    parser.add_argument("--gradient", action="store_true", help="the operands track a gradient")
    parser.add_argument(
        "--on", default="cpu", metavar="DEVICE", help="device of the operands: cpu (default), cuda, cuda:1"
    )
    parser.add_argument("--backend", help="backend that the call requests")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    """Explain the call that the arguments describe."""
    from hpfracc._explain import explain
    from hpfracc.engine.execution.operation import all_operations
    from hpfracc.errors import InvalidInputError

    shape = parse_shape(arguments.shape)
    more = {} if arguments.alpha is None else {"alpha": arguments.alpha}
    if arguments.op in all_operations():
        if more:
            raise InvalidInputError(f"--alpha is the order of an operator, and {arguments.op} has no order; omit it")
        if arguments.dtype is not None:
            _check_dtype(arguments.op, shape, arguments.dtype)
    explanation = explain(
        arguments.op,
        **more,
        shape=shape,
        dtype=arguments.dtype or "float64",
        gradient=arguments.gradient,
        on=_device(arguments.on),
        backend=arguments.backend,
    )
    return Answer(explanation.to_dict(), lambda: explanation)


def _check_dtype(operation: str, shape: tuple[int, ...], dtype: str) -> None:
    """Raise an error for a dtype that the operation's example operands would silently replace by another."""
    from hpfracc.engine.execution.operation import get_operation
    from hpfracc.engine.primitives.base import ArraySpec

    primitive = get_operation(operation).primitive
    name = ArraySpec((), dtype).dtype
    specs, params = primitive.example(shape, name)
    if name not in {spec.dtype for spec in specs}:
        primitive.describe(*(ArraySpec(spec.shape, name) for spec in specs), **params)


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse ``"32x1000"`` to ``(32, 1000)``. Axes are integers; ``1e6`` counts as one."""
    from hpfracc.engine.workload import as_shape
    from hpfracc.errors import InvalidInputError

    axes: list[Any] = []
    for part in text.lower().replace(",", "x").replace("*", "x").split("x"):
        digits = part.strip().replace("_", "")
        try:
            axes.append(int(digits))
        except ValueError:
            try:
                axes.append(float(digits))
            except ValueError:
                raise InvalidInputError(
                    f"{text!r} is not a shape; write the size of each axis, such as 100000 or 32x1000"
                ) from None
    return as_shape(axes)


def _device(text: str) -> str | None:
    """Full name of a device, None for the host; raises an error if this machine does not have it."""
    from hpfracc.engine import hardware
    from hpfracc.errors import InvalidInputError

    name = text.strip().lower()
    if name in ("cpu", "host"):
        return None
    device = "cuda:0" if name in ("cuda", "gpu") else name
    gpus = [gpu.device for gpu in hardware.machine().gpus]
    if device not in gpus:
        raise InvalidInputError(f"device {text!r} was not found; use {' or '.join([*gpus, 'cpu'])}")
    return device
