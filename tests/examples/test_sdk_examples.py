import http.client
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.browser import CHROMIUM, Browser
from support.docs import ROOT
from support.patience import PATIENCE

from zot.testing.fakeserver import FakeServer

SDK = ROOT / "examples" / "sdk"


@pytest.fixture(scope="module")
def server():
    with FakeServer() as server:
        yield server


@pytest.fixture
def environment(server, tmp_path):
    return {
        **os.environ,
        "ZOT_HOME": str(tmp_path / "home"),
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": server.url,
        "PROVIDER": "anthropic",
    }


def run(environment, cwd, name, *words, given=""):
    return subprocess.run(
        [sys.executable, str(SDK / name), *words],
        env=environment,
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_chat_keeps_one_conversation(environment, tmp_path):
    (tmp_path / "a.txt").write_text("inside")
    given = "say:hello\ntool:read:a.txt\n"
    done = run(environment, tmp_path, "chat.py", "anthropic", given=given)
    assert (done.returncode, "hello" in done.stdout) == (0, True), done.stderr
    assert "[read {'path': 'a.txt'}]" in done.stderr
    assert re.search(r"\d+ tokens, \$0\.\d+", done.stdout)


def test_the_chat_says_what_is_missing(environment, tmp_path):
    del environment["ANTHROPIC_API_KEY"]
    done = run(environment, tmp_path, "chat.py", "anthropic")
    assert done.returncode == 1
    assert "no credential for anthropic" in done.stderr


def test_the_custom_tool_is_called(environment, tmp_path):
    prompt = (
        'tool:stock:{"fruit":"apple","unit":"boxes"}\ntool:stock:{"fruit":"kiwi"}\nthen\nsay:ok'
    )
    done = run(environment, tmp_path, "custom_tool.py", prompt, "anthropic")
    assert done.stdout == "ok\n"
    assert "text='2'" in done.stderr
    assert "we do not sell 'kiwi'" in done.stderr


def test_the_guard_blocks_and_changes(environment, tmp_path):
    prompt = "tool:bash:rm -rf notes\ntool:write:secrets.txt\ntool:bash:echo fine\nthen\nsay:ok"
    done = run(environment, tmp_path, "guarded.py", prompt, "anthropic")
    assert done.stdout == "ok\n"
    assert "nothing is deleted here" in done.stderr
    assert done.stderr.count("[refused") == 2


def test_many_agents_work_side_by_side(environment, tmp_path):
    prompts = [f"text:3 delay:{delay}" for delay in (300, 1)] + ["say:three words here"]
    done = run(environment, tmp_path, "many_agents.py", *prompts)
    lines = done.stdout.splitlines()
    assert sorted(lines) == ["1: abcd abcd abcd ", "2: abcd abcd abcd ", "3: three words here"]
    assert lines[-1].startswith("1:")


@pytest.fixture
def web(environment, tmp_path):
    """The address of the web example, served by uvicorn."""
    command = [sys.executable, "-m", "uvicorn", "web:app", "--app-dir", str(SDK), "--port", "0"]
    process = subprocess.Popen(
        command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                yield int(found[1])
                break
    finally:
        process.terminate()
        process.stderr.read()
        process.stderr.close()
        process.wait(30)


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    return connection, connection.getresponse()


def test_the_web_page_gets_the_events(web):
    connection, response = get(web, "/")
    assert b"EventSource" in response.read()
    connection.close()
    connection, response = get(web, "/ask?prompt=say:hello%20there")
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = [json.loads(part[6:]) for part in response.read().decode().split("\n\n") if part]
    connection.close()
    assert "".join(f["delta"] for f in frames if f["type"] == "text_delta") == "hello there"
    assert frames[-1] == {"type": "done"}


def test_a_web_reader_that_goes_away_ends_its_agent(web, server):
    connection, response = get(web, "/ask?prompt=text:2000%20delay:20")
    while b"text_delta" not in response.readline():
        pass
    response.close()
    connection.close()
    deadline = time.monotonic() + 20
    while server.requests[-1].outcome == "open" and time.monotonic() < deadline:
        server.wait_outcome("gone", 1)
    assert server.requests[-1].outcome == "gone"


@pytest.mark.skipif(CHROMIUM is None, reason="the page was not tried: no chromium is installed")
@pytest.mark.slow
def test_the_web_page_in_a_browser_shows_the_answer(web, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(f"http://127.0.0.1:{web}/")
        browser.run("document.querySelector('input').value = 'say:hello from the page'")
        browser.run("document.querySelector('button').click()")
        shown = "document.getElementById('out').textContent"
        assert browser.wait_for(f"{shown} === 'hello from the page'")
        browser.run("document.querySelector('input').value = 'status:400'")
        browser.run("document.querySelector('button').click()")
        assert browser.wait_for(f"{shown}.includes('error: anthropic')")
    finally:
        browser.close()


def test_the_bot_answers_each_message_once_whatever_kills_it(environment, tmp_path, server):
    (tmp_path / "a.question").write_text("say:first")
    (tmp_path / "b.question").write_text("tries:1 hang:headers say:second")
    asked = len(server.requests)
    command = [sys.executable, str(SDK / "bot.py"), str(tmp_path), "anthropic"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as bot:
        assert bot.stdout.readline() == "a: first\n"
        server.wait_for(asked + 2, PATIENCE)
        bot.kill()
    assert not (tmp_path / "b.answer").exists()
    done = run(environment, tmp_path, "bot.py", str(tmp_path), "anthropic")
    assert (done.returncode, done.stdout) == (0, "b: second\n"), done.stderr
    (tmp_path / "b.answer").unlink()  # killed after the answer and before it was delivered
    asked = len(server.requests)
    done = run(environment, tmp_path, "bot.py", str(tmp_path), "anthropic")
    assert (done.stdout, len(server.requests)) == ("b: second\n", asked)


@pytest.mark.parametrize(("verdict", "code"), [("go", 0), ("stop", 1)])
def test_the_review_in_ci_fails_on_its_verdict(environment, tmp_path, verdict, code):
    script = tmp_path / "turns.json"
    script.write_text(json.dumps({"turns": [{"text": f"Fine.\nVERDICT: {verdict}"}]}))
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    environment |= {"BASE": "HEAD", "ZOT_BIN": str(Path(sys.executable).parent / "zot")}
    command = ["sh", str(ROOT / "examples" / "ci" / "review.sh"), "--provider", "scripted"]
    done = subprocess.run(
        [*command, "--script", str(script)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, f"VERDICT: {verdict}" in done.stdout) == (code, True), done.stderr
