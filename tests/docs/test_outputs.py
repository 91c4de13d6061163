"""Pages of the documentation show what their blocks print and draw."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.source import REPOSITORY

pytest.importorskip("matplotlib")

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
    assert "![A line](/gallery/pages/tutorials-one-1.png)\n" in text
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


def test_a_page_without_output_is_not_run(tmp_path: Path, outputs: ModuleType):
    """A page whose blocks print nothing stays as it is."""
    page = "```python\n1 / 0\n```\n"
    assert outputs.fill("one", page, tmp_path / "pages") == page
    assert not (tmp_path / "pages").exists()
