"""Saying why: explanations without running, decisions afterwards, logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.engine.execution.decision_log import composite
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.selection.costs import CostModel, Option
from hpfracc.engine.selection.policy import Chooser
from hpfracc.errors import InvalidInputError, UnknownOperationError, UnsupportedDtypeError

W, X = np.ones(64), np.arange(64.0)


def test_explaining_runs_nothing_and_remembers_nothing() -> None:
    """Calls are not counted, and the last decision stays what it was."""
    hf.matmul(np.eye(2), np.eye(2))
    before = hf.causal_convolution.calls()
    explanation = hf.explain(hf.causal_convolution, W, X)
    assert explanation.decision.operation == "causal_convolution"
    assert hf.causal_convolution.calls() == before
    last = hf.last_decision()
    assert last is not None and last.operation == "matmul"


def test_explanation_and_call_agree() -> None:
    """What is explained is what is done."""
    with hf.config(deterministic=True):
        predicted = hf.explain(hf.causal_convolution, W, X).decision.arm
        hf.causal_convolution(W, X)
        last = hf.last_decision()
        assert last is not None and last.arm == predicted


#: Different calls: small and large, one engine call and several, of operations and operators.
WORKLOADS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "convolution": lambda: (hf.causal_convolution, W, X),
    "a kernel of 1000": lambda: (hf.causal_convolution, np.ones(1000), np.ones(1000)),
    "a kernel of 100000": lambda: (hf.causal_convolution, np.ones(100_000), np.ones(100_000)),
    "rows": lambda: (hf.causal_convolution, W, np.ones((20, 64))),
    "single precision": lambda: (hf.causal_convolution, np.float32(W), np.float32(X)),
    "fft": lambda: (hf.fft, X),
    "fft of 2**17": lambda: (hf.fft, np.ones(2**17)),
    "matmul": lambda: (hf.matmul, np.eye(50), np.eye(50)),
    "matmul of 600": lambda: (hf.matmul, np.ones((600, 600)), np.ones((600, 600))),
    "sums": lambda: (hf.reduction, np.ones((100, 1000))),
    "elementwise": lambda: (partial(hf.elementwise, "2*x + sin(x)", x=X),),
    "elementwise of 10**6": lambda: (partial(hf.elementwise, "x*x + exp(x)", x=np.ones(10**6)),),
    "recurrence": lambda: (hf.exponential_recurrence, [1.0, 2.0], [1.0, 1.0], 0.1, np.ones(10_000)),
    "caputo": lambda: (hf.caputo, X, X, 0.4),
    "caputo of 5000": lambda: (partial(hf.caputo, step=0.1, alpha=0.4), np.ones(5000)),
    "riemann_liouville": lambda: (partial(hf.riemann_liouville, step=0.1, alpha=0.6), np.ones((8, 300))),
    "grunwald_letnikov": lambda: (partial(hf.grunwald_letnikov, step=0.1, alpha=0.6), np.ones((3, 30_000))),
    "difference": lambda: (hf.fractional_difference, np.ones(20_000), 0.3),
    "riesz": lambda: (partial(hf.riesz, step=0.1, alpha=0.5), np.ones(500)),
    "transform": lambda: (hf.frft, np.ones(256), 0.7),
}


@pytest.mark.parametrize("calls", [0, 1, 9], ids="after {} calls".format)
def test_what_is_explained_is_what_the_next_call_decides(calls: int) -> None:
    """The same arm for the same reason, exploring or not, at the first call and later.

    What a call explores is decided by the time spent so far: the second part of a call, after its first part ran.
    """
    for name, make in WORKLOADS.items():
        function, *operands = make()
        for _ in range(calls):
            function(*operands)
        told = hf.explain(function, *operands)
        function(*operands)
        last = hf.last_decision()
        assert last is not None
        assert told.decisions[0] == last[0], name
        assert [part.operation for part in told.decisions] == [part.operation for part in last], name


def test_every_form_of_question() -> None:
    """An operation with operands, a name with a shape, a workload, a function."""
    pytest.importorskip("torch")

    def job(scale: float) -> Any:
        return hf.fft(hf.causal_convolution(W, scale * X))

    assert hf.explain("fft", shape=100, dtype="float32").decision.dtype == "float32"
    assert hf.explain(hf.WorkloadCharacteristics("matmul", 100, (10, 10))).decision.operation == "matmul"
    both = hf.explain(job, 2.0)
    assert [decision.operation for decision in both.decisions] == ["causal_convolution", "fft"]
    assert len(both.to_dict()["decisions"]) == 2
    gradient = hf.explain("causal_convolution", shape=(1000,), gradient=True).decision
    assert gradient.backend in ("torch", "jax")
    asked = hf.explain("causal_convolution", shape=(1000,), backend="numpy").decision
    assert asked.backend == "numpy" and asked.wish == "the backend= argument"


def test_to_dict_is_plain_json() -> None:
    """No nan, no NumPy numbers: it goes through JSON and back."""
    found = hf.explain(hf.causal_convolution, W, X).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("question", "error", "words"),
    [
        (lambda: hf.explain("causal_convolutoin", shape=3), UnknownOperationError, "did you mean 'causal_convolution'"),
        (lambda: hf.explain("fft"), InvalidInputError, "needs the shape"),
        (lambda: hf.explain("fft", shape=(-5,)), InvalidInputError, "an integer at least 0"),
        (lambda: hf.explain("fft", shape=(float("nan"),)), InvalidInputError, "nan"),
        (lambda: hf.explain("fft", shape=(5,), dtype="object"), UnsupportedDtypeError, "object"),
        (lambda: hf.explain("fft", shape=(5,), dtype="floaty"), UnsupportedDtypeError, "floaty"),
        (lambda: hf.explain(3), InvalidInputError, "cannot explain 3"),
        (lambda: hf.explain(lambda: None), InvalidInputError, "no engine call"),
    ],
)
def test_bad_questions(question: Any, error: type[Exception], words: str) -> None:
    """Each names the value and the remedy."""
    with pytest.raises(error, match=words):
        question()


def test_a_composite_call_has_parts() -> None:
    """A composite call's decisions come together, nested ones too; one without engine calls has none."""
    with composite() as decisions:
        hf.matmul(np.eye(2), np.eye(2))
        with composite():
            hf.fft(X)
    last = hf.last_decision()
    assert last is not None and last.operation == "fft"
    assert [d.operation for d in last.parts] == [d.operation for d in last] == ["matmul", "fft"]
    assert (len(last), last[0].operation, last[1].parts) == (2, "matmul", ())
    assert [part["operation"] for part in last.to_dict()["parts"]] == ["matmul", "fft"]
    assert (len(last[0]), last[0][0], "parts" in last[0].to_dict()) == (1, last[0], False)
    assert [d.operation for d in decisions] == ["matmul", "fft"]
    with composite():
        pass
    assert hf.last_decision() is None


def test_names_are_escaped_in_html() -> None:
    """What ends up in a notebook cannot break out of it."""
    page = hf.explain(hf.causal_convolution, W, X)._repr_html_()
    assert "<script" not in page and "&lt;" not in page.split("<table>")[0]


def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    """Decisions at DEBUG under the ``hpfracc`` logger, nothing above it in a quiet run, no prints."""
    with caplog.at_level(logging.DEBUG, "hpfracc"):
        hf.causal_convolution(W[:50], X[:50])
    assert any(r.levelno == logging.DEBUG and "causal_convolution" in r.getMessage() for r in caplog.records)
    assert all(record.levelno == logging.DEBUG for record in caplog.records)


@pytest.mark.parametrize(("compiled", "words"), [(0.0, "is predicted fastest"), (5.0, "is taken")])
def test_the_sentence_agrees_with_the_table(compiled: float, words: str) -> None:
    """Only the first row is called fastest; where another is taken, the sentence says what the first one costs once."""
    costs = CostModel()
    costs.add_knot("a", 1.0, 7e-3)
    costs.add_knot("b", 1.0, 6e-3)
    costs.compiling.quote("b", "compiling b", compiled)
    options = [Option("a", "a", 1.0), Option("b", "b", 1.0, compile_key="compiling b")]
    choice = Chooser(costs).choose("slot", "bucket", options, frozen=True)
    assert words in choice.reason
    if compiled:
        assert choice.option.arm == "a" and "b is predicted to take 6 ms, but its first call 5 s more" in choice.reason
    else:
        assert choice.option.arm == "b"


def test_an_unknown_operation_is_named_in_whole_sentences() -> None:
    """With and without a name that comes close."""
    with pytest.raises(UnknownOperationError, match="unknown operation 'zzzz'; there are: bitwise_xor"):
        get_operation("zzzz")
    with pytest.raises(UnknownOperationError, match=r"'fftt'; did you mean 'fft'\? There are: bitwise_xor"):
        get_operation("fftt")


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:x", 1])
def test_devices_that_no_operands_live_on(device):
    """An unknown device is refused by its name, with those there are."""
    with pytest.raises(InvalidInputError, match=f"on={device!r}.*'cpu', 'cuda'"):
        hf.explain("fft", shape=(10,), on=device)
