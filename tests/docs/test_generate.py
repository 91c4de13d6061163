"""The reference is complete, in its generated parts and in those written by hand."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import hpfracc
from hpfracc import errors
from hpfracc._config import BACKENDS
from hpfracc.engine.backends import registry
from hpfracc.engine.primitives import PRIMITIVES
from tests.helpers.source import REPOSITORY, SOURCE

DOCS = REPOSITORY / "docs"
#: The pages of the repository; those deeper down are written by a build.
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("*/*.md")])
PUBLIC = [name for name in PRIMITIVES if name in hpfracc.__all__]


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return load("_generate")


def test_every_part_that_a_page_asks_for_exists(generate: ModuleType):
    """Every part in a page can be generated, and every generated part is in a page."""
    used = {
        name
        for path in PAGES
        for name in re.findall(r"^<!-- generated: (\w+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert used == set(generate.GENERATED)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
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
        "`--energy`",
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


#: Modules whose public names the reference documents, in addition to those of ``hpfracc`` itself.
DOCUMENTED = (
    "hpfracc.algorithms.gpu_optimized_methods",
    "hpfracc.analytics",
    "hpfracc.batch",
    "hpfracc.control",
    "hpfracc.distributed",
    "hpfracc.engine",
    "hpfracc.lattice",
    "hpfracc.models",
    "hpfracc.memory",
    "hpfracc.ml",
    "hpfracc.ml.backends",
    "hpfracc.ml.optimized_optimizers",
    "hpfracc.ml.path_losses",
    "hpfracc.noise",
    "hpfracc.pde",
    "hpfracc.profiling",
    "hpfracc.rough",
    "hpfracc.solvers.ode",
    "hpfracc.solvers.ode.problems",
    "hpfracc.solvers.ode_solvers",
    "hpfracc.special",
    "hpfracc.transport",
)


@pytest.fixture(scope="module")
def documented(generate: ModuleType) -> list[str]:
    """The entries of all pages."""
    pages = (DOCS / "reference").glob("*.md")
    return [name for path in pages for name in generate.entries(path.read_text(encoding="utf-8"))]


def test_every_public_name_has_one_entry(documented: list[str]):
    """Each public name is documented once, at a public path; operations and errors have pages of their own."""
    assert {name for name in documented if documented.count(name) > 1} == set()
    other = {*PRIMITIVES, "__version__", "errors", "problems"}
    wanted = {f"hpfracc.{name}" for name in hpfracc.__all__ if name not in other}
    for module in DOCUMENTED:
        own = importlib.import_module(module).__all__
        wanted |= {f"{module}.{name}" for name in own if name not in other and name not in hpfracc.__all__}
    wanted -= {"hpfracc.ml.backends.BackendType"}  # that of hpfracc.engine
    assert wanted - set(documented) == set()
    assert "hpfracc.mittag_leffler" in documented


def test_entries_have_public_paths(documented: list[str]):
    """No part of a path begins with an underscore, and no module is one that users do not import."""
    internal = re.compile(r"\._|\.ml\.torch\.|\.solvers\.(pde|sde)|\.engine\.\w+\.|\.operators\.")
    assert [name for name in documented if internal.search(name)] == []


def test_a_page_has_a_table_of_its_entries(generate: ModuleType):
    """Entries become rows with links to their pages, and these are in the contents."""
    page = "<!-- entries: hpfracc\ncaputo\nconfig: check\n-->\n\n<!-- pages: hpfracc\nCaputo\n-->\n"
    assert generate.entries(page) == {"hpfracc.caputo": "", "hpfracc.config": "check", "hpfracc.Caputo": ""}
    text = generate.document(page)
    assert "| [`hf.caputo`](operators/caputo.md) | Caputo derivative" in text
    assert "| [`hf.config`](engine/config.md) | " in text
    assert "hf.Caputo" not in text and "\nCaputo <operators/Caputo-class>\n" in text


def test_every_entry_has_a_file_of_its_own(generate: ModuleType):
    """Also where the file system does not tell capital letters."""
    files = [f"{entry.subject}/{entry.file}".lower() for entry in generate.listed()]
    assert len(files) == len(set(files)) > 300


def test_a_page_begins_with_an_example(generate: ModuleType):
    """A summary, an example, then the documentation; operators have formula, methods and drawing between."""
    pages = {
        entry.path: generate.page_of(entry) for entry in generate.listed() if entry.subject in ("operators", "control")
    }
    for path, text in pages.items():
        place = text.index(".. rubric:: Example") if ".. rubric:: Example" in text else text.index("\nUsed in ")
        assert place < text.index(".. auto") or "\nUsed in " in text, path
        assert text.startswith(f"# hf{path.removeprefix('hpfracc')}\n") and "## Related\n" in text
    caputo = pages["hpfracc.caputo"]
    assert caputo.index("Example") < caputo.index("$$ D^") < caputo.index("<svg ") < caputo.index(".. autofunction::")


def like(x: float, first: float, second: str, **options: float) -> None:
    """Is like another function.

    Parameters
    ----------
    x : float
        As for :func:`known`, squared.
    first, second
        As for :func:`known`.
    **options
        ``rtol`` and ``backend``, as for :func:`known`.
    """


def known(x: float, first: float, second: str, a: int, b: int, c: int, d: int, rtol: float, backend: str) -> Module:  # type: ignore[name-defined] # noqa: F821
    """Has parameters.

    Parameters
    ----------
    x : float
        A number.
    first : float
        The first.

        .. math:: y
    second : str
        The second.
    a, b, c, d : int
        More.
    rtol : float
        The tolerance.
    backend : str
        The backend.

    Returns
    -------
    Thing, shape (n,)
        A result.
    """


def test_parameters_are_described_where_they_stand(generate: ModuleType):
    """Those described by reference are copied; long lists are in groups; types that are classes of ours are links."""
    describe = generate.pages().describe
    text = describe(inspect.getdoc(like), like, generate._object, {})
    assert "x : float\n    A number. Here squared." in text
    assert "first : float\n    The first.\n\n    .. math:: y\nsecond : str\n    The second.\n" in text
    assert "rtol : float\n    The tolerance.\nbackend : str\n    The backend." in text and "known" not in text
    text = describe(inspect.getdoc(known), known, generate._object, {"Thing": "hpfracc.Thing"})
    assert "\nAccuracy\n--------\nrtol : float\n" in text and "\nPerformance\n-----------\nbackend : str\n" in text
    assert ":py:class:`Thing <hpfracc.Thing>`, shape (n,)\n    A result." in text


def test_no_parameter_is_described_by_a_reference_alone(generate: ModuleType):
    """In all entries, but for classes of other libraries."""
    left = []
    for entry in generate.listed():
        value = generate._object(entry.path)
        text = generate.pages().describe(inspect.getdoc(value) or "", value, generate._object, generate._classes())
        found = re.findall(r"^(\S.*)\n    As (?:for|in) :\w+:`([\w.]+)`\.$", text, re.MULTILINE)
        left += [(entry.path, names) for names, other in found if not other.startswith("torch.")]
    assert left == [("hpfracc.pde.ModelEquation", "reaction, source, du0, terms")]


@pytest.mark.parametrize("path", sorted((DOCS / "reference").glob("*.md")), ids=lambda path: path.stem)
def test_tables_have_no_markup_of_docstrings(generate: ModuleType, path: Path):
    """Rows have as many cells as their heading, and no role or escape of reStructuredText."""
    lines = generate.document(path.read_text(encoding="utf-8")).splitlines()
    count = 0
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("| "):
            cells = len(re.findall(r"(?<!\\)\|", line))
            assert not before.startswith("| ") or cells == count, line
            assert not re.search(r"(?<!\{py):\w+:`|``|\\ ", line), line
            count = cells


def test_every_operator_has_its_methods_and_a_drawing(generate: ModuleType):
    """Each page of an operator's function has the formula, the drawing, and a row for each method."""
    from hpfracc.operators.core.registry import all_operators

    drawn = generate._neighbour("_operators")
    for kind in all_operators():
        text = "\n".join(drawn.details(kind.function_name))
        assert text.count("<svg ") == 1
        assert kind.formula in text
        assert all(f"| `{name}` |" in text for name in kind.rules)
        left, equals, _ = kind.formula.partition("=")
        assert equals, kind.formula
        assert r"\int" not in left, kind.formula
    text = "\n".join(drawn.details("caputo"))
    assert "| `l1-2` | uniform | 2.5 at alpha = 0.5, 2.5 at alpha = 1.5 | O(n log n) | yes |" in text


def test_operators_are_drawn_where_their_definitions_differ(generate: ModuleType):
    """Functions with f(0) = 0 would hide that Caputo's and Riemann-Liouville's derivatives are not the same."""
    from hpfracc.operators.core.registry import all_operators

    drawn = generate._neighbour("_operators")
    from_origin = [kind for kind in all_operators() if "origin" not in kind.unused]
    assert {"caputo", "riemann_liouville"} <= {kind.definition for kind in from_origin}
    for kind in from_origin:
        assert drawn._samples(kind)[2][0] == 1.0, kind.definition


def test_the_measured_promise_counts_every_family(generate: ModuleType):
    """No family of the results is left out of the table, and each group keeps the promise that stands above it."""
    folder = REPOSITORY / "benchmarks" / "results"
    names = set()
    for file in folder.glob("trust*.txt"):
        names |= set(re.findall(r"^(\w.*?) +\d+ +\S+% ", file.read_text(encoding="utf-8"), re.MULTILINE))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in generate.trust().splitlines()[2:]]
    assert sum(int(row[1]) for row in rows) == len(names)
    assert all(float(row[3].removesuffix(" %")) >= 99.0 for row in rows)


def test_fractions_of_two_digits_are_halves():
    r"""``\tfrac12 e`` is one half times e: the converter of docutils reads it as 12 over e."""
    nodes = pytest.importorskip("docutils.nodes")
    pytest.importorskip("sphinx")
    formulas = load("_mathml")
    for source in (r"\tfrac12 e", r"\frac{1}{H+\frac12}", r"\dfrac1 2"):
        found = formulas._converted(nodes.math(source, source), block=False)
        assert "<mn>12</mn>" not in found and "<mn>2</mn>" in found
