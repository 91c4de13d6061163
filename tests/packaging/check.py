"""Checks the files that ``make package`` built: what is in them, and how a package index shows them."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from pathlib import Path

#: Files of the wheel that the package reads while it runs.
DATA = (
    "hpfracc/py.typed",
    "hpfracc/__init__.pyi",
    "hpfracc/cli/demo/gallery/relaxation.py",
    "hpfracc/cli/demo/gallery/gallery.mplstyle",
)
#: Files of the sdist that a packager needs.
TEXTS = ("CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md")


def problems(folder: Path) -> list[str]:
    """What is wrong with the built files."""
    (wheel,), (sdist,) = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        readme = files.read(metadata).decode().partition("\n\n")[2]
    found = [f"the wheel lacks {name}" for name in DATA if name not in names]
    found += [f"the wheel has {name}" for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]
    for target in re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"", readme):
        if not "".join(target).startswith(("https://", "http://", "#")):
            found.append(f"the page on a package index has the relative link {''.join(target)}")
    found += [] if "```python" in readme else ["the page on a package index has no example"]
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    found += [f"the sdist lacks {name}" for name in TEXTS if name not in inside]
    return found


if __name__ == "__main__":
    errors = problems(Path(sys.argv[1]))
    print("\n".join(errors) or "the wheel and the sdist are complete")
    sys.exit(bool(errors))
