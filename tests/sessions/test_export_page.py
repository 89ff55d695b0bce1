"""The exported page in a real browser: what a person sees, and what the browser fetched for it."""

import base64
from contextlib import closing

import pytest
from support.browser import CHROMIUM, Browser
from support.rpc import make_folder, run_zot

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
EDIT = {"path": "a.py", "edits": [{"oldText": "two", "newText": "three"}]}
TURNS = [
    {"thinking": "let me see", "tools": [{"name": "read", "args": {"path": "dot.png"}}]},
    {"tools": [{"name": "edit", "args": EDIT}]},
    {"tools": [{"name": "bash", "args": {"command": "seq 100; printf %0500d 0"}}]},
    {"text": "All **done**: <script>document.title = 'taken'</script>"},
]


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    with closing(Browser(tmp_path / "chromium")) as browser:
        yield browser


@pytest.mark.slow
def test_a_person_reads_a_session_in_a_browser(browser, tmp_path):
    work = make_folder(tmp_path)
    (work / "dot.png").write_bytes(PIXEL)
    (work / "a.py").write_text("one\ntwo\n")
    assert run_zot(tmp_path, ["-p", "change <it>"], turns=TURNS).returncode == 0
    exported = run_zot(tmp_path, ["sessions", "export", "latest", "page.html"])
    assert exported.returncode == 0, exported.stderr
    browser.open((work / "page.html").as_uri())

    assert browser.run("document.title") == "change <it>"
    assert browser.run("document.scripts.length") == 0
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    assert browser.run("document.querySelector('img').naturalWidth") == 1
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.run("document.querySelector('strong').innerText") == "done"
    # The style is not kept out by the page's own policy.
    colour = "getComputedStyle(document.querySelector('{}')).backgroundColor"
    assert browser.run(colour.format(".add")) != browser.run(colour.format(".del"))


@pytest.mark.slow
def test_a_tool_call_opens_and_closes(browser, tmp_path):
    work = make_folder(tmp_path)
    assert run_zot(tmp_path, ["-p", "count"], turns=TURNS[2:]).returncode == 0
    run_zot(tmp_path, ["sessions", "export", "latest", "page.html"])
    browser.open((work / "page.html").as_uri())
    call = "document.querySelector('details')"
    shown = f"{call}.innerText.includes('\\n99\\n')"
    closed, opened = browser.run(f"{call}.open"), browser.run(shown)
    assert closed == opened
    browser.run(f"{call}.querySelector('summary').click()")
    assert browser.wait_for(f"{call}.open === {str(not closed).lower()}")
    assert browser.run(shown) != opened


HOSTILE = """# Plan

*emph* <img src=x onerror="document.title='taken'"> [bad](javascript:document.title='taken')
![far](http://127.0.0.1:9/a.png) [good](https://example.org/a "a title")

```python
def hello(name: str) -> str:
    return f"hello {name}"  # greets
```
"""


def test_markdown_is_rendered_code_has_colours_and_hostile_text_does_nothing(browser, tmp_path):
    work = make_folder(tmp_path)
    assert run_zot(tmp_path, ["-p", "go"], turns=[{"text": HOSTILE}]).returncode == 0
    run_zot(tmp_path, ["sessions", "export", "latest", "page.html"])
    browser.open((work / "page.html").as_uri())
    assert browser.run("document.querySelector('h3').innerText") == "Plan"
    assert browser.run("document.querySelector('em').innerText") == "emph"
    assert browser.run("[...document.links].map(link => link.href)") == [
        "http://127.0.0.1:9/a.png",
        "https://example.org/a",
    ]
    assert browser.run("document.images.length") == 0
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    assert browser.run("document.title") == "go"
    colours = "[...document.querySelectorAll('pre span')].map(at => getComputedStyle(at).color)"
    assert len(set(browser.run(colours))) > 2
