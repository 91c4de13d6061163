"""JAX arrays over several devices: eight virtual ones, in a process of their own."""

from __future__ import annotations

import pytest

from tests.helpers.processes import run_python

CHILD = """
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import hpfracc as hf

jax.config.update("jax_enable_x64", True)
mesh = Mesh(np.array(jax.devices()), ("rows",))
x = np.random.default_rng(0).standard_normal((16, 2048))
divided = jax.device_put(x, NamedSharding(mesh, P("rows", None)))
half = lambda f: hf.caputo(f, step=0.1, alpha=0.5)
right = half(x)
for _ in range(2):  # the second call is a cached one
    found = half(divided)
    assert found.sharding.spec == P("rows", None), found.sharding
    assert len(found.devices()) == 8
    assert np.allclose(np.asarray(found), right, rtol=1e-11, atol=1e-11)
turned = hf.caputo(jax.device_put(x.T.copy(), NamedSharding(mesh, P(None, "rows"))), step=0.1, alpha=0.5, axis=0)
assert turned.sharding.spec == P(None, "rows") and np.allclose(np.asarray(turned).T, right, rtol=1e-11, atol=1e-11)
whole = jax.jit(hf.distributed.per_shard(half, mesh, P("rows", None))).lower(divided).compile().as_text()
print("all-gather" in whole, "all-to-all" in whole, "fft" in whole)
parts = []
doubled = hf.distributed.per_device(lambda rows: (parts.append(rows.devices()), 2.0 * rows)[1], jax.numpy.asarray(x))
assert len(set().union(*parts)) == 8 and np.array_equal(np.asarray(doubled), 2.0 * x)
for call in (
    lambda: half(jax.device_put(x, NamedSharding(mesh, P(None, "rows")))),
    lambda: hf.distributed.per_shard(half, mesh, P(None, "rows")),
    lambda: hf.caputo(divided, step=0.1, alpha=0.5, full_output=True),
):
    try:
        call()
    except hf.errors.InvalidInputError as error:
        print(str(error)[:40])
"""


@pytest.mark.slow
def test_rows_on_eight_devices_stay_there():
    """The sharding is kept, no rows are gathered, and a divided time axis is refused."""
    pytest.importorskip("jax")
    out = run_python(
        CHILD, timeout=400, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    ).splitlines()
    assert out[0].split()[:2] == ["False", "False"]
    assert [line[:6] for line in out[1:]] == ["axis -", "axis -", "full_o"]
