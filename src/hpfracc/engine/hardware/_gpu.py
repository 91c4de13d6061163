"""GPUs, asked of the driver: through nvidia-ml-py, the driver's files, or ``nvidia-smi``."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hpfracc.engine.cgroups import read_text

__all__ = ["GPU", "read_gpus", "start_nvml"]

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_FIELDS = "pci.bus_id,uuid,name,driver_version,memory.total"


@dataclass(frozen=True, slots=True)
class GPU:
    """A GPU.

    Attributes
    ----------
    device : str
        Its name in this process, ``"cuda:0"`` being the first that ``CUDA_VISIBLE_DEVICES`` lets through. Unlike GPUs
        may be numbered otherwise by CUDA unless ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    name : str
        The maker's name for it.
    driver : str
        Version of the driver.
    uuid : str
        The GPU's own identity.
    bus : str
        Where it sits.
    memory : int or None
        Bytes on it; None where the driver's files, which do not say, are all there is.
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
    """The GPUs this process may use; none on a machine without a driver, whatever else goes wrong.

    Parameters
    ----------
    root : Path
        Where ``/proc`` and ``/dev`` are looked for.
    visible : str, optional
        What ``CUDA_VISIBLE_DEVICES`` says; read from the environment if not given.
    """
    ways: tuple[Callable[[], list[GPU]], ...] = (_from_nvml, lambda: _from_files(root), _from_command)
    gpus: list[GPU] = []
    for way in ways:
        try:
            gpus = way()
        except Exception:  # a driver half installed fails in its own ways; the next way may do
            continue
        if gpus:
            break
    gpus.sort(key=lambda gpu: gpu.bus)
    chosen = _visible(gpus, os.environ.get(_VARIABLE) if visible is None else visible)
    return tuple(replace(gpu, device=f"cuda:{number}") for number, gpu in enumerate(chosen))


_nvml_started_in: int | None = None


def start_nvml() -> Any:
    """The module of nvidia-ml-py, ready for use in this process; raises whatever it raises where it is not."""
    global _nvml_started_in
    if "pynvml" not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old package of the same module name warns when imported
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
    return value.decode() if isinstance(value, bytes) else value  # older versions give bytes


def _bus(text: str) -> str:
    """One spelling of a place: some sources write the domain with eight digits, some with four."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _from_files(root: Path) -> list[GPU]:
    base = root / "proc/driver/nvidia"
    version = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", read_text(base / "version") or "")
    gpus = []
    for folder in (base / "gpus").iterdir():
        pairs = (line.partition(":") for line in (read_text(folder / "information") or "").splitlines())
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        if not _has_node(root, facts.get("Device Minor")):
            continue
        name = facts.get("Model", "Unknown")
        if name == "Unknown":  # not started yet: the command below starts it
            return []
        bus = _bus(facts.get("Bus Location", folder.name))
        driver = version[1] if version else ""
        gpus.append(GPU("", name, driver, facts.get("GPU UUID", ""), bus, None))
    return gpus


def _has_node(root: Path, minor: str | None) -> bool:
    """Whether a GPU listed by the driver was given to this container; taken for granted where no node exists yet."""
    return minor is None or not (root / "dev/nvidiactl").exists() or (root / f"dev/nvidia{minor}").exists()


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
    """Those that ``CUDA_VISIBLE_DEVICES`` lets through, in its order: CUDA stops at the first entry it cannot use."""
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
        # A slice of a GPU is faster or slower than another: its identity in its name keeps them apart.
        return replace(gpus[0], name=f"NVIDIA slice {entry}", uuid=entry, bus="", memory=None)
    matches = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
