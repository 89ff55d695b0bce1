"""The pages of docs/: links that lead somewhere, and a site that can be built."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT, blocks

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page):
    """The anchors of a page's headings, as code hosts and mkdocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}


def prose(page):
    """The text of a page without its code blocks."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        text = text.replace(block.text, "")
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    wrong = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_every_page_is_in_the_site():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name not in site] == []


@pytest.mark.slow
def test_the_site_is_built_and_needs_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("material", reason="mkdocs-material is not installed: dev.py docs does it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")]
    assert len(pages) > len(PAGES)
    for page in pages:
        assert re.findall(r'(?:src|rel="stylesheet" href)="https?://[^"]*"', page) == []
    assert "zot.AsyncClient" in (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert "(sdk.html)" in (tmp_path / "llms.txt").read_text(encoding="utf-8")


def test_the_unit_of_the_swarm_is_valid(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = (ROOT / "contrib" / "zot-swarm.service").read_text(encoding="utf-8")
    unit = tmp_path / "zot-swarm.service"
    unit.write_text(text.replace("%h/.local/bin/zot", str(Path(sys.executable).parent / "zot")))
    command = [program, "--user", "verify", "--man=no", str(unit)]
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert unit.name not in done.stderr, done.stderr
