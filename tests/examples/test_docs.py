import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT, blocks, runnable

from zot.testing.fakeserver import FakeServer

PAGES = ("docs/sdk.md", "docs/clients.md", "docs/conformance.md", "docs/start.md")
PAGES += ("docs/recipes.md",)
PYTHON = [block for page in (*PAGES, "README.md") for block in runnable(page, "python")]
# What replays needs what another example recorded: a test of its own runs the two in their order.
SHELL = [block for page in PAGES for block in runnable(page, "sh") if "--replay" not in block.text]


@pytest.fixture(scope="module")
def server():
    with FakeServer() as server:
        yield server


@pytest.fixture(scope="module")
def place(server, tmp_path_factory):
    """Where the blocks of the documents run, and with which environment; one for all of them."""
    folder = tmp_path_factory.mktemp("docs")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "EXAMPLES": str(ROOT / "examples"),
        "ZOT_HOME": str(folder / "home"),
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": server.url,
    }
    return folder, environment


def run(command, place, given=None):
    folder, environment = place
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("block", PYTHON, ids=str)
@pytest.mark.slow
def test_a_python_example_runs(block, place):
    run([sys.executable, "-W", "error", "-"], place, block.text)


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_a_shell_example_runs(block, place):
    for sign, program in (("node", "node"), ("jq", "jq"), ("prompt.sh", "jq")):
        if sign in block.text and shutil.which(program) is None:
            pytest.skip(f"the example was not run: {program} is not installed")
    run(["bash", "-euo", "pipefail", "-c", block.text], place)


def test_a_recorded_prompt_is_replayed_as_the_page_says(place):
    page = [block.text for block in runnable("docs/conformance.md", "sh")]
    record = next(text for text in page if "--record" in text)
    replay = next(text for text in page if "--replay" in text)
    first = run(["bash", "-c", record], place).stdout.splitlines()
    folder, environment = place
    offline = {name: value for name, value in environment.items() if "ANTHROPIC" not in name}
    second = run(["bash", "-c", replay], (folder, offline)).stdout.splitlines()
    assert len(second) == len(first)
    assert second[-1] == '{"type":"done"}'


def test_the_table_of_observed_frames_is_the_code():
    from zot.observe.tables import ZOT

    page = (ROOT / "docs" / "clients.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for frame, event in ZOT.items():
        (row,) = [line for line in rows if f"`{frame}`" in line.split("|")[1]]
        assert f"`{event}`" in row.split("|")[2]


def test_the_settings_on_the_page_are_those_of_config():
    from zot.sdk import Config

    page = (ROOT / "docs" / "sdk.md").read_text()
    table = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    # script belongs to the scripted provider, which the page shows as an object instead.
    assert [name for name in Config.__struct_fields__ if f"`{name}`" not in table] == ["script"]


# --- the reader of blocks itself -------------------------------------------------------------


def test_blocks_are_read_with_their_language_line_and_reason(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n```python\nx = 1\n```\n<!-- not run: why -->\n```sh\nls\n\n```\n")
    first, second = blocks(page)
    assert (first.language, first.line, first.text, first.not_run) == ("python", 2, "x = 1\n", None)
    assert (second.language, second.text, second.not_run) == ("sh", "ls\n\n", "why")
    assert runnable(page, "sh") == []
    assert str(first) == "page.md:2"


@pytest.mark.parametrize("text", ["```python\nx\n", "<!-- not run: -->\n```sh\nls\n```\n"])
def test_a_block_that_is_not_closed_or_has_no_reason_is_an_error(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=r"page\.md"):
        blocks(page)
