"""The built documentation in a real Chromium without a network. ``make docs`` builds it; else these tests skip."""

from __future__ import annotations

import base64
import os
import posixpath
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import find_browser, full_screenshot, resize, start_browser
from tests.helpers.source import REPOSITORY

SITE = REPOSITORY / "docs" / "_build" / "html"
PAGES = (
    "index",
    "tutorials/first-steps",
    "tutorials/noise-that-remembers",
    "how-to/control",
    "how-to/faq",
    "migration/matlab",
    "reference/cheat-sheet",
    "reference/operators",
    "reference/operators/caputo",
    "reference/control/TransferFunction",
    "reference/equations/solve_fode",
    "gallery/index",
    "explanation/peers",
)
#: Where the screenshots go, if they are to be kept.
ARTIFACTS = os.environ.get("BROWSER_ARTIFACTS")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_browser() is None, reason="no chromium with chromedriver"),
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the documentation is not built: make docs"),
]
pytest.importorskip("selenium")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with start_browser() as found:
        yield found


def visit(driver: Any, page: str) -> None:
    driver.get((SITE / f"{page}.html").as_uri())
    driver.execute_async_script("document.fonts.ready.then(() => arguments[0]())")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_no_network_and_fits_a_phone(driver: Any, page: str):
    """Everything comes from the folder of the site, in light and dark, and nothing is wider than 360 points."""
    for scheme in ("light", "dark"):
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        for width in (360, 1300):
            resize(driver, width, 900, mobile=width < 600)
            visit(driver, page)
            loaded = driver.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
            assert [name for name in loaded if not name.startswith(("file:", "data:"))] == []
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            if ARTIFACTS:
                name = f"{page.replace('/', '-')}-{width}-{scheme}.png"
                Path(ARTIFACTS).mkdir(parents=True, exist_ok=True)
                full_screenshot(driver, Path(ARTIFACTS) / name, width)
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_formulas_are_drawn_with_the_bundled_font(driver: Any):
    """The font of formulas is loaded from the site."""
    visit(driver, "tutorials/first-steps")
    family = driver.execute_script("return getComputedStyle(document.querySelector('math')).fontFamily")
    assert family.startswith('"STIX Two Math"')
    fonts = driver.execute_script("return [...document.fonts].map(each => [each.family, each.status])")
    assert ["STIX Two Math", "loaded"] in [[family.strip('"'), status] for family, status in fonts]


@pytest.mark.parametrize(
    ("words", "page"), [("caputo", "reference/operators"), ("transfer+function", "reference/control")]
)
def test_search_finds_a_name(driver: Any, words: str, page: str):
    """A search lists the page of the reference."""
    driver.get((SITE / "search.html").as_uri() + f"?q={words}")
    deadline = time.monotonic() + 60.0
    found: list[str] = []
    while not any(page in each for each in found) and time.monotonic() < deadline:
        time.sleep(0.2)
        found = driver.execute_script(
            "return [...document.querySelectorAll('#search-results a')].map(each => each.href)"
        )
    assert any(page in each for each in found)


def test_the_cheat_sheet_prints_on_one_page(driver: Any):
    """A4, without backgrounds."""
    visit(driver, "reference/cheat-sheet")
    printed = driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    assert len(re.findall(rb"/Type ?/Page\b", base64.b64decode(printed["data"]))) == 1


def test_pages_are_small():
    """None has more than 300 kB."""
    assert [path.name for path in SITE.rglob("*.html") if path.stat().st_size > 300_000] == []


@pytest.mark.parametrize(
    "goal",
    [
        "gallery/creep_fit", "reference/control/FOPID", "gallery/rough_smile", "tutorials/learn-an-order",
        "how-to/choose-a-backend", "how-to/clusters",
    ],
)  # fmt: skip
def test_three_clicks_lead_there(goal: str):
    """From the first page, by links in the text."""
    reached = {"index"}
    for _ in range(3):
        reached |= {target for page in reached for target in links(page)}
    assert goal in reached


def links(page: str) -> set[str]:
    """The pages to which the text of a page links."""
    article = (SITE / f"{page}.html").read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    targets = re.findall(r'href="([^":#]+)\.html', article)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets}


@pytest.mark.parametrize("page", PAGES)
def test_no_markup_is_left(driver: Any, page: str):
    """Text shows no roles, fences or comments of its source. Parameters such as ``**options`` are no markup."""
    visit(driver, page)
    text = driver.execute_script(
        "const copy = document.querySelector('article').cloneNode(true);"
        "copy.querySelectorAll('pre, code, dt, dl.field-list strong').forEach(each => each.remove());"
        "return copy.innerText"
    )
    for mark in ("```", ":func:", ":class:", "<!--", "{download}", "**", "$$"):
        assert mark not in text


@pytest.mark.parametrize(
    ("page", "selector", "copied"),
    [
        ("tutorials/first-steps", "div.highlight-console", ["pip install .", "pip install '.[plot]'"]),
        ("reference/control", "div.highlight-python", ["from hpfracc import control", "", "s = control.s"]),
        (
            "reference/control/s",
            "div.doctest",
            ["from hpfracc import control", "s = control.s", "G = 1 / (s**0.5 + 1)"],
        ),
    ],
)
def test_code_is_copied(driver: Any, page: str, selector: str, copied: list[str]):
    """The button of a block is reached with the keyboard, copies what is typed and no prompts, and says so."""
    from selenium.webdriver.common.keys import Keys

    visit(driver, page)
    driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    block = driver.find_element("css selector", selector)
    button = block.find_element("css selector", "button.copy")
    driver.execute_script("arguments[0].focus({focusVisible: true})", button)
    assert float(button.value_of_css_property("opacity")) == 1.0
    button.send_keys(Keys.ENTER)
    deadline = time.monotonic() + 10.0
    while button.text == "Copy" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert button.text == "Copied"
    text = driver.execute_async_script("navigator.clipboard.readText().then(arguments[0], arguments[0])")
    assert [line.split("  ")[0] for line in text.splitlines()][: len(copied)] == copied
    assert ">>>" not in text
