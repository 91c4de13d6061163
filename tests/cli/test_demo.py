"""``hpfracc demo`` measures and writes a self-contained HTML report."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hpfracc.cli import main
from hpfracc.cli.demo import blocks, chapters
from hpfracc.cli.demo.blocks import Cell, Chapter, Code, Figures, Heading, TableBlock, Words
from hpfracc.cli.demo.chapters import convolution, derivatives, equations, lattice, noise, patterns, plumes
from hpfracc.cli.demo.chart import Chart, ChartLine, Mark, spread
from hpfracc.cli.demo.page import render
from hpfracc.cli.demo.survey import Survey, SurveyRow
from hpfracc.cli.demo.survey import survey as take_survey
from hpfracc.cli.info import collect
from hpfracc.engine.execution.calibration import ArmTrial, Timing

NASTY = "<script>alert(1)</script>&\"'"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Parses a page into tags, attributes and text, and checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of three sizes with NumPy only, which takes seconds instead of half a minute."""
    monkeypatch.setattr(convolution, "_QUICK_SIZES", (16, 250, 4_000))
    monkeypatch.setattr(plumes, "_QUICK_SIZE", (201, 20))
    monkeypatch.setattr(patterns, "_QUICK_SIZE", (16, 9.0, 4.0))
    monkeypatch.setattr(derivatives, "_QUICK_SIZES", (50, 200, 800))
    for name, value in (
        ("QUICK_STEPS", (100, 1_000)),
        ("LAST", 3.0),
        ("ORDERS", (0.5, 0.9)),
        ("TOLERANCES", (1e-3,) * 2),
    ):
        monkeypatch.setattr(equations, f"_{name}", value)
    for name, value in (("QUICK_SIDE", 64), ("DRAWN", 32), ("QUICK_PAIRS", 1_000)):
        monkeypatch.setattr(lattice, f"_{name}", value)
    for name, value in (("POINTS", 5_000), ("PATHS", 1_000), ("WALKS", 100)):
        monkeypatch.setattr(noise, f"_QUICK_{name}", value)
    for name in ("NUMBA", "TORCH", "JAX", "CUPY"):
        monkeypatch.setenv(f"HPFRACC_DISABLE_{name}", "1")


@pytest.mark.usefixtures("small")
def test_the_report_is_written_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The output names the report, and has a table row for each size with the chosen arm."""
    folder = tmp_path / "deep" / "report"
    assert main(["demo", "--quick", "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    page = folder / "index.html"
    assert page.is_file()
    assert str(page) in out.replace("\n", "")
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    for word in ("16", "250", "4,000", "numpy:", "disabled by HPFRACC_DISABLE_NUMBA"):
        assert word in out
    text = page.read_text(encoding="utf-8")
    Page(text)
    assert "4,000" in text


@pytest.mark.usefixtures("small")
def test_json_has_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """The JSON has the chosen arm, all times and the initial guess for each size, and no nan."""
    monkeypatch.setattr(chapters, "CHAPTERS", ("convolution", "noise"))  # the report above has all of them
    assert main(["demo", "--quick", "--out", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert Path(found["report"]).is_file()
    rows = found["chapters"]["convolution"]["rows"]
    assert [row["points"] for row in rows] == [16, 250, 4_000]
    for row in rows:
        assert row["chosen"].startswith("numpy:")
        assert row["best"]["seconds"] == min(row["arms"].values())
        assert row["backends"]["numpy"]["seconds"] == row["best"]["seconds"]
        assert row["over_best"] == pytest.approx(row["seconds"] / row["best"]["seconds"])
        assert row["guess"].startswith("numpy:")
    simulated = found["chapters"]["noise"]
    assert all(abs(row["off"]) < 4 for row in simulated["checks"])
    low, high = simulated["motion"]["interval"]
    assert low < 0.3 < high


def test_a_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A folder that cannot be created raises an error before any measurement."""
    (tmp_path / "taken").write_text("", encoding="utf-8")
    assert main(["demo", "--out", str(tmp_path / "taken")]) == 2
    err = capsys.readouterr().err
    assert "taken" in err
    assert "--out" in err


def made_up_survey() -> Survey:
    """A survey of two backends whose times cross, one of them skipped at the largest size."""
    found = Survey(imports={"numba": 0.3}, absent={"cupy": "not installed"})
    for size in (16, 1_600, 160_000):
        row = SurveyRow(size, "numpy:fft@cpu")
        row.timings = {
            "numpy:fft@cpu": Timing("numpy:fft@cpu", 1e-5 * math.sqrt(size), (1.0,), float(size), first=0.01),
            "numpy:direct@cpu": Timing("numpy:direct@cpu", 1e-8 * size**2, (1.0,), float(size)),
        }
        if size < 100_000:
            row.timings["numba:direct@cpu"] = Timing("numba:direct@cpu", 3e-9 * size**2, (1.0,), float(size), first=0.9)
        else:
            row.skipped["numba:direct@cpu"] = "one call would take more than 1 s"
        row.seconds = 1.02 * row.best.seconds
        found.rows.append(row)
    return found


def test_a_survey_knows_the_best_of_each_backend():
    """A backend is represented by its fastest arm, or by the reason it was skipped."""
    found = made_up_survey()
    assert found.backends == ["numpy", "numba"]
    first, _, last = found.rows
    assert first.best.arm == "numba:direct@cpu"
    assert last.best.arm == "numpy:fft@cpu"
    direct = first.of_backend("numpy")
    assert direct is not None
    assert direct.arm == "numpy:direct@cpu"
    assert last.of_backend("numba") is None
    assert last.why_not("numba") == "one call would take more than 1 s"
    assert len(found.first_calls()) == 5


def test_a_failing_arm_does_not_end_the_survey(small: None, monkeypatch: pytest.MonkeyPatch):
    """The other arms are timed, and the failure is recorded as the reason."""
    measured = ArmTrial.time

    def fail(self: ArmTrial, arm: Any, *args: Any, **options: Any) -> Any:
        if arm.algorithm == "fft":
            raise RuntimeError("driver went away")
        return measured(self, arm, *args, **options)

    monkeypatch.setattr(ArmTrial, "time", fail)
    rows = take_survey(
        "causal_convolution",
        (250,),
        lambda size: (np.ones(size), np.ones(size)),
        effort=1e-3,
        patience=1.0,
        report=lambda share, what: None,
    ).rows
    assert "numpy:direct@cpu" in rows[0].timings
    assert "driver went away" in rows[0].skipped["numpy:fft@cpu"]


def test_a_busy_machine_leaves_one_arm_to_time(small: None):
    """Every size has a timing, even if all arms are predicted to take longer than the patience."""
    rows = take_survey(
        "causal_convolution",
        (250, 1_000),
        lambda size: (np.ones(size), np.ones(size)),
        effort=1e-3,
        patience=1e-12,
        report=lambda share, what: None,
    ).rows
    assert len(rows[1].timings) == 1
    assert any("more than" in reason for reason in rows[1].skipped.values())


def test_the_chapter_shows_lines_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    """Every backend has a line and a column; skipped sizes are noted with the reason."""
    monkeypatch.setattr(convolution, "survey", lambda *args, **options: made_up_survey())
    chapter = chapters.build("convolution", chapters.DemoContext(True, lambda share, text: None))
    chart = next(block for block in chapter.blocks if isinstance(block, Chart))
    assert [line.name for line in chart.lines] == ["direct sum", "NumPy", "Numba", "hpfracc"]
    grid = next(block for block in chapter.blocks if isinstance(block, TableBlock))
    assert grid.columns[-2:] == (">NumPy", ">Numba")
    assert grid.notes == [
        "Numba at 160,000 points: one call would take more than 1 s",
        "CuPy is not available: not installed",
    ]
    figures = next(block for block in chapter.blocks if isinstance(block, Figures))
    assert figures.figures[2][0] == "1.02x"


def test_every_registered_chapter_can_be_built():
    """Every chapter is a module with ``build``."""
    for name in chapters.CHAPTERS:
        module = __import__(f"hpfracc.cli.demo.chapters.{name}", fromlist=["build"])
        assert callable(module.build)


def nasty_chapter() -> Chapter:
    line = ChartLine(NASTY, "auto", [(10.0, 1e-6, NASTY), (1000.0, 1e-3, NASTY)])
    ticks = [(10.0, NASTY), (1000.0, "1k")]
    shown: list[blocks.Block] = [
        Heading(NASTY, NASTY),
        Words([NASTY]),
        Code(NASTY),
        Figures([(NASTY, NASTY)]),
        TableBlock(
            NASTY, (NASTY, f">{NASTY}"), [[Cell(NASTY, NASTY, NASTY), Cell("`code`")]], [Cell(NASTY), Cell("")], [NASTY]
        ),
        Chart(NASTY, NASTY, NASTY, NASTY, [line], ticks, [(1e-6, "a"), (1e-3, "b")], [Mark(100.0, NASTY)]),
    ]
    return Chapter(NASTY, NASTY, shown, {})


def nasty_page() -> str:
    info = collect()
    info["machine"]["cpu"]["model"] = NASTY
    info["machine"]["gpus"] = [{"device": NASTY, "name": NASTY, "driver": NASTY, "memory": 2**33}]
    return render([nasty_chapter()], info, NASTY)


def test_every_name_is_escaped():
    """Names of devices, libraries and errors are escaped and cannot create tags."""
    page = Page(nasty_page())
    assert "script" not in page.tags
    assert sum(NASTY in words for words in page.words) > 10
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_the_page_stands_alone():
    """The page loads nothing: no links, no scripts, and only the style whose hash is in the policy."""
    text = nasty_page()
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert not {"src", "href", "action", "style"} & {name for name, _ in page.attributes}
    assert "url(" not in text
    assert "@import" not in text
    style = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(style) == 1
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    contents = [value or "" for name, value in page.attributes if name == "content"]
    (policy,) = (value for value in contents if "default-src" in value)
    # Pictures are embedded in the page.
    kept = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
    assert policy == kept + "base-uri 'none'; form-action 'none'"


def test_the_page_suits_every_reader():
    """The page has a title, a language, a viewport, and styles for dark mode, narrow screens and print."""
    text = nasty_page()
    for part in (
        '<html lang="en">',
        "<title>",
        "width=device-width",
        "prefers-color-scheme: dark",
        "@media print",
        "max-width: 680px",
    ):
        assert part in text
    identities = [value for name, value in Page(text).attributes if name == "id"]
    assert len(identities) == len(set(identities))


def test_the_chart_puts_things_where_they_belong():
    """Both axes are logarithmic, and larger times are higher up."""
    points = [(10.0, 1e-6, "a"), (100.0, 1e-5, "b"), (1000.0, 1e-4, "c")]
    x_ticks, y_ticks = [(10.0, "10"), (1000.0, "1k")], [(1e-6, "1 us"), (1e-4, "100 us")]
    text = Chart("t", "d", "x", "y", [ChartLine("NumPy", "numpy", points)], x_ticks, y_ticks).to_html()
    wide = text.partition('class="narrow"')[0]
    places = [tuple(map(float, found)) for found in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', wide)]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y2 < y1 < y0
    assert wide.count("<title>") == 3  # one for each dot; the chart's own has an id


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([10.0, 50.0], [10.0, 50.0]),
        ([10.0, 12.0], [6.0, 16.0]),
        ([10.0, 10.0, 10.0], [0.0, 10.0, 20.0]),
        ([95.0, 99.0], [90.0, 100.0]),
        ([], []),
    ],
)
def test_names_are_moved_apart_as_little_as_possible(places: list[float], expected: list[float]):
    """Names keep their order and a minimum gap, stay within bounds, and move only if they overlap."""
    assert spread(places, 10.0, 0.0, 100.0) == pytest.approx(expected)


@pytest.mark.parametrize(("width", "remarks"), [(200, True), (30, False)])
def test_a_narrow_terminal_omits_remarks(width: int, remarks: bool):
    """A narrow table keeps its numbers and drops the remarks beside them."""
    grid = TableBlock(
        "times", ("points", ">NumPy", ">Numba"), [[Cell("1,000,000"), Cell("123 us", "1.00x"), Cell("456 us", "3.7x")]]
    )
    out = io.StringIO()
    Console(file=out, width=width).print(grid)
    text = out.getvalue()
    assert "123 us" in text
    assert ("3.7x" in text) == remarks


def test_inline_code():
    """Text between backticks becomes code, and is escaped."""
    assert blocks.inline_html("use `a<b`") == "use <code>a&lt;b</code>"


def test_progress_never_runs_backwards(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The fractions that a chapter reports increase from 0 towards 1."""
    shares: list[float] = []

    def note(share: float, text: str) -> None:
        shares.append(share)

    chapters.build("convolution", chapters.DemoContext(True, note))
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] <= shares[-1] < 1.0


def test_figures_in_a_terminal(capsys: pytest.CaptureFixture[str]):
    """Numbers and descriptions are printed side by side, without backticks."""
    given: Any = Figures([("173x", "is what `numpy:direct@cpu` cost")])
    Console(width=100).print(given)
    out = capsys.readouterr().out
    assert "173x" in out
    assert "is what numpy:direct@cpu cost" in out


def test_names_inside_a_chart_do_not_cover_one_another():
    """Lines that end at the same point have their names stacked."""
    points = [(10.0, 1.0, ""), (100.0, 10.0, "")]
    lines = [ChartLine(name, "numpy", points) for name in ("one", "two", "three")]
    beyond = ChartLine("beyond", "auto", [(10.0, 1.0, ""), (10_000.0, 100.0, "")])
    ticks = [(10.0, "10"), (10_000.0, "10k")]
    page = Chart("t", "d", "x", "y", [*lines, beyond], ticks, ticks).to_html()
    found = re.findall(r'y="([\d.]+)" text-anchor="middle">(one|two|three)<', page)
    assert len(found) == 6  # on the wide page and on the narrow one
    for drawing in (found[:3], found[3:]):
        heights = sorted(float(height) for height, _ in drawing)
        assert min(after - before for before, after in itertools.pairwise(heights)) > 10.0


def test_plumes_have_small_errors(monkeypatch: pytest.MonkeyPatch):
    """Against the stable law and Gauss's kernel; the page has two charts and a picture."""
    monkeypatch.setattr(plumes, "_QUICK_SIZE", (401, 200))
    chapter = chapters.build("plumes", chapters.DemoContext(True, lambda share, text: None))
    assert chapter.data["column"]["error"] < 2e-2
    assert chapter.data["waiting"]["error"] < 1e-12
    text = "".join(block.to_html() for block in chapter.blocks)
    assert text.count('<figure class="chart">') == 2
    assert text.count("data:image/png;base64,") == 1


def test_patterns_keep_the_norm(monkeypatch: pytest.MonkeyPatch):
    """Of the wave packet; the page has two pictures and a row for each run."""
    monkeypatch.setattr(patterns, "_QUICK_SIZE", (16, 9.0, 4.0))
    monkeypatch.setattr(derivatives, "_QUICK_SIZES", (50, 200, 800))
    for name, value in (
        ("QUICK_STEPS", (100, 1_000)),
        ("LAST", 3.0),
        ("ORDERS", (0.5, 0.9)),
        ("TOLERANCES", (1e-3,) * 2),
    ):
        monkeypatch.setattr(equations, f"_{name}", value)
    for name, value in (("QUICK_SIDE", 64), ("DRAWN", 32), ("QUICK_PAIRS", 1_000)):
        monkeypatch.setattr(lattice, f"_{name}", value)
    chapter = chapters.build("patterns", chapters.DemoContext(True, lambda share, text: None))
    assert chapter.data["norm"] < 1e-11
    assert len(chapter.data["runs"]) == 3
    text = "".join(block.to_html() for block in chapter.blocks)
    assert text.count("data:image/png;base64,") == 2
