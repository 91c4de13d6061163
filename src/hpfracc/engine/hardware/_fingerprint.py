"""Fingerprints: hashes of everything that the speed of an arm depends on. Times are valid only if they match."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from hpfracc.engine.hardware._machine import Machine, machine

__all__ = ["fingerprint", "source_hash"]


def fingerprint(
    backend: str, device: str, version: str, threads: int, source_hash: str, on: Machine | None = None
) -> str:
    """Sixteen hexadecimal digits that change if and only if an arm must be measured again.

    Upgrading a library invalidates only its own arms; a new driver only those on the GPU.

    Parameters
    ----------
    backend : str
        Name of the backend.
    device : str
        ``"cpu"``, or a GPU's name such as ``"cuda:0"``.
    version : str
        Version of the backend's library.
    threads : int
        Number of threads of the arm.
    source_hash : str
        Hash of the kernel's source; see :func:`source_hash`.
    on : Machine, optional
        The machine; by default this one.
    """
    where = on or machine()
    hardware = _processor(where) if device == "cpu" else _gpu(where, device)
    return _digest(json.dumps([backend, hardware, version, threads, source_hash]).encode())


def source_hash(source: str | bytes | os.PathLike[str] | Callable[..., Any]) -> str:
    """Sixteen hexadecimal digits for a kernel's source.

    Parameters
    ----------
    source : path, bytes, str or callable
        The file of a path; text or bytes; or the source of a function, or its bytecode if there is no source
        (interactive input).
    """
    if isinstance(source, os.PathLike):
        return _digest(Path(source).read_bytes())
    if isinstance(source, str):
        return _digest(source.encode())
    if isinstance(source, bytes):
        return _digest(source)
    import inspect

    try:
        return _digest(inspect.getsource(source).encode())
    except (OSError, TypeError):
        code = getattr(source, "__code__", None)
        name = getattr(source, "__qualname__", type(source).__qualname__)
        return _digest(repr(_shape_of(code) if code is not None else name).encode())


def _processor(where: Machine) -> list[Any]:
    cpu = where.cpu
    return [cpu.model, cpu.family, cpu.architecture, cpu.allotment, cpu.quota]


def _gpu(where: Machine, device: str) -> list[Any]:
    gpu = where.gpu(device)
    if gpu is None:
        return [device, "unknown"]
    names = [other.name for other in where.gpus]
    if len(set(names)) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        # CUDA then numbers different models by speed, which only CUDA knows: the number and all names identify one.
        return [device, sorted(names), gpu.driver]
    return [gpu.name, gpu.driver]


def _shape_of(code: CodeType) -> list[Any]:
    """The code of a function without file names and line numbers, which change when it does not."""
    constants = [_shape_of(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.blake2b(data, digest_size=8).hexdigest()
