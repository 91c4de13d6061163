"""The reference is complete, in its generated parts and in those written by hand."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import hpfracc
from hpfracc import errors
from hpfracc._environment import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.source import REPOSITORY, SOURCE

DOCS = REPOSITORY / "docs"
PUBLIC = [name for name in PRIMITIVES if name in hpfracc.__all__]


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "_generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_part_that_a_page_asks_for_exists(generate: ModuleType):
    """Every part in a page can be generated, and every generated part is in a page."""
    used = {
        name
        for path in DOCS.rglob("*.md")
        for name in re.findall(r"^<!-- generated: (\w+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert used == set(generate.GENERATED)


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_every_part_in_the_repository_is_up_to_date(generate: ModuleType, path: Path):
    """The pages in the repository are those that `python docs/_generate.py` writes."""
    text = path.read_text(encoding="utf-8")
    assert generate.fill(text) == text


@pytest.mark.parametrize("name", PUBLIC)
def test_every_kernel_has_a_row(generate: ModuleType, name: str):
    """Each algorithm that an adapter declares is in the section of its operation."""
    section = generate.operations().partition(f"## {name}\n")[2].partition("\n## ")[0]
    for backend in BACKENDS:
        for spec in registry.declaration(backend).specs.get(name, ()):
            assert f"| {backend} | `{spec.algorithm}`" in section


def test_signatures_are_those_of_the_contract(generate: ModuleType):
    """Operands are positional, parameters are keywords with defaults, and ``weights_key`` appears where accepted."""
    text = generate.operations()
    assert (
        "hpfracc.engine.causal_convolution(weights, signal, starts=None, *, differences=False, starts_from=0, " in text
    )
    assert "starts_from=0, backend=None, weights_key=None)\n" in text
    assert "hpfracc.engine.fft(x, *, kind='fft', n=None, axis=-1, norm='backward', backend=None)\n" in text
    assert "autofunction:: hpfracc.engine.elementwise" in text


def test_every_command_has_a_section(generate: ModuleType):
    """Commands and their actions are listed with their options."""
    text = generate.commands()
    assert re.findall(r"^#+ hpfracc (.+)$", text, re.MULTILINE)
    for heading in (
        "## hpfracc info",
        "## hpfracc calibrate",
        "### hpfracc wisdom export",
        "`--thorough`",
        "`--op NAME`",
    ):
        assert heading in text


def test_every_environment_variable_is_described():
    """Each ``HPFRACC_*`` name in the source is on the page, including those of every backend."""
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    names = set(re.findall(r"HPFRACC_[A-Z_]*[A-Z]", source)) - {"HPFRACC_FORCE", "HPFRACC_DISABLE"}
    names |= {f"HPFRACC_{verb}_{backend.upper()}" for verb in ("FORCE", "DISABLE") for backend in BACKENDS}
    text = page("reference/environment")
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_every_error_is_described():
    """Each class of ``hpfracc.errors`` has a row, except the two base classes."""
    text = page("reference/errors")
    named = {name for name in errors.__all__ if f"| `{name}` |" in text}
    assert set(errors.__all__) - named == {"HpfraccError", "BackendError"}


def test_every_public_name_is_in_the_reference(generate: ModuleType):
    """Each name of ``hpfracc.__all__`` is documented: by hand, as an operation, or in its package's section."""
    text = page("reference/api") + generate.names() + generate.packages() + page("reference/errors")
    for name in hpfracc.__all__:
        assert name == "__version__" or f"hpfracc.{name}" in text or f"hf.{name}`" in text


def test_every_operator_has_a_section_with_its_methods_and_a_drawing(generate: ModuleType):
    """Each section has the formula, the drawing, and a row for each method."""
    from hpfracc.operators.core.registry import all_operators

    text = generate.draw(page("reference/operators"))
    kinds = all_operators()
    assert text.count("<svg ") == len(kinds)
    for kind in kinds:
        assert kind.formula in text
        assert all(f"| `{name}` |" in text for name in kind.rules)
    assert "| `l1-2` | uniform | 2.5 at alpha = 0.5, 2.5 at alpha = 1.5 | O(n log n) | yes |" in text
