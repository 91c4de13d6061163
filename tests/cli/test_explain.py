"""``hpfracc explain`` shows the decision for a described call; invalid arguments are typed errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hpfracc as hf
from hpfracc.cli import main
from hpfracc.cli.explain import parse_shape
from hpfracc.errors import InvalidInputError


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["explain", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_same_decision_as_the_library(capsys: pytest.CaptureFixture[str]):
    """The command and ``hf.explain`` return the same decision."""
    found = explain(capsys, "--op", "causal_convolution", "--shape", "100000")
    assert found == json.loads(json.dumps(hf.explain("causal_convolution", shape=(100_000,)).to_dict()))
    assert found["shape"] == [100_000]
    assert found["reason"]


def test_rows_dtype_and_backend_count(capsys: pytest.CaptureFixture[str]):
    """32x1000 is 32 rows of 1000; dtype and backend are passed on."""
    found = explain(
        capsys, "--op", "causal_convolution", "--shape", "32x1000", "--dtype", "float32", "--backend", "numpy"
    )
    assert (found["shape"], found["dtype"], found["backend"]) == ([32, 1000], "float32", "numpy")
    assert found["wish"] == "the backend= argument"


def test_a_gradient_leaves_only_kernels_that_have_one(capsys: pytest.CaptureFixture[str]):
    """NumPy's arms are refused, because their kernels cannot be differentiated."""
    pytest.importorskip("torch")
    found = explain(capsys, "--op", "causal_convolution", "--shape", "1000", "--gradient")
    refused = {row["arm"]: row["refused"] for row in found["candidates"]}
    assert refused["numpy:fft@cpu"] == "its kernel cannot be differentiated"
    assert found["backend"] in ("torch", "jax")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--op", "causal_convolutoin", "--shape", "100"], "did you mean 'causal_convolution'"),
        (["--op", "fft", "--shape", "-5"], "shape[0]=-5: give an integer at least 0"),
        (["--op", "fft", "--shape", "3x-5"], "shape[1]=-5: give an integer at least 0"),
        (["--op", "fft", "--shape", "nan"], "shape[0]=nan is not an integer"),
        (["--op", "fft", "--shape", "1e400"], "shape[0]=inf is not an integer"),
        (["--op", "fft", "--shape", "10x"], "'10x' is not a shape"),
        (["--op", "fft", "--shape", ""], "'' is not a shape"),
        (["--op", "fft", "--shape", "12.5"], "shape[0]=12.5 is not an integer"),
        (["--op", "fft", "--shape", "10", "--dtype", "object"], "'object'"),
        (["--op", "fft", "--shape", "10", "--dtype", "float65"], "'float65' is not a dtype"),
        (["--op", "fft", "--shape", "10", "--backend", "fortran"], "unknown backend 'fortran'"),
        (["--op", "fft", "--shape", "10", "--on", "cuda:99"], "device 'cuda:99' was not found"),
        (["--op", "bitwise_xor", "--shape", "10", "--dtype", "float64"], "float64"),
    ],
)
def test_bad_input_is_a_typed_error(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    """The exit status is 2, the error is one line on stderr, and stdout is empty."""
    assert main(["explain", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("100000", (100_000,)),
        ("32x1000", (32, 1000)),
        ("1e6", (1_000_000,)),
        ("4, 5", (4, 5)),
        ("1_000X2", (1000, 2)),
        ("0", (0,)),
    ],
)
def test_shapes_as_people_write_them(text: str, shape: tuple[int, ...]):
    """Axes are separated by x; powers of ten, underscores and empty axes are accepted."""
    assert parse_shape(text) == shape


def test_a_shape_of_letters_is_refused():
    """The error shows the whole text."""
    with pytest.raises(InvalidInputError, match="'threextwo' is not a shape"):
        parse_shape("threextwo")


def test_operators_by_name(capsys: pytest.CaptureFixture[str]):
    """Operators take a name and an order; an order for an operation is an error."""
    found = explain(capsys, "--op", "caputo", "--shape", "1000", "--alpha", "0.3")
    assert found["operation"] == "causal_convolution" and found["shape"] == [1000]
    assert main(["explain", "--op", "fft", "--shape", "10", "--alpha", "0.3"]) == 2
    assert "--alpha is the order of an operator" in capsys.readouterr().err
