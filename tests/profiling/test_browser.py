"""The page in a real Chromium without a network: every panel, zoom, search, sort, filter, drop, keyboard, print."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.profiling import Profiler, clocks, compare_profiles, get_profiler, load_profile
from hpfracc.profiling.exports import render_page
from tests.helpers.browser import find_browser, full_screenshot, resize, start_browser
from tests.helpers.simulated_device import SimulatedClock, Time

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_browser() is None, reason="no chromium with chromedriver"),
]
pytest.importorskip("selenium")

EVIL = "check </script><img src=x onerror=alert(1)>"
#: Where the screenshots go, if they are to be kept.
ARTIFACTS = os.environ.get("BROWSER_ARTIFACTS")


class RealTime(Time):
    """The simulated device by the real clock."""

    def perf_counter(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def record() -> Profiler:
    """A run with everything in it: threads, tasks, a device, copies, compilation, errors, memory, decisions."""
    clock = SimulatedClock(RealTime(), "simulated", device="sim:0")
    before = list(clocks.extra_clocks)
    clocks.extra_clocks.append(clock)
    profiler = get_profiler()
    profiler.configure(memory=True)
    signal = np.arange(200.0)

    def load() -> None:
        for number in range(5):
            with profiler.profile("load batch", number=number):
                time.sleep(0.001)

    async def answer() -> None:
        with profiler.profile("request"):
            await asyncio.sleep(0.002)

    async def serve() -> None:
        await asyncio.gather(answer(), answer())

    loader = threading.Thread(target=load, name="loader")
    loader.start()
    recorder = profiler._recorder
    with hf.config(deterministic=True), hf.use_backend("numpy"):
        for step in range(8):
            with profiler.profile("step", number=step):
                with profiler.profile("features"):
                    hf.causal_convolution(signal, signal)
                with recorder.span("host->sim:0", "transfer", "sim:0") as copy:
                    copy.size = 8 * signal.size
                    clock.work(0.0005)
                with profiler.profile("forward", device="gpu"):
                    clock.work(0.003)
                with recorder.span("first call of numba:direct@cpu", "compile"):
                    time.sleep(0.0005)
                with pytest.raises(ValueError, match="not yet"), profiler.profile(EVIL):
                    raise ValueError("not yet")
    asyncio.run(serve())
    loader.join()
    clocks.extra_clocks[:] = before
    profiler.disable()
    return profiler


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as driver:
        yield driver


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A page, and its profile as JSON."""
    profiler = record()
    return profiler.report(tmp_path / "run.html", "train.py"), profiler.export_json(tmp_path / "run.json")


def problems(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def show(browser: Any, page: Path, width: int = 1280) -> Any:
    resize(browser, width, 900, mobile=width < 600)
    browser.get(page.as_uri())
    settle(browser)
    return browser


def settle(browser: Any) -> None:
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def text(browser: Any, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).innerText", selector))


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
    return [str(each) for each in browser.execute_script(script, selector)]


def window(browser: Any) -> tuple[float, float]:
    low, high = browser.execute_script("const c = hpfraccProfile.chart; return [c.from, c.to]")
    return float(low), float(high)


def inked(browser: Any, canvas: str) -> int:
    """How many colours a canvas shows."""
    return int(
        browser.execute_script(
            """const c = document.getElementById(arguments[0]);
               const data = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);
               return new Set(data).size""",
            canvas,
        )
    )


def type_into(browser: Any, field: str, words: str) -> None:
    entry = browser.find_element("id", field)
    entry.clear()
    entry.send_keys(words)
    settle(browser)


def drop(browser: Any, path: Path) -> None:
    """Drop a file on the page, as a hand would."""
    browser.execute_script(
        """const transfer = new DataTransfer();
           transfer.items.add(new File([arguments[0]], arguments[1], { type: 'application/json' }));
           const options = { dataTransfer: transfer, bubbles: true, cancelable: true };
           for (const kind of ['dragenter', 'dragover', 'drop']) {
             document.body.dispatchEvent(new DragEvent(kind, options));
           }""",
        path.read_text(encoding="utf-8"),
        path.name,
    )
    for _ in range(100):
        if browser.execute_script(
            "return !document.getElementById('compare').hidden || document.getElementById('message').textContent !== ''"
            " || !document.getElementById('loaded').hidden"
        ):
            break
        time.sleep(0.02)
    settle(browser)


def test_every_panel_is_there(browser: Any, files: tuple[Path, Path], tmp_path: Path):
    """Summary, bars, charts, memory, bottlenecks, table and decisions all show the run, and nothing complains."""
    show(browser, files[0])
    summary = text(browser, "#cards")
    assert "spans, none dropped" in summary and "sim:0 busy" in summary and "copies, 12.5 KiB" in summary
    assert "8\nspans ended with an error" in summary
    bars = text(browser, "#bars")
    assert all(words in bars for words in ("host", "copies", "compilation", "sim:0", "busy"))
    assert inked(browser, "flame-canvas") > 8
    assert inked(browser, "timeline-canvas") > 6
    assert inked(browser, "memory-canvas") > 3
    assert "resident" in text(browser, "#memory-words")
    lanes = texts(browser, "#lane option")
    assert {"MainThread", "loader", "sim:0"} <= set(lanes)
    assert any("Task-" in lane for lane in lanes)
    assert len(texts(browser, "#bottleneck-list li")) == 5
    assert "compiled 8 times" in text(browser, "#bottlenecks")
    names = texts(browser, "#span-table tbody th")
    assert {"step", "forward", "causal_convolution", EVIL} <= set(names)
    decision = texts(browser, "#decision-list details")
    assert any(row.startswith("causal_convolution of 200 float64 by ") for row in decision)
    browser.execute_script("document.querySelector('#decision-list details').open = true")
    settle(browser)
    assert "predicted" in text(browser, "#decision-list table")
    assert problems(browser) == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_zoom_pan_search_and_keyboard(browser: Any, files: tuple[Path, Path]):
    """Buttons, wheel, dragging, double click and keys move the window; a search finds, counts and steps through."""
    show(browser, files[0])
    whole = window(browser)
    browser.find_element("id", "zoom-in").click()
    settle(browser)
    half = window(browser)
    assert half[1] - half[0] == pytest.approx((whole[1] - whole[0]) / 2)
    canvas = browser.find_element("id", "flame-canvas")
    canvas.send_keys("d")
    settle(browser)
    assert window(browser)[0] > half[0]
    canvas.send_keys("+")
    settle(browser)
    assert window(browser)[1] - window(browser)[0] < half[1] - half[0]
    browser.find_element("id", "zoom-all").click()
    settle(browser)
    assert window(browser) == whole
    browser.execute_script(
        "arguments[0].dispatchEvent(new WheelEvent('wheel', { deltaY: -50, ctrlKey: true, clientX: 300, clientY: 5,"
        " bubbles: true, cancelable: true }))",
        canvas,
    )
    settle(browser)
    assert window(browser)[1] - window(browser)[0] < whole[1] - whole[0]
    type_into(browser, "search", "FORWARD")
    assert text(browser, "#matches") == "8 spans"
    browser.find_element("id", "search").send_keys("\ue007")  # Enter
    settle(browser)
    assert text(browser, "#selection").startswith("forward (span): ")
    assert "on sim:0 3" in text(browser, "#selection")
    canvas.send_keys("\ue013")  # up: to the parent
    settle(browser)
    assert text(browser, "#selection").startswith("step (span)")
    canvas.send_keys("]")
    settle(browser)
    assert "number=1" in text(browser, "#selection")
    canvas.send_keys("\ue007")
    settle(browser)
    low, high = window(browser)
    assert high - low < (whole[1] - whole[0]) / 2
    canvas.send_keys("\ue011")  # Home
    settle(browser)
    assert window(browser) == whole
    assert problems(browser) == []


def test_the_table_sorts_and_filters(browser: Any, files: tuple[Path, Path]):
    """By any column, both ways, by name and by kind; the state is told to screen readers."""
    show(browser, files[0])
    head = browser.find_elements("css selector", "#span-table thead button")
    names = [button.text for button in head]
    head[names.index("calls")].click()
    settle(browser)
    counts = [int(each) for each in texts(browser, "#span-table tbody td:nth-child(2)")]
    assert counts == sorted(counts, reverse=True)
    browser.find_elements("css selector", "#span-table thead button")[names.index("calls")].click()
    settle(browser)
    assert [int(each) for each in texts(browser, "#span-table tbody td:nth-child(2)")] == sorted(counts)
    states = [each.get_attribute("aria-sort") for each in browser.find_elements("css selector", "#span-table thead th")]
    assert states[1] == "ascending" and states.count(None) == len(states) - 1
    type_into(browser, "filter", "first call")
    assert texts(browser, "#span-table tbody th") == ["first call of numba:direct@cpu"]
    assert text(browser, "#rows-shown").startswith("1 of ")
    browser.find_element("id", "filter").clear()
    browser.execute_script(
        "const k = document.getElementById('kind'); k.value = 'transfer'; k.dispatchEvent(new Event('change'))"
    )
    type_into(browser, "filter", "sim")
    assert texts(browser, "#span-table tbody th") == ["host->sim:0"]
    assert problems(browser) == []


def runs(tmp_path: Path, name: str, slower: float, offset: int) -> Path:
    """Nine repeats that take turns with those of another offset."""
    profiler = Profiler()
    for _ in range(9):
        with profiler.profile("run"), profiler.profile("work"):
            pass
    document = profiler.document().to_dict()
    document["begun_unix_ns"] = 0
    for number, span in enumerate(document["spans"]):
        repeat = number // 2
        span["start_ns"] = repeat * 10**9 + offset
        span["duration_ns"] = int(slower * 10**6 * (1 + 0.002 * repeat))
    path = tmp_path / f"{name}.json"
    import json

    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_second_file_becomes_a_comparison(browser: Any, files: tuple[Path, Path], tmp_path: Path):
    """The page gives the verdicts that the library gives; a file that is no profile is refused in words."""
    first, second = runs(tmp_path, "before", 1.0, 0), runs(tmp_path, "after", 1.3, 5 * 10**8)
    page = tmp_path / "before.html"
    page.write_text(render_page(load_profile(first)), encoding="utf-8")
    show(browser, page)
    drop(browser, second)
    expected = compare_profiles(first, second)
    rows = texts(browser, "#compare-table tbody tr")
    assert len(rows) == len(expected.rows) == 2
    assert all("slower" in row and "1.30x" in row for row in rows)
    assert [row.verdict for row in expected.rows] == ["slower", "slower"]
    p = browser.execute_script(
        "return hpfraccProfile.compare(hpfraccProfile.profile, hpfraccProfile.profile).map((r) => r.p)"
    )
    assert p == [1, 1]
    samples = ([1.5, 2, 9, 4, 7.5, 6, 5], [3, 8, 10, 11, 12, 13, 14, 15])
    from hpfracc.profiling.comparison import rank_test

    exact = browser.execute_script("return hpfraccProfile.rankTest(arguments[0], arguments[1])", *samples)
    assert exact == pytest.approx(rank_test(*samples), rel=1e-9)
    tied = ([1, 2, 2, 3] * 9, [2, 3, 3, 5] * 9)
    found = browser.execute_script("return hpfraccProfile.rankTest(arguments[0], arguments[1])", *tied)
    assert found == pytest.approx(rank_test(*tied), rel=1e-6)
    browser.find_element("id", "compare-close").click()
    (tmp_path / "other.json").write_text("[1, 2]", encoding="utf-8")
    drop(browser, tmp_path / "other.json")
    assert "other.json cannot be shown: this is no profile" in text(browser, "#message")
    assert problems(browser) == []


def test_a_page_without_data_takes_a_file(browser: Any, files: tuple[Path, Path], tmp_path: Path):
    """It says what to do, and shows what is dropped on it."""
    page = tmp_path / "empty.html"
    page.write_text(render_page(None), encoding="utf-8")
    show(browser, page)
    assert "Drop a profile here" in text(browser, "#empty")
    drop(browser, files[1])
    assert text(browser, "h1") == "run.json"
    assert EVIL in texts(browser, "#span-table tbody th")
    assert inked(browser, "flame-canvas") > 8
    assert problems(browser) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_screen(browser: Any, files: tuple[Path, Path], tmp_path: Path, width: int):
    """Nothing sticks out at either side, light and dark; the screenshots are kept where ``BROWSER_ARTIFACTS`` says."""
    show(browser, files[0], width)
    folder = Path(ARTIFACTS) if ARTIFACTS else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        full_screenshot(browser, folder / f"profile-{width}-{theme}.png", width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script("return document.documentElement.dataset.theme") == theme
        browser.find_element("id", "theme").click()
        settle(browser)
    assert (folder / f"profile-{width}-dark.png").stat().st_size > 20_000
    assert problems(browser) == []


def test_everything_is_reached_by_keyboard(browser: Any, files: tuple[Path, Path]):
    """Tab goes through every control; each has a name."""
    show(browser, files[0])
    reached = set()
    from selenium.webdriver import ActionChains

    for _ in range(40):
        ActionChains(browser, duration=0).send_keys("\ue004").perform()
        reached.add(browser.execute_script("return document.activeElement.id || document.activeElement.className"))
    assert {"file", "theme", "lane", "search", "zoom-in", "flame-canvas", "filter", "kind", "scroll"} <= reached
    unnamed = browser.execute_script(
        """const named = (each) => each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length;
           const controls = [...document.querySelectorAll('button, input, select, canvas')];
           return controls.filter((each) => !named(each)).length"""
    )
    assert unnamed == 0


@pytest.mark.parametrize("steps", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_hundred_thousand_spans_stay_fluid(browser: Any, tmp_path: Path, steps: int):
    """Frames at any zoom are drawn in far less than the blink that is noticed; an ordinary run has a tenth of them."""
    profiler = Profiler(capacity=100 * steps)
    for _ in range(steps):
        with profiler.profile("step"):
            for inner in range(33):
                with profiler.profile(f"part {inner % 7}"), profiler.profile("leaf"), profiler.profile("kernel"):
                    pass
    page = profiler.report(tmp_path / "large.html")
    assert page.stat().st_size < 12e6
    show(browser, page)
    times = browser.execute_script(
        """const chart = hpfraccProfile.chart, times = [];
           const draw = () => { chart.draw(); times.push(chart.lastFrame); };
           for (let zoom = 0; zoom < 40; zoom++) { chart.zoom(0.8, chart.profile.begin + 3e6); draw(); }
           chart.showAll();
           for (let pan = 0; pan < 20; pan++) { chart.zoom(0.9); chart.pan(0.1); draw(); }
           return times.sort((a, b) => a - b)"""
    )
    assert times[len(times) // 2] < 50, times
    type_into(browser, "search", "leaf")
    assert text(browser, "#matches").endswith(" spans")
    assert problems(browser) == []
