"""A package's underscored modules are its own, and words are the usual ones."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hpfracc import _lazy
from tests.helpers.source import PACKAGE, REPOSITORY, SOURCE, find_imports, find_modules, resolve

#: Words that only this library ever used, and what to write.
WORDS = {
    r"cards?": "GPU",
    r"tenures?": "incumbent",
    r"seldommest": "longest interval",
    r"veil(s|ed)?": "mask",
    r"attend(s|ed)?": "review",
    r"met before": "known",
    r"again and again": "repeatedly",
    r"so many": "the number itself",
    r"what it is worth": "gain",
    r"for ever": "forever",
    r"box of time": "time limit",
    r"commonest": "most common",
}
#: The same for parts of identifiers; a sentence may use some of the words.
PARTS = {
    "again": "repeated, or cached",
    "attend": "review",
    "card": "gpu",
    "seldom": "rare",
    "seldommest": "longest interval",
    "tenure": "incumbent",
    "veil": "mask",
}
#: A test or a benchmark may call its second result ``again``.
PARTS_OUTSIDE = {part: word for part, word in PARTS.items() if part != "again"}
# The id of an element of a page, such as ``#cards``, is no word.
_IN_TEXT = re.compile(rf"(?<![A-Za-z#])(?:{'|'.join(WORDS)})(?![A-Za-z])", re.IGNORECASE)
_IN_PAGE = re.compile(_IN_TEXT.pattern.replace(" ", r"\s+"), re.IGNORECASE)


def intrusions(source: Path) -> list[tuple[str, str]]:
    """Imports of another package's underscored module: the folder it lies in, and a sentence.

    A public name may be imported from its home, which has an underscore where the plain name would hide it.
    """
    modules = find_modules(source)
    public = {f"{home}.{name}" for name, home in _lazy.homes("hpfracc").items()}
    found = []
    for module in modules.values():
        if module.name == PACKAGE:
            continue
        for use in find_imports(module):
            target = resolve(use.target, modules)
            if target is None or use.target in public:
                continue
            if module.is_package and target.startswith(f"{module.name}."):
                continue  # an ``__init__.py`` hands on the names of its own folder
            folder, underscore, _ = target.partition("._")
            if underscore and not f"{module.name}.".startswith(f"{folder}."):
                found.append((folder.removeprefix(f"{PACKAGE}."), f"{module.name}:{use.line} imports {target}"))
    return found


@functools.cache
def _anywhere(parts: frozenset[str]) -> re.Pattern[str]:
    """Matches every text that has an unusual word, and some that have none."""
    return re.compile("|".join([*sorted(parts), *WORDS]).replace(" ", r"[\s#]+"), re.IGNORECASE)


def unusual_words(path: Path, parts: dict[str, str] = PARTS) -> list[str]:
    """Words of WORDS and ``parts`` in the names, docstrings, messages and comments of a file, as sentences.

    Of a page that is not Python, words of WORDS in its text.
    """
    text = path.read_text(encoding="utf-8")
    if _anywhere(frozenset(parts)).search(text) is None:
        return []  # quick: most files
    found = []
    if path.suffix != ".py":
        for match in _IN_PAGE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.name}:{line}: {' '.join(match.group().split())}")
        return found
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            words = [word.lower() for word in re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z]+", token.string)]
            odd = [word for word in words if word.removesuffix("s") in parts]
        elif token.type in (tokenize.COMMENT, tokenize.STRING) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            odd = [match.group() for match in _IN_TEXT.finditer(" ".join(token.string.split()))]
        else:
            continue
        found += [f"{path.name}:{token.start[0]}: {word}" for word in odd]
    return found


def files_outside(repository: Path) -> Iterator[Path]:
    """Sources and pages outside the package, except for this file, which contains the words."""
    for folder in ("tests", "benchmarks", "examples"):
        yield from (path for path in (repository / folder).rglob("*.py") if path != Path(__file__))
    yield from (repository / "docs").rglob("*.md")
    yield from (repository / name for name in ("README.md", "CONTRIBUTING.md"))


def test_underscored_modules_are_their_packages_own():
    """No module imports another package's underscored module, except for a public name that is defined there."""
    assert intrusions(SOURCE) == []


def test_words_are_the_usual_ones():
    """Names, docstrings, messages and comments use the terms of the field."""
    assert _problems(module.path for module in find_modules(SOURCE).values()) == {}


def test_words_outside_the_package_are_the_usual_ones():
    """Tests, benchmarks, examples and pages use them too."""
    assert _problems(files_outside(REPOSITORY), PARTS_OUTSIDE) == {}


def test_files_outside_the_package_are_found():
    """The check above reads tests, benchmarks, examples and pages."""
    found = {path.relative_to(REPOSITORY).as_posix() for path in files_outside(REPOSITORY)}
    expected = {"tests/conftest.py", "benchmarks/replay/judge.py", "docs/explanation/house.md", "CONTRIBUTING.md"}
    assert expected | {"examples/own_operation.py"} <= found
    assert "tests/architecture/test_words.py" not in found


def _problems(paths: Iterable[Path], parts: dict[str, str] = PARTS) -> dict[str, list[str]]:
    return {
        path.relative_to(REPOSITORY).as_posix(): problems for path in paths if (problems := unusual_words(path, parts))
    }


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in {"__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "text", "noticed"),
    [
        ("solvers/a.py", "from hpfracc.operators._rules import L1", True),
        ("solvers/a.py", "from hpfracc.operators import _rules", True),
        ("solvers/a.py", "def f():\n    import hpfracc.operators._rules", True),
        ("operators/rules/a.py", "from hpfracc.operators._rules import L1", False),
        ("operators/a.py", "from . import _rules", False),
        ("solvers/a.py", "from hpfracc.operators._caputo import Caputo", False),
        ("solvers/a.py", "from hpfracc.operators._caputo import helper", True),
    ],
)
def test_an_intrusion_is_noticed(tmp_path: Path, file: str, text: str, noticed: bool):
    """Underscored modules of other packages are reported, however they are imported; homes of public names are not."""
    _write(tmp_path, {"operators/__init__.py": "", "operators/_rules.py": "", "operators/_caputo.py": "", file: text})
    assert [folder for folder, _ in intrusions(tmp_path)] == (["operators"] if noticed else [])


@pytest.mark.parametrize(
    ("text", "noticed"),
    [
        ("CARD = 1", True),
        ("def call_again(): ...", True),
        ("class CallAgain: ...", True),
        ("def against(): ...", False),
        ("discarded = scorecards = 1", False),
        ("# on a card", True),
        ('"""Called so\nmany times."""', True),
        ("raise ValueError(f'{name} was met before')", True),
        ("# measured again", False),
        ("# waits for ever", True),
        ("# for every row", False),
    ],
)
def test_an_unusual_word_is_noticed(tmp_path: Path, text: str, noticed: bool):
    """In names of any style, comments, docstrings and messages, but not inside other words."""
    path = tmp_path / "a.py"
    path.write_text(f"{text}\n", encoding="utf-8")
    assert bool(unusual_words(path)) == noticed


@pytest.mark.parametrize(
    ("name", "text", "noticed"),
    [
        ("test_a.py", "again = call()", False),
        ("test_a.py", "cards = 1", True),
        ("test_a.py", "# called again and again", True),
        ("test_a.py", 'found = "#cards"', False),
        ("page.md", "Called so\nmany times.", True),
        ("page.md", "Cardinal numbers; measured again.", False),
    ],
)
def test_an_unusual_word_outside_the_package_is_noticed(tmp_path: Path, name: str, text: str, noticed: bool):
    """Tests may name a result ``again``. Words of a page may be on different lines."""
    path = tmp_path / name
    path.write_text(f"{text}\n", encoding="utf-8")
    assert bool(unusual_words(path, PARTS_OUTSIDE)) == noticed
