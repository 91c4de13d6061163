"""Every figure about speed or accuracy in README, index and paper is that of a line of a results file.

A paragraph with such a figure is followed by ``<!-- from: FILE: TEXT -->``, with TEXT a piece of a line of FILE that
has the figure. Code is left out: it is run by other tests.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.helpers.source import REPOSITORY

PAGES = ("README.md", "docs/index.md", "paper/paper.md")
#: Units of claims, as a factor and a base; without a base a plain number is enough, as in a column of a table.
UNITS = {
    "s": (1.0, "s"), "ms": (1e-3, "s"), "us": (1e-6, "s"), "seconds": (1.0, "s"),
    "x": (1.0, "x"), "times": (1.0, "x"), "%": (1.0, "%"),
    "points": (1.0, ""), "problems": (1.0, ""), "random problems": (1.0, ""), "digits": (1.0, ""),
}  # fmt: skip
NUMBER = r"(?<![\w.^-])(\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)"
CLAIM = re.compile(rf"{NUMBER} ?({'|'.join(sorted(UNITS, key=len, reverse=True))})(?!\w)")
ERROR = re.compile(rf"\b(?:error|accuracy)\b[^.\n]* (?:of|below|is|to) {NUMBER}()")
QUOTE = re.compile(r"<!-- from: (\S+): (.*?) -->")


def claims(text: str) -> list[tuple[float, str, int]]:
    """Value, base of the unit and number of digits of each figure."""
    found = [*CLAIM.findall(text), *ERROR.findall(text)]
    parts = [(number, *UNITS.get(unit, (1.0, ""))) for number, unit in found]
    return [(float(number.replace(",", "")) * factor, base, digits(number)) for number, factor, base in parts]


def digits(number: str) -> int:
    """Significant digits of a number as it is written."""
    mantissa = number.replace(",", "").partition("e")[0]
    return len((mantissa if "." in mantissa else mantissa.rstrip("0")).replace(".", "").lstrip("0")) or 1


def has(quoted: str, value: float, base: str, places: int) -> bool:
    """Whether a quoted line has the figure, rounded as it is."""
    plain = [float(number.replace(",", "")) for number in re.findall(NUMBER, quoted)]
    known = [other for other, its_base, _ in claims(quoted) if its_base == base] if base else plain
    return any(f"{other:.{places - 1}e}" == f"{value:.{places - 1}e}" for other in known)


def problems(page: str, root: Path) -> list[str]:
    """Figures without their line, and quotes that are not there."""
    text = re.sub(r"^( *)```.*?^\1```$|<!-- (?!from:).*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    found = []
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    for block, after in pairwise([*blocks, ""]):
        quotes = QUOTE.findall(after)
        for file, quoted in quotes:
            if not (root / file).is_file() or quoted not in (root / file).read_text(encoding="utf-8"):
                found.append(f"{file} has no line with {quoted!r}")
        if not QUOTE.match(block):
            found += [
                f"{value:g} {base} is not in a quoted line: {' '.join(block.split())[:80]}"
                for value, base, places in claims(" ".join(block.split()))
                if not any(has(quoted, value, base, places) for _, quoted in quotes)
            ]
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_is_measured(name: str):
    """Each figure stands in a quoted line of a results file, and each quote is there."""
    page = (REPOSITORY / name).read_text(encoding="utf-8")
    assert problems(page, REPOSITORY) == []
    assert QUOTE.search(page)


def test_claims_are_found(tmp_path: Path):
    """A figure without a line, a wrong figure and a wrong quote are reported; a rounded one is not."""
    (tmp_path / "times.txt").write_text("10,000 points  726 us  557x\n", encoding="utf-8")
    quote = "\n\n<!-- from: times.txt: 726 us  557x -->\n"
    assert problems("It takes 0.73 ms, 557 times less." + quote, tmp_path) == []
    assert len(problems("It takes 0.73 ms.", tmp_path)) == 1
    assert len(problems("It takes 0.8 ms." + quote, tmp_path)) == 1
    assert len(problems("It is 700x faster, with an error below 1e-9." + quote, tmp_path)) == 2
    assert len(problems("It is fast." + quote.replace("557", "558"), tmp_path)) == 1
    assert problems("```python\nx  # 5 ms\n```\n\n<!-- checked: 3 ms -->", tmp_path) == []


def test_the_paper_has_its_length_and_sections():
    """What the journal asks for, in 750 to 1,750 words."""
    text = (REPOSITORY / "paper" / "paper.md").read_text(encoding="utf-8").partition("\n---\n")[2]
    words = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split()
    assert 750 <= len(words) <= 1_750
    sections = re.findall(r"^# (.*)$", text, re.MULTILINE)
    assert {"Summary", "Statement of need", "State of the field", "Software design", "Research impact"} <= {*sections}
