"""GPUs, as the driver lists them (through nvidia-ml-py, its files, or ``nvidia-smi``), and their memory."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hpfracc.engine.cgroups import read_text

logger = logging.getLogger("hpfracc.engine")

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_FIELDS = "pci.bus_id,uuid,name,driver_version,memory.total"


@dataclass(frozen=True, slots=True)
class GPU:
    """A GPU.

    Attributes
    ----------
    device : str
        Its name in this process; ``"cuda:0"`` is the first that ``CUDA_VISIBLE_DEVICES`` allows. CUDA may number
        different models in another order unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    name : str
        The vendor's name.
    driver : str
        Version of the driver.
    uuid : str
        Its unique id.
    bus : str
        Its PCI bus id.
    memory : int or None
        Bytes of memory; None if only the driver's files are available.
    """

    device: str
    name: str
    driver: str
    uuid: str
    bus: str
    memory: int | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def read_gpus(root: Path = Path("/"), visible: str | None = None) -> tuple[GPU, ...]:
    """The GPUs this process may use; none without a driver. Never raises.

    Parameters
    ----------
    root : Path
        Root of ``/proc`` and ``/dev``.
    visible : str, optional
        Value of ``CUDA_VISIBLE_DEVICES``; by default from the environment.
    """
    ways: dict[str, Callable[[], list[GPU]]] = {
        "nvidia-ml-py": _from_nvml,
        "the driver's files": lambda: _from_files(root),
        "nvidia-smi": _from_command,
    }
    gpus: list[GPU] = []
    for name, way in ways.items():
        try:
            gpus = way()
        except Exception:  # a broken driver may raise anything; try the next source
            logger.debug("GPUs could not be listed by %s", name, exc_info=True)
            continue
        if gpus:
            break
    gpus.sort(key=lambda gpu: gpu.bus)
    chosen = _visible(gpus, os.environ.get(_VARIABLE) if visible is None else visible)
    return tuple(replace(gpu, device=f"cuda:{number}") for number, gpu in enumerate(chosen))


_nvml_started_in: int | None = None


def start_nvml() -> Any:
    """The module of nvidia-ml-py, initialised in this process; raises its own errors if that fails."""
    global _nvml_started_in
    if "pynvml" not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old package of the same name warns when imported
            importlib.import_module("pynvml")
    import pynvml

    if _nvml_started_in != os.getpid():  # it does not outlive a fork
        pynvml.nvmlInit()
        _nvml_started_in = os.getpid()
    return pynvml


def _from_nvml() -> list[GPU]:
    nvml = start_nvml()
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    gpus = []
    for number in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        gpus.append(
            GPU(
                device="",
                name=_text(nvml.nvmlDeviceGetName(handle)),
                driver=driver,
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                bus=_bus(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
                memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
        )
    return gpus


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older versions return bytes


def _bus(text: str) -> str:
    """A normalised bus id: some sources write the domain with eight digits, some with four."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _from_files(root: Path) -> list[GPU]:
    base = root / "proc/driver/nvidia"
    version = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", read_text(base / "version") or "")
    gpus = []
    for folder in (base / "gpus").iterdir():
        pairs = (line.partition(":") for line in (read_text(folder / "information") or "").splitlines())
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        minor, nodes = facts.get("Device Minor"), root / "dev"
        # A GPU of the host may lack a node in this container, unless no node exists yet.
        if minor is not None and (nodes / "nvidiactl").exists() and not (nodes / f"nvidia{minor}").exists():
            continue
        name = facts.get("Model", "Unknown")
        if name == "Unknown":  # not initialised yet; nvidia-smi initialises it
            return []
        bus = _bus(facts.get("Bus Location", folder.name))
        driver = version[1] if version else ""
        gpus.append(GPU("", name, driver, facts.get("GPU UUID", ""), bus, None))
    return gpus


def _from_command() -> list[GPU]:
    import shutil
    import subprocess

    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    gpus = []
    for line in output.splitlines():
        bus, uuid, name, driver, megabytes = (part.strip() for part in line.split(","))
        memory = int(megabytes) * 2**20 if megabytes.isdigit() else None
        gpus.append(GPU("", name, driver, uuid, _bus(bus), memory))
    return gpus


def _visible(gpus: Sequence[GPU], text: str | None) -> list[GPU]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` allows, in its order. CUDA stops at the first invalid entry."""
    if text is None:
        return list(gpus)
    chosen: list[GPU] = []
    for entry in text.split(","):
        gpu = _named(gpus, entry.strip())
        if gpu is None:
            break
        if gpu in chosen:  # CUDA then shows none at all
            return []
        chosen.append(gpu)
    return chosen


def _named(gpus: Sequence[GPU], entry: str) -> GPU | None:
    number = re.match(r"\d+", entry)
    if number:
        index = int(number[0])
        return gpus[index] if index < len(gpus) else None
    if entry.startswith("MIG-") and gpus:
        # Slices of a GPU differ in speed, so the name includes the id.
        return replace(gpus[0], name=f"NVIDIA slice {entry}", uuid=entry, bus="", memory=None)
    matches = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


@dataclass(frozen=True, slots=True)
class DriverMemory:
    """A GPU's memory in bytes over all processes, as the driver reports: in total, free and used."""

    total: int
    free: int
    used: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def read_driver_memory(gpu: GPU) -> DriverMemory | None:
    """The memory of a GPU as the driver counts it, over all processes; None without nvidia-ml-py or a driver."""
    if not gpu.uuid:
        return None
    try:
        nvml = start_nvml()
        memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
        return DriverMemory(int(memory.total), int(memory.free), int(memory.used))
    except Exception:  # a driver may raise anything; the memory is then unknown
        return None
