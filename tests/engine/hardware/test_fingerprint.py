"""A fingerprint changes when an arm must be measured again, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpfracc.engine.hardware import CPU, GPU, Machine, fingerprint

CPU_HERE = CPU("Xeon", "Intel 6 143", "x86_64", 8, 4, (0, 1), "2 threads, 2 cores, 1 packages", None)
ONE_GPU = GPU("cuda:0", "NVIDIA H200", "570.1", "GPU-1", "0000:01:00.0", 10**11)
HERE = Machine("node1", "Linux 6", "3.11.7", CPU_HERE, 10**11, (ONE_GPU,), {"torch": "2.13.0"})
ARM = {"backend": "torch", "version": "2.13.0", "threads": 2, "source_hash": "abc"}


def of(device="cpu", on=HERE, **changes):
    return fingerprint(device=device, on=on, **{**ARM, **changes})


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize(
    "change", [{"backend": "jax"}, {"version": "2.14.0"}, {"threads": 1}, {"source_hash": "abd"}, {"device": "cuda:1"}]
)
def test_what_belongs_to_the_arm_changes_it(device, change):
    """Backend, version, threads, source and device each count."""
    assert of(**{"device": device, **change}) != of(device)


@pytest.mark.parametrize(
    "cpu",
    [
        replace(CPU_HERE, model="EPYC"),
        replace(CPU_HERE, family="Intel 6 207"),
        replace(CPU_HERE, allotment="1 threads, 1 cores, 1 packages"),
        replace(CPU_HERE, quota=1.0),
    ],
)
def test_another_processor_voids_the_host_s_arms_alone(cpu):
    """Model, numbers, what the affinity gives and the granted time change host arms; those on the GPU stay."""
    there = replace(HERE, cpu=cpu)
    assert of(on=there) != of()
    assert of("cuda:0", on=there) == of("cuda:0")


@pytest.mark.parametrize("gpu", [replace(ONE_GPU, name="NVIDIA A100"), replace(ONE_GPU, driver="580.1")])
def test_another_gpu_or_driver_voids_the_gpu_s_arms_alone(gpu):
    """Name and driver change arms on the GPU; host arms stay."""
    there = replace(HERE, gpus=(gpu,))
    assert of("cuda:0", on=there) != of("cuda:0")
    assert of(on=there) == of()


def test_like_machines_share():
    """Host name, identities, numbers of the cores and other libraries' versions do not count."""
    twin = replace(
        HERE,
        host="node2",
        cpu=replace(CPU_HERE, affinity=(4, 6)),
        gpus=(replace(ONE_GPU, uuid="GPU-2", bus="0000:41:00.0"),),
        libraries={"torch": "2.13.0", "jax": "0.10.2"},
    )
    assert of(on=twin) == of()
    assert of("cuda:0", on=twin) == of("cuda:0")


def test_equal_gpus_share_and_unlike_ones_never_do(monkeypatch):
    """CUDA numbers unlike GPUs in an order we cannot see, so their numbers count, unless the order is fixed."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    second = replace(ONE_GPU, device="cuda:1", uuid="GPU-2")
    alike = replace(HERE, gpus=(ONE_GPU, second))
    assert of("cuda:0", on=alike) == of("cuda:1", on=alike) == of("cuda:0")
    unlike = replace(HERE, gpus=(ONE_GPU, replace(second, name="NVIDIA T4")))
    turned = replace(HERE, gpus=(replace(ONE_GPU, name="NVIDIA T4"), second))
    assert of("cuda:0", on=unlike) != of("cuda:1", on=unlike)
    assert of("cuda:0", on=unlike) == of("cuda:0", on=turned)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert of("cuda:0", on=unlike) == of("cuda:0")
    assert of("cuda:0", on=unlike) == of("cuda:1", on=turned)
