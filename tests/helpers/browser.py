"""A real Chromium without a network, where one is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    # Every name resolves to nothing, so that whatever a page asked for would fail, and be seen in the console.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def find_browser() -> tuple[str, str] | None:
    """Paths of a browser and of its driver, or None."""
    browsers = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    browser, driver = next((path for path in browsers if path), None), shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@contextmanager
def start_browser(width: int = 1280, height: int = 900, *flags: str) -> Iterator[Any]:
    """A WebDriver; its console is kept, and its network is off."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    found = find_browser()
    assert found is not None
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for flag in (*FLAGS, f"--window-size={width},{height}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(found[1]))
    try:
        driver.execute_cdp_cmd("Network.enable", {})
        driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions",
            {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
        )
        yield driver
    finally:
        driver.quit()


def resize(driver: Any, width: int, height: int, *, mobile: bool = False) -> None:
    """Make the page ``width`` points wide, narrower than a window can be."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile},
    )


def full_screenshot(driver: Any, path: Any, width: int) -> None:
    """The whole page as an image, however long."""
    resize(driver, width, 900, mobile=width < 600)
    height = driver.execute_script("return document.documentElement.scrollHeight")
    resize(driver, width, min(8000, height), mobile=width < 600)
    driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
    driver.save_screenshot(str(path))
