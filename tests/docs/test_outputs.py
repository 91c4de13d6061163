"""Pages of the documentation show what their blocks print and draw."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.source import REPOSITORY

image = pytest.importorskip("matplotlib.image")

PAGE = """\
```python
import matplotlib.pyplot as plt
print(1 + 1)
plt.plot([0, 1])
```

<!-- picture: A
line -->

<!-- checked:
```python
raise ValueError("a block for tests")
```
-->

1. A list:

   ```python
   print("one\\ntwo")
   ```
"""


@pytest.fixture
def outputs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_outputs", REPOSITORY / "docs" / "_outputs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_shows_what_its_blocks_print_and_draw(tmp_path: Path, outputs: ModuleType):
    """Output stands below its block, also in a list; a page runs again only if its code changed; errors are errors."""
    folder = tmp_path / "gallery" / "pages"
    text = outputs.fill("tutorials/one", PAGE, folder)
    assert "plt.plot([0, 1])\n```\n\n```text\n2\n```\n" in text
    assert "![A line](/gallery/pages/tutorials-one-1.png){.only-light}" in text
    assert "![A line](/gallery/pages/tutorials-one-1-dark.png){.only-dark}\n" in text
    light, dark = (image.imread(folder / f"tutorials-one-1{end}.png") for end in ("", "-dark"))
    assert light[0, 0, :3].min() > 0.9 and dark[0, 0, :3].max() < 0.15
    assert '   print("one\\ntwo")\n   ```\n\n   ```text\n   one\n   two\n   ```\n' in text
    picture = folder / "tutorials-one-1.png"
    before = picture.read_bytes()
    picture.unlink()
    assert outputs.fill("tutorials/one", PAGE, folder) == text
    assert not picture.exists()
    outputs.fill("tutorials/one", PAGE.replace("[0, 1]", "[0, 1, 5]"), folder)
    assert picture.read_bytes() != before
    with pytest.raises(RuntimeError, match="(?s)tutorials-two did not run.*ZeroDivisionError"):
        outputs.fill("tutorials/two", "```python\nprint(1 / 0)\n```\n", folder)


def test_an_output_that_stands_in_the_page_is_not_shown_twice(tmp_path: Path, outputs: ModuleType):
    """It is replaced by what the block prints."""
    page = "```python\nprint(2)\n```\n\n<!-- no-run -->\n```text\n3\n```\n\nWords.\n\n```text\n4\n```\n"
    text = outputs.fill("one", page, tmp_path / "pages")
    assert text == "```python\nprint(2)\n```\n\n```text\n2\n```\n\nWords.\n\n```text\n4\n```\n"


def test_long_lines_of_output_are_wrapped(outputs: ModuleType):
    """Words move to the next line; a table stays as it is."""
    found = outputs._wrapped("short\n\n" + "word " * 40)
    assert found[:2] == ["short", ""] and len(found) == 4 and max(map(len, found)) <= 118
    assert "".join(found[2:]).replace("    word", "word") == "word " * 40
    assert len(outputs._wrapped("a ─ " * 50)) == 1


def test_a_page_without_output_is_not_run(tmp_path: Path, outputs: ModuleType):
    """A page whose blocks print nothing stays as it is."""
    page = "```python\n1 / 0\n```\n"
    assert outputs.fill("one", page, tmp_path / "pages") == page
    assert not (tmp_path / "pages").exists()
