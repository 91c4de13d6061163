"""The contract's class: its constructor, transforms, measured figures, and batches."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import memory
from hpfracc.errors import BatchItemError, InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.lattice import Lattice, UnifiedCatalyticLattice, create_batch
from tests.helpers.thinned import thinned

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.fixture
def lattice() -> UnifiedCatalyticLattice:
    return UnifiedCatalyticLattice(4, 10)


def test_contract_of_the_plain_grid(lattice):
    """The values of the contract, and the pair (path, milliseconds)."""
    assert isinstance(lattice, Lattice) and lattice.build_lattice() is lattice
    found = lattice.analyze_structure()
    assert found["nodes"] == 10**4 and found["edges"] == 4 * 10**3 * 9
    assert found["diameter"] == 36 and found["mean_degree"] == pytest.approx(7.2) and found["clustering"] == 0
    path, milliseconds = lattice.find_shortest_path((0, 0, 0, 0), (9, 9, 9, 9))
    assert len(path) == 37 and path[0] == (0, 0, 0, 0) and path[-1] == (9, 9, 9, 9) and 0 < milliseconds < 100
    assert lattice.get_adjacency_matrix().nnz == 2 * found["edges"]
    metrics = lattice.get_metrics()
    assert metrics["paths_found"] == 1 and metrics["last_path_ms"] == milliseconds
    assert metrics["memory_bytes"] == lattice.estimate_memory_usage()["total_bytes"] < 10_000


@pytest.mark.parametrize("arguments", [(0, 3), (3, 0), (1.5, 3), ("a", 3)])
def test_bad_sizes_are_refused(arguments):
    """Both sizes must be positive integers."""
    with pytest.raises(InvalidInputError):
        UnifiedCatalyticLattice(*arguments)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3)])
@pytest.mark.parametrize("dtype", INTEGERS)
@thinned(one_in=2)
def test_xor_is_its_own_inverse(lattice, dtype, shape):
    """dtype and shape are kept, with generated, given and scalar keys, also for empty and 0-d arrays."""
    data = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    hidden, key = lattice.xor_transform(data, return_key=True)
    assert isinstance(hidden, np.ndarray)
    assert hidden.dtype == data.dtype and hidden.shape == data.shape == key.shape
    assert lattice.last_key is key
    np.testing.assert_array_equal(lattice.xor_transform(hidden, key), data)
    np.testing.assert_array_equal(lattice.xor_transform(lattice.xor_transform(data, 1), 1), data)
    np.testing.assert_array_equal(hidden, data ^ key)
    kept = lattice.estimate_memory_usage()["kept_bytes"]
    assert kept >= data.itemsize


@pytest.mark.parametrize("data", [b"", b"lattice", bytearray(b"abc")])
def test_xor_of_bytes(lattice, data):
    """Bytes give bytes; a short key is repeated."""
    hidden = lattice.xor_transform(data)
    assert type(hidden) is bytes and lattice.xor_transform(hidden, lattice.last_key) == bytes(data)
    assert lattice.xor_transform(lattice.xor_transform(data, b"k1"), b"k1") == bytes(data)
    assert lattice.xor_transform(b"\x00\x00\x00", b"ab") == b"aba"


def test_xor_refuses_what_it_cannot_invert(lattice):
    """Floats, keys that do not fit, and empty keys raise errors."""
    with pytest.raises(UnsupportedDtypeError):
        lattice.xor_transform(np.ones(3))
    with pytest.raises(InvalidInputError, match="does not fit"):
        lattice.xor_transform(np.ones(3, np.int8), 300)
    with pytest.raises(UnsupportedDtypeError):
        lattice.xor_transform(np.ones(3, np.int8), np.ones(3))
    with pytest.raises(InvalidInputError, match="empty key"):
        lattice.xor_transform(b"a", b"")


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("xor", {}), ("scale", {"factor": -2.5}), ("normalize", {}), ("normalize", {"method": "standard"})],
)
@pytest.mark.parametrize("constant", [False, True])
def test_transformations_have_inverses(lattice, kind, parameters, constant):
    """Each transformation is inverted with its stored parameters, or with given ones."""
    data = np.full(7, 3) if constant else np.arange(-3, 4) ** 3
    if kind != "xor":
        data = data.astype(float)
    made = lattice.apply_transformation(data, kind, **parameters)
    if kind == "normalize":
        assert not constant or (made == 0).all()
        assert constant or parameters or (made.min() == 0 and made.max() == 1)
        assert constant or not parameters or made.std() == pytest.approx(1)
    np.testing.assert_allclose(lattice.invert_transformation(made, kind), data, atol=1e-12)
    kept = lattice.last_parameters[kind]
    np.testing.assert_allclose(
        UnifiedCatalyticLattice(1, 2).invert_transformation(made, kind, **kept), data, atol=1e-12
    )


def test_bad_transformations_are_refused(lattice):
    """Unknown kinds, unknown parameters and factors without inverse raise errors."""
    for kind, parameters in (("fold", {}), ("scale", {}), ("scale", {"factor": 0}), ("normalize", {"how": 1})):
        with pytest.raises(InvalidInputError):
            lattice.apply_transformation(np.ones(3), kind, **parameters)
    with pytest.raises(InvalidInputError, match="needs"):
        lattice.invert_transformation(np.ones(3), "scale")
    for kind, parameters in (
        ("xor", {"key": 1}),
        ("scale", {"factor": 2.0}),
        ("normalize", {"offset": 0.0, "span": 1.0}),
    ):
        with pytest.raises(InvalidInputError, match=f"{kind!r} has no parameter 'method'"):
            lattice.invert_transformation(np.ones(3, int), kind, **parameters, method="minmax")


def test_routing_is_obeyed():
    """Without smart routing NumPy is used; without GPUs no backend that could use one is chosen."""
    plain = UnifiedCatalyticLattice(2, 8, enable_smart_routing=False)
    plain.xor_transform(np.arange(10))
    assert hf.last_decision().backend == "numpy"
    plain.fractional(1.0).apply(np.ones((8, 8)))
    assert hf.last_decision().backend == "numpy"
    host = UnifiedCatalyticLattice(2, 8, enable_gpu=False)
    host.xor_transform(np.arange(10))
    assert hf.last_decision().backend in ("numpy", "numba")


def test_batches_are_stacked():
    """Seven arrays of one shape and one of another, in batches of four, take three launches."""
    batch = create_batch([UnifiedCatalyticLattice(2, 4) for _ in range(8)], max_batch_size=4)
    data = [np.arange(5) + i for i in range(7)] + [np.arange(3, dtype=np.uint8)]
    hidden = batch.batch_xor_transform(data)
    assert batch.get_stats()["xor_transform"]["launches"] == 3
    for one, secret, key in zip(data, hidden, batch.last_keys, strict=True):
        np.testing.assert_array_equal(secret ^ key, one)
    for one, back in zip(data, batch.batch_xor_transform(hidden, batch.last_keys), strict=True):
        np.testing.assert_array_equal(back, one)
        assert back.dtype == one.dtype
    a, b = np.random.default_rng(0).standard_normal((2, 5, 3, 3))
    np.testing.assert_allclose(batch.batch_matrix_operations(a, b), a @ b)
    for product, x, y in zip(batch.batch_matrix_operations(list(a), list(b)), a, b, strict=True):
        np.testing.assert_allclose(product, x @ y)
    np.testing.assert_allclose(batch.batch_element_wise(list(a), "2*x + 1")[3], 2 * a[3] + 1)
    np.testing.assert_allclose(batch.batch_element_wise(list(zip(a, b, strict=True)), "multiply")[4], a[4] * b[4])


def test_batches_fit_into_memory():
    """Under a memory limit batches are smaller than allowed; results keep their order and types."""
    batch = create_batch([UnifiedCatalyticLattice(2, 4, enable_smart_routing=False)], max_batch_size=1000)
    data = [np.full(20_000, i) for i in range(100)] + [b"bytes", np.array(7, np.int16)]
    whole = batch.batch_xor_transform(data, [5] * 101 + [3])
    assert batch.get_stats()["xor_transform"]["launches"] == 3
    with memory.limit("cpu", "12MiB"):
        pieces = batch.batch_xor_transform(data, [5] * 101 + [3])
    assert batch.get_stats()["xor_transform"]["launches"] > 3 + 5
    for one, found, again in zip(data[:100], whole, pieces, strict=False):
        np.testing.assert_array_equal(found, one ^ 5)
        np.testing.assert_array_equal(again, found)
    assert pieces[100] == bytes(b ^ 5 for b in b"bytes")
    assert (pieces[101].shape, pieces[101].dtype, int(pieces[101])) == ((), np.int16, 4)


def test_a_bad_item_is_named():
    """The error has the position of the item and the reason."""
    batch = create_batch([UnifiedCatalyticLattice(2, 4)])
    with pytest.raises(BatchItemError, match="item 1 of 2") as caught:
        batch.batch_matrix_operations([np.eye(2), np.eye(3)], [np.eye(2), np.eye(2)])
    assert caught.value.index == 1
    with pytest.raises(UnsupportedDtypeError):
        batch.batch_xor_transform([np.ones(3)])


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_batches_of_several_libraries(library):
    """Each result has the type of its item, also mixed with host arrays that NumPy computes."""
    module = pytest.importorskip(library)
    batch = create_batch([UnifiedCatalyticLattice(2, 4, enable_smart_routing=False)])
    make = module.tensor if library == "torch" else module.numpy.asarray
    data = [np.arange(3.0), make([1.0, 4.0]), make([9.0, 16.0])]
    found = batch.batch_element_wise(data, "sqrt")
    assert type(found[1]) is type(data[1])
    np.testing.assert_allclose(np.asarray(found[1]), [1, 2])
    np.testing.assert_allclose(np.asarray(found[2]), [3, 4])
    assert type(found[0]) is np.ndarray


def test_batch_paths(capsys):
    """Free lattices of one shape share a launch, others have their own; results use the form of the starts."""
    maze = Lattice((3, 3), obstacles=[(0, 1), (1, 1)])
    batch = create_batch([Lattice((3, 3)), maze, Lattice((3, 3))])
    paths = batch.batch_find_shortest_paths([0, (0, 0), 8], [8, (0, 2), 0])
    assert [len(path) for path in paths] == [5, 7, 5] and paths[1][1] == (1, 0)
    assert batch.get_stats()["find_shortest_paths"]["launches"] == 2
    assert len(create_batch([maze]).batch_find_shortest_paths([0, 3], [2, 2])) == 2
    with pytest.raises(ShapeError):
        batch.batch_find_shortest_paths([0], [1])
    assert batch.execute_parallel([lambda: 1, lambda: maze.distance(0, 2)]) == [1, 6.0]
    batch.print_stats()
    assert "find_shortest_paths" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [([],), ([3],), ([Lattice((2,))], 0)])
def test_bad_batches_are_refused(arguments):
    """No lattices, objects that are not lattices, and invalid batch sizes raise errors."""
    with pytest.raises(InvalidInputError):
        create_batch(*arguments)


def test_errors_use_the_position_in_the_batch():
    """Single arrays and pairs use separate engine calls; the error has the position among all items."""
    x = np.ones(3)
    with pytest.raises(BatchItemError, match=r"item 2 of 3: .*'y'") as caught:
        create_batch([Lattice((4,))]).batch_element_wise([(x, x), (x, x), x], "x*y")
    assert caught.value.index == 2 and isinstance(caught.value.__cause__, InvalidInputError)


@pytest.mark.parametrize("method", ["minmax", "standard"])
def test_constant_data_become_zero_whatever_their_mean_is_rounded_to(method):
    lattice = UnifiedCatalyticLattice(1, 2)
    for data in (np.full(1000, 0.1), np.full(7, 0.1, np.float32), np.full(7, 1e17 + 3e3)):
        assert not lattice.apply_transformation(data, "normalize", method=method).any()
        np.testing.assert_array_equal(lattice.invert_transformation(np.zeros_like(data), "normalize"), data)
    for data in (np.array([1.0, np.inf]), np.array([-1e308, 1e308])):
        with pytest.raises(InvalidInputError, match="no finite range"):
            lattice.apply_transformation(data, "normalize", method=method)
