"""GPUs: three ways to ask for them, none of which may fail, and CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from hpfracc.engine import hardware
from hpfracc.engine.hardware import driver_free_bytes, read_gpus
from hpfracc.engine.hardware import gpu as gpu_module
from tests.helpers.fake_root import write_tree

VERSION = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs-builder)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)
"""
UUIDS = ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-89aa0000-0000-0000-0000-000000000001", "GPU-5", "GPU-6")


def information(name, uuid, bus, minor):
    return (
        f"Model: \t\t {name}\nIRQ:   \t\t 120\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
    )


def driver_files(count=2, name="NVIDIA H200"):
    files = {"proc/driver/nvidia/version": VERSION}
    for number in range(count):
        bus = f"0000:{16 * number + 1:02x}:00.0"
        text = information(name, UUIDS[number], bus, number)
        files[f"proc/driver/nvidia/gpus/{bus}/information"] = text
    return files


class FakeNvml:
    """nvidia-ml-py as far as it is used; its GPUs are listed out of order, in bytes as old versions do."""

    def __init__(self, names=("NVIDIA B", "NVIDIA A"), fails=False):
        self.names, self.fails, self.started = names, fails, 0

    def nvmlInit(self):  # noqa: N802
        if self.fails:
            raise RuntimeError("Driver Not Loaded")
        self.started += 1

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return b"570.133.20"

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, number):  # noqa: N802
        return number

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return UUIDS.index(uuid)

    def nvmlDeviceGetName(self, number):  # noqa: N802
        return self.names[number].encode()

    def nvmlDeviceGetUUID(self, number):  # noqa: N802
        return UUIDS[number]

    def nvmlDeviceGetPciInfo(self, number):  # noqa: N802
        return SimpleNamespace(busId=f"00000000:{0x80 - number:02X}:00.0".encode())

    def nvmlDeviceGetMemoryInfo(self, number):  # noqa: N802
        return SimpleNamespace(total=1000 + number, free=500 + number, used=500)


@pytest.fixture(autouse=True)
def no_driver(monkeypatch, tmp_path_factory):
    """Begin on a machine without nvidia-ml-py, nvidia-smi and CUDA_VISIBLE_DEVICES."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpu_module, "_nvml_started_in", None)
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("bin")))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    hardware.reset()
    yield
    hardware.reset()


def put_command(text):
    """An ``nvidia-smi`` that does ``text``."""
    path = os.path.join(os.environ["PATH"], "nvidia-smi")
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)


def test_no_driver_no_gpus(tmp_path):
    """A machine without any of the three ways has no GPUs, and no error."""
    assert read_gpus(tmp_path) == ()


def test_from_the_driver_s_files(tmp_path):
    """Names, identities and the driver's version, in the order of the bus; the memory is not known."""
    first, second = read_gpus(write_tree(tmp_path, driver_files()))
    assert (first.device, first.name, first.driver) == ("cuda:0", "NVIDIA H200", "570.133.20")
    assert (first.uuid, first.bus, first.memory) == (UUIDS[0], "0000:01:00.0", None)
    assert (second.device, second.uuid) == ("cuda:1", UUIDS[1])


def test_a_gpu_not_given_to_the_container_is_not_there(tmp_path):
    """The driver's files may list GPUs of the host whose device nodes this container lacks."""
    root = write_tree(tmp_path, {**driver_files(), "dev/nvidiactl": "", "dev/nvidia1": ""})
    assert [gpu.uuid for gpu in read_gpus(root)] == [UUIDS[1]]


def test_from_the_command(tmp_path):
    """nvidia-smi is asked where the driver's files say nothing, with memory in MiB."""
    put_command('echo "00000000:19:00.0, GPU-1, NVIDIA H200, 570.133.20, 143771"')
    (gpu,) = read_gpus(tmp_path)
    assert (gpu.name, gpu.driver, gpu.uuid, gpu.bus) == ("NVIDIA H200", "570.133.20", "GPU-1", "0000:19:00.0")
    assert gpu.memory == 143771 * 2**20


def test_from_nvml(monkeypatch, tmp_path):
    """nvidia-ml-py comes first; GPUs stand in the order of the bus, however it lists them."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    first, second = read_gpus(write_tree(tmp_path, driver_files()))
    assert (first.name, first.bus, first.memory) == ("NVIDIA A", "0000:7f:00.0", 1001)
    assert (second.name, second.device, second.driver) == ("NVIDIA B", "cuda:1", "570.133.20")


def test_nvml_without_a_driver_is_passed_over(monkeypatch, tmp_path, caplog):
    """An installed nvidia-ml-py that cannot start leaves the other ways; the log says why it was passed over."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fails=True))
    with caplog.at_level("DEBUG", "hpfracc.engine"):
        assert len(read_gpus(write_tree(tmp_path, driver_files()))) == 2
    assert "could not be listed by nvidia-ml-py" in caplog.text
    assert "Driver Not Loaded" in caplog.text


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1", [1]),
        ("", []),
        ("-1", []),
        ("0,2,-1,1", [0, 2]),
        ("0,7,1", [0]),
        ("0,0", []),
        (" 1 , 2 ", [1, 2]),
        ("GPU-8932,GPU-5", [0, 2]),
        ("GPU-89", []),
        ("GPU-none,0", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices(tmp_path, monkeypatch, visible, expected):
    """CUDA's own rules: an order, unique prefixes, and an end at the first entry that names no GPU."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = read_gpus(write_tree(tmp_path, driver_files(3)))
    assert [gpu.uuid for gpu in gpus] == [UUIDS[number] for number in expected]
    assert [gpu.device for gpu in gpus] == [f"cuda:{number}" for number in range(len(expected))]


def test_slices_of_a_gpu_are_told_apart(tmp_path):
    """Two slices may differ in size, so each has a name of its own."""
    first, second = read_gpus(write_tree(tmp_path, driver_files(1)), "MIG-aaa,MIG-bbb")
    assert first.name != second.name
    assert (first.driver, first.memory) == ("570.133.20", None)


def test_free_memory_by_the_driver(monkeypatch):
    """nvidia-ml-py counts all processes; without it, or for a GPU that is not there, nothing is known."""
    assert driver_free_bytes("cuda:0") is None
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    hardware.reset()
    assert driver_free_bytes("cuda:0") == 501
    assert driver_free_bytes("cuda:1") == 500
    assert driver_free_bytes("cuda:2") is None
    assert nvml.started == 1
