import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import uncovered

ROOT = Path(__file__).parent.parent.parent


def zot(*words, **variables):
    command = [sys.executable, "-m", "zot", *words]
    environ = {**uncovered(), **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ)


def test_the_pages_are_listed_with_their_titles():
    done = zot("docs")
    assert done.returncode == 0
    assert "  rpc" in done.stdout and "The wire of `zot rpc`" in done.stdout


@pytest.mark.parametrize("name", ["sdk", "sdk.md", "docs/sdk.md"])
def test_a_page_is_printed_where_there_is_no_terminal(name):
    assert zot("docs", name).stdout == (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")


def test_a_wrong_page_names_the_nearest():
    done = zot("docs", "swrm")
    assert (done.returncode, "did you mean swarm?" in done.stderr) == (2, True)


def test_the_help_names_the_pages():
    assert "`zot docs` lists the pages" in zot("--help").stdout


# --- the line that installs an extra, and the addresses ----------------------------------------


def installed(folder, origin, more=""):
    """Make a distribution that hides the real one; return the variable that shows it."""
    about = folder / "zot_agent-9.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: zot-agent\nVersion: 9.9\n{more}")
    if origin is not None:
        (about / "direct_url.json").write_text(json.dumps(origin))
    return {"PYTHONPATH": f"{folder}:{ROOT / 'src'}"}


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "-m pip install 'zot-agent[web]'"),
        ({"url": "file:///home/me/my%20clone", "dir_info": {}}, "'/home/me/my clone[web]'"),
        ({"url": "file:///c", "dir_info": {"editable": True}}, "pip install -e '/c[web]'"),
        (
            {"url": "https://host/zot.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "'zot-agent[web] @ git+https://host/zot.git'",
        ),
    ],
)
def test_the_line_for_an_extra_fits_the_installation(tmp_path, origin, expected):
    code = "from zot.extras import install_command; print(install_command('web'))"
    environ = {**uncovered(), **installed(tmp_path, origin)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
    assert expected in done.stdout


def test_addresses_come_from_the_metadata_alone(tmp_path):
    place = installed(tmp_path, None, "Project-URL: Documentation, https://zot.invalid/docs\n")
    assert zot("--help", **place).stdout.endswith("https://zot.invalid/docs\n")
    assert "Documentation: https://zot.invalid/docs" in zot("docs", **place).stdout
