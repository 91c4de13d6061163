"""The page's source: one file, nothing from outside, names escaped, and a policy that allows its own code alone."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources

from hpfracc.profiling import Profiler
from hpfracc.profiling.exports import render_page

EVIL = "</script><script>alert(1)</script><!--"


def page_of(profiler: Profiler, title: str = "") -> str:
    return render_page(profiler.document().to_dict(), title)


def small() -> Profiler:
    profiler = Profiler()
    with profiler.profile("outer", note=EVIL), profiler.profile(EVIL):
        pass
    return profiler


def test_it_is_small_and_whole():
    """Under 300 kB without data, with every placeholder filled, and no address of anything outside."""
    page = render_page(None)
    assert len(page.encode()) < 300_000
    assert "{{" not in page.replace("${{", "") or "{{" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert re.findall(r"https?://|src=|@import|url\(", page) == []
    assert "<title>hpfracc profile</title>" in page


def test_the_policy_allows_its_own_code_alone():
    """``default-src 'none'``, and hashes of exactly the style and the script that are there."""
    page = page_of(small())
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert found is not None
    policy = html.unescape(found[1])
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy


def test_names_cannot_leave_their_place():
    """A name that ends a script ends nothing, in the data as in the title, and comes back as it was."""
    page = page_of(small(), title=EVIL)
    assert EVIL not in page
    assert page.count("<script") == 2
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.S)
    spans = json.loads(data)["spans"]
    assert [span["name"] for span in spans] == ["outer", EVIL]
    assert spans[0]["metadata"] == {"note": EVIL}


def test_the_title_is_the_command():
    """Unless one is given."""
    assert "<h1>mine</h1>" in page_of(small(), "mine")
    document = small().document().to_dict()
    document["process"]["command"] = ["train.py", "--fast"]
    assert "<h1>train.py --fast</h1>" in render_page(document)


def test_a_span_costs_the_page_a_few_bytes():
    """A hundred thousand spans make a page of some fifteen megabytes."""
    profiler = Profiler(capacity=2000)
    for number in range(2000):
        with profiler.profile(f"step {number % 20}"):
            pass
    assert (len(page_of(profiler)) - len(render_page(None))) / 2000 < 200


def test_the_scripts_are_short_files():
    """One idea a file here too."""
    folder = resources.files("hpfracc.profiling").joinpath("dashboard")
    sources = [entry for entry in folder.iterdir() if entry.name.endswith((".js", ".css", ".html"))]
    assert len(sources) > 8
    assert all(len(entry.read_text(encoding="utf-8").splitlines()) < 400 for entry in sources)
