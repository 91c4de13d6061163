"""Every Python block of the README and the documentation runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpfracc.engine.backends import registry
from hpfracc.engine.execution.operation import all_operations, unregister
from tests.helpers.source import REPOSITORY

#: Languages of blocks that are not run: shell, its output, and data. Python has one name, so that no block is missed.
NOT_RUN = {"bash", "console", "text", "json", "toml", "yaml", "html", "make"}
#: Marks a block of output that was copied from a terminal.
MARKER = "<!-- no-run -->"
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[^`\n]*)$")

PAGES = [
    path
    for path in [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    # Pages that a build writes are left out.
    if "_build" not in path.parts and "gallery" not in path.parts and len(path.relative_to(REPOSITORY).parts) < 4
]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the first line of its text, and whether the marker precedes it."""

    language: str
    line: int
    text: str
    marked: bool


def find_blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    blocks: list[Block] = []
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            number += 1
            continue
        begin = number + 1
        end = begin
        while lines[end].strip() != opening["fence"]:
            end += 1
            assert end < len(lines), f"the block that begins on line {begin} has no end"
        above = [line.strip() for line in lines[:number] if line.strip()]
        text = "\n".join(line.removeprefix(opening["indent"]) for line in lines[begin:end])
        blocks.append(Block(opening["language"].strip(), begin + 1, text, above[-1:] == [MARKER]))
        number = end + 1
    return blocks


def problems(blocks: list[Block]) -> list[str]:
    """Errors in blocks that would otherwise not be run."""
    found = []
    for block in blocks:
        # A directive such as ```{toctree} is not code.
        if block.language not in NOT_RUN | {"python"} and not block.language.startswith("{"):
            found.append(f"line {block.line}: unknown language {block.language!r}; use python, or one of {NOT_RUN}")
        if block.marked and block.language not in {"console", "text"}:
            found.append(f"line {block.line}: {MARKER} is for shell output, not for {block.language}")
    return found


def run_blocks(blocks: list[Block], path: Path) -> dict[str, object]:
    """Run the Python blocks of a page in order in one namespace, and return that namespace."""
    namespace: dict[str, object] = {"__name__": "__page__", "__file__": str(path)}
    for block in blocks:
        if block.language == "python":
            # Padded with lines, so that tracebacks and `inspect.getsource` refer to lines of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(path), "exec", dont_inherit=True)
            exec(code, namespace)
    return namespace


@pytest.fixture
def forget_operations() -> Iterator[None]:
    """Removes the operations that a page registers, and closes its figures."""
    before = set(all_operations())
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    for name in set(all_operations()) - before:
        registry.remove_operation(name)
        unregister(name)


@pytest.mark.usefixtures("forget_operations")
@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(REPOSITORY)) for path in PAGES])
def test_every_block_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The page's Python blocks run in order, in an empty folder, and no block is excluded by mistake."""
    blocks = find_blocks(path.read_text(encoding="utf-8"))
    assert problems(blocks) == []
    monkeypatch.chdir(tmp_path)
    run_blocks(blocks, path)


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(REPOSITORY)) for path in PAGES])
def test_readers_see_no_tests(path: Path):
    """What is asserted stands in comments, ``<!-- checked: ... -->``."""
    shown = re.sub(r"<!-- checked:.*?-->", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    code = "\n".join(block.text for block in find_blocks(shown) if block.language == "python")
    assert re.findall(r"^ *(?:assert .*|import pytest|.*testing\.assert_.*)", code, re.MULTILINE) == []


def test_a_page_with_python_was_found():
    """The README has Python blocks."""
    assert "python" in {block.language for block in find_blocks(PAGES[0].read_text(encoding="utf-8"))}


PAGE = """\
# A page

```python
x = 1
```

1. A list:

   ```python
   def f():
       return x + 1
   y = f()
   ```

````text
```python
raise RuntimeError
```
````

<!-- no-run -->
```console
$ rm x
```
"""


def test_blocks_share_a_namespace_and_nothing_else_runs(tmp_path: Path):
    """Later blocks see names of earlier ones, also inside lists; nested fences and shell blocks are not run."""
    blocks = find_blocks(PAGE)
    assert [(block.language, block.line) for block in blocks] == [
        ("python", 4),
        ("python", 10),
        ("text", 16),
        ("console", 23),
    ]
    assert problems(blocks) == []
    assert run_blocks(blocks, tmp_path / "page.md")["y"] == 2


def test_hidden_blocks_run(tmp_path: Path):
    """A block in a comment, which readers do not see, runs as the others do."""
    blocks = find_blocks("```python\nx = 1\n```\n\n<!-- checked:\n```python\ny = x + 1\n```\n-->\n")
    assert run_blocks(blocks, tmp_path / "page.md")["y"] == 2


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(REPOSITORY)) for path in PAGES])
def test_readers_see_no_test_library(path: Path):
    """Code for users does not import pytest."""
    code = [block.text for block in find_blocks(path.read_text(encoding="utf-8")) if block.language == "python"]
    assert "import pytest" not in "\n".join(code)


def test_an_error_points_into_the_page(tmp_path: Path):
    """A failing block fails the page, with the line number in the page."""
    with pytest.raises(ZeroDivisionError) as caught:
        run_blocks(find_blocks("text\n\n```python\nx = 1\nx / 0\n```\n"), tmp_path / "page.md")
    assert caught.traceback[-1].lineno + 1 == 5


@pytest.mark.parametrize("block", ["```py\nx\n```", "```\nx\n```", "<!-- no-run -->\n```python\nx\n```"])
def test_a_block_that_would_escape_is_noticed(block: str):
    """Another name for Python, no language, and a marked Python block are errors."""
    assert len(problems(find_blocks(block))) == 1
