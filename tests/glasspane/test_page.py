"""The page in a real browser, with real agents."""

import http.client
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.browser import CHROMIUM, Browser
from support.extension import wait_for
from swarm.cluster import below
from swarm.support import bash, says
from swarm.support import place as place

from glasspane.support import Pane, Terminal, command_lines
from zot.swarm import rows
from zot.swarm.checkout import changing
from zot.swarm.log import AgentFolder, LogWriter
from zot.swarm.task import SwarmTask

pytestmark = pytest.mark.long

HOSTILE = (
    "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>\u202e\x1b[31m &amp; `x`"
)
ROWS = "[...document.querySelectorAll('.row')].map(row => row.innerText)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    with closing(Browser(tmp_path_factory.mktemp("chromium"))) as made:
        yield made


@pytest.fixture
def pane(place):
    frames = [
        {"type": "user_message", "content": [{"type": "text", "text": HOSTILE}]},
        {"type": "turn_start", "step": 1},
        {"type": "text_delta", "delta": f"# {HOSTILE}\n\n- {HOSTILE}\n\n[x](javascript:alert(1))"},
        {"type": "tool_use_start", "id": "1", "name": HOSTILE},
        {"type": "tool_call", "id": "1", "name": HOSTILE, "args": {"command": HOSTILE}},
        {"type": "turn_end", "stop": "tool_use"},
        {"type": "tool_progress", "id": "1", "text": HOSTILE},
        {"type": "tool_result", "id": "1", "content": [{"type": "text", "text": HOSTILE}]},
        {"type": "error", "message": HOSTILE},
        {"type": "done"},
    ]
    path = place.scripts / "hostile.jsonl"
    path.write_text("".join(json.dumps(frame) + "\n" for frame in frames))
    with closing(Pane(place.environment, place.repository, str(path))) as made:
        yield made


def press(browser, key):
    browser.run(
        f"document.activeElement.blur(); document.body.dispatchEvent("
        f"new KeyboardEvent('keydown', {{key: {json.dumps(key)}, bubbles: true}}))"
    )


def click(browser, text):
    browser.wait_for(
        f"(b => b && !b.closest('[hidden]') && (b.click(), true))"
        f"([...document.querySelectorAll('button')].find(b => b.innerText.startsWith('{text}')))"
    )


def test_the_code_leaves_the_address_at_once_and_the_board_is_shown(browser, pane):
    browser.open(pane.url)
    browser.wait_for(f"{ROWS}.length === 1")
    assert "failed" in browser.run(ROWS)[0]
    history = [entry["url"] for entry in browser.call("Page.getNavigationHistory")["entries"]]
    assert "code=" not in json.dumps([browser.run("location.href"), history])
    assert pane.ask("/login", {"code": pane.code})[0] == 401  # it is worth nothing any more
    assert browser.run("document.cookie") == ""
    assert browser.call("Network.getCookies", urls=[pane.url])["cookies"] == []


def test_a_reload_a_second_tab_and_a_new_link_keep_the_session(browser, pane):
    browser.open(pane.url)
    browser.wait_for(f"{ROWS}.length === 1")
    browser.call("Page.reload")
    browser.wait_for(f"{ROWS}.length === 1")
    address = pane.url.partition("#")[0]
    with closing(Tab(browser, address)) as tab:
        tab.wait_for(f"{ROWS}.length === 1")
    browser.run(f"location.href = {json.dumps(pane.link())}")
    browser.wait_for("location.hash === '' && document.readyState === 'complete'")
    browser.wait_for(f"{ROWS}.length === 1")


def test_a_browser_without_a_session_can_be_given_a_code(browser, pane):
    browser.open(pane.url.partition("#")[0])
    browser.wait_for("document.querySelector('.login') !== null")
    for code, done in (("guess", "document.body.innerText.includes('not known')"),
                       (pane.code, f"{ROWS}.length === 1")):  # fmt: skip
        browser.run(f"document.querySelector('.login input').value = {json.dumps(code)}")
        click(browser, "Open")
        browser.wait_for(done)


class Tab(Browser):
    """One more tab of a browser."""

    def __init__(self, browser, url):
        self.__dict__.update(browser.__dict__)
        self._session = ""
        self._target = self.call("Target.createTarget", url=url)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        self._browser = browser

    def close(self):
        self.call("Target.closeTarget", targetId=self._target)
        self._browser._next = self._next
        self._browser._buffer = self._buffer


class Stranger(ThreadingHTTPServer):
    """Another server on this machine, with a page that tries everything."""

    daemon_threads = True

    def __init__(self, pane):
        super().__init__(("127.0.0.1", 0), StrangeHandler)
        self.requests = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        self.page = STRANGE.replace("PANE", pane.url.partition("#")[0]).encode()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class StrangeHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode(errors="replace")
        self.server.requests.append(f"{self.path} {self.headers} {body}")
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.server.page)

    do_POST = do_GET

    def log_message(self, *words):
        pass


STRANGE = """<!doctype html><title>stranger</title><body><script>
const pane = "PANE", got = [];
const attempt = async (name, work) => {
  try { const value = await work(); if (value) got.push([name, String(value)]); } catch { /* no */ }
};
const task = JSON.stringify({ prompt: "from a stranger" });
const later = (ms) => new Promise((done) => setTimeout(() => done(""), ms));
window.tried = (async () => {
  for (const mode of ["cors", "no-cors"])
    for (const path of ["events", "agents/hostile/raw", "agents/hostile/events", "login", "agents"])
      for (const method of ["GET", "POST"])
        for (const headers of [{}, { "x-zot": "1", "content-type": "application/json" }])
          await attempt(`${method} ${path}`, async () => {
            const options = { mode, method, headers, credentials: "include" };
            if (method === "POST") options.body = task;
            options.signal = AbortSignal.timeout(2000);
            return (await fetch(pane + path, options)).text();
          });
  await attempt("stream", () => Promise.race([later(500), new Promise((done) => {
    new EventSource(pane + "events", { withCredentials: true })
      .addEventListener("snapshot", (event) => done(event.data));
  })]));
  await attempt("channel", () => Promise.race([later(1000), new Promise((done) => {
    const channel = new BroadcastChannel("glasspane");
    channel.onmessage = ({ data }) => { if (data.secret) done(data.secret); };
    channel.postMessage("ask");
  })]));
  await attempt("worker", () => new SharedWorker(pane + "worker.js", { type: "module" }) && "");
  await attempt("storage", () => sessionStorage.getItem("session") || document.cookie);
  await attempt("frame", async () => {
    const frame = document.createElement("iframe");
    frame.src = pane;
    document.body.append(frame);
    await later(700);
    return frame.contentDocument?.body?.innerText;
  });
  await attempt("window", async () => {
    const other = window.open(pane);
    await later(700);
    return other?.document?.body?.innerText;
  });
  const form = document.createElement("form");
  form.method = "POST"; form.action = pane + "agents"; form.enctype = "text/plain";
  form.target = "f";
  const field = document.createElement("input");
  field.name = '{"prompt":"from a stranger","x":"'; field.value = '"}';
  form.append(field);
  const target = document.createElement("iframe");
  target.name = "f";
  document.body.append(form, target);
  form.submit();
  await later(500);
  return JSON.stringify(got);
})();
</script>"""


def test_a_page_on_another_port_gets_nothing_and_can_do_nothing(browser, pane, place):
    browser.open(pane.url)
    browser.wait_for(f"{ROWS}.length === 1")
    secret = browser.run("sessionStorage.getItem('session')")
    assert len(secret) > 40
    with closing(Stranger(pane)) as stranger:
        with closing(Tab(browser, stranger.url)) as tab:
            tab.wait_for("document.title === 'stranger'")
            assert tab.run("window.tried") == "[]"
        browser.open(stranger.url)  # and from the tab that has the session
        assert browser.run("window.tried") == "[]"
        assert len(stranger.requests) >= 2
        said = "\n".join(stranger.requests)
    for word in (secret, pane.code, "ookie", f":{pane.port}", "code="):
        assert word not in said
    assert place.swarm.agents() == []  # nobody began a task


def test_no_command_line_ever_holds_a_secret_of_the_page(place, tmp_path):
    """With a real browser, opened by the server as a person has it."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    flags = f"--headless=new --no-sandbox --disable-gpu --user-data-dir={tmp_path / 'profile'}"
    browser = place.scripts / "browser"
    browser.write_text(f'#!/bin/sh\nexec {CHROMIUM} {flags} --remote-debugging-port=0 "$@"\n')
    browser.chmod(0o755)
    environment = {**place.environment, "BROWSER": f"{browser} %s &"}
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "zot", "glasspane", "--port", "0"]
    process = subprocess.Popen(
        words, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    seen = set()
    try:
        printed = Terminal(master)
        link = printed.until("http")
        files = place.home / "glasspane"
        wait_for(lambda: list(files.glob("open-*.html")))
        (file,) = files.glob("open-*.html")
        code = file.read_text().partition("#code=")[2].partition('"')[0]
        port = int(link.split(":")[2].split("/")[0])
        assert len(code) > 40

        def is_used():
            seen.update(command_lines())
            return any(str(file) in line for line in seen) and is_connected(port)

        wait_for(is_used)
        for _ in range(20):
            seen.update(command_lines())
            time.sleep(0.1)
        assert login_status(port, code) == 401  # the browser has used it
        secrets = (code, link.partition("#code=")[2])
        assert not [line for line in seen for word in secrets if word in line]
    finally:
        for pid in (process.pid, *below(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        for pid in holding(tmp_path / "profile"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os.close(master)


def is_connected(port):
    """A browser has a connection to the server."""
    wanted = f"0100007F:{port:04X}"
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(row.split()[2] == wanted and row.split()[3] == "01" for row in rows)


def login_status(port, code):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with closing(connection):
        connection.request("POST", "/login", json.dumps({"code": code}), {"x-zot": "1"})
        return connection.getresponse().status


def holding(profile):
    """Processes of the browser with this profile."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(profile) in (path / "cmdline").read_text(errors="replace"):
                found.append(int(path.name))
    return found


def test_an_empty_board_says_so_once_that_is_known(browser, place):
    with closing(Pane(place.environment, place.repository)) as pane:
        browser.open(pane.url)
        browser.wait_for("(p => p && !p.hidden)(document.querySelector('.empty'))")
        assert browser.run("document.querySelector('#totals').innerText").startswith("0 agents")


class LosingProxy:
    """Passes bytes on, but drops the connections on which some things are asked for, so often: a
    browser asks a few times more by itself."""

    def __init__(self, target: int, lost: dict[bytes, int]) -> None:
        self.left = lost
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here = self._listening.accept()[0]
                there = socket.create_connection(("127.0.0.1", self._target))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while (data := source.recv(65536)) and not self._is_lost(data):
                target.sendall(data)
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _is_lost(self, data: bytes) -> bool:
        for begin, left in self.left.items():
            if data.startswith(begin) and left:
                self.left[begin] -= 1
                return True
        return False


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_what_is_lost_while_the_page_begins_is_asked_for_again(pane, tmp_path):
    lost = {b"POST /login": 6, b"GET /worker.js": 6, b"GET /events": 1}
    with closing(LosingProxy(pane.port, lost)) as proxy:
        rules = f"--host-resolver-rules=MAP localhost:{pane.port} 127.0.0.1:{proxy.port}"
        with closing(Browser(tmp_path / "chromium", rules)) as browser:
            browser.open(pane.url.replace("127.0.0.1", "localhost"))
            browser.wait_for(f"{ROWS}.length === 1")
            assert not any(proxy.left.values())
            assert browser.run("document.querySelector('#link').innerText") == ""


def test_a_worker_that_says_nothing_is_given_up(browser, pane):
    silent = """
    const Real = SharedWorker;
    let first = true;
    window.SharedWorker = function (...words) {
      if (!first) return new Real(...words);
      first = false;
      window.silent = new MessageChannel();
      return { port: window.silent.port1 };
    };
    """
    made = browser.call("Page.addScriptToEvaluateOnNewDocument", source=silent)
    browser.open(pane.url)
    browser.wait_for(f"{ROWS}.length === 1")
    assert browser.run("Boolean(window.silent)")
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=made["identifier"])


def test_what_an_agent_says_is_text_and_never_markup(browser, pane, place):
    browser.open(pane.url)
    browser.wait_for(f"{ROWS}.length === 1")
    press(browser, "j")
    press(browser, "Enter")
    browser.wait_for("document.querySelectorAll('.entry.tool').length === 1")
    browser.wait_for("document.querySelector('.entry.error')?.innerText.includes('onerror')")
    browser.run("document.querySelectorAll('details').forEach(part => part.open = true)")
    shown = browser.run("document.querySelector('.transcript').innerText")
    assert shown.count("<script>window.pwned=1</script>") >= 5
    assert browser.run("window.pwned") is None
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert browser.run("document.querySelectorAll('a[href^=javascript]').length") == 0
    more = [
        {"type": "response", "command": "x", "success": True, "data": {"model": HOSTILE}},
        {"type": "user_message", "content": [{"type": "text", "text": "again"}]},
        {"type": "turn_start", "step": 2},
        {"type": "retry", "reason": HOSTILE},
        {"type": "ext_notify", "level": "info", "message": HOSTILE},
        {"type": "fallback", "failed_model": HOSTILE, "model": HOSTILE},
        {"type": "compact_done", "summary": HOSTILE},
        {"type": "text_delta", "delta": f"{'>' * 5000} deep\n\n{'[' * 50_000}\n\n| {HOSTILE} |"},
        {"type": "ext_ask", "request_id": "e", "method": "select", "title": HOSTILE,
         "message": HOSTILE, "options": [HOSTILE]},
        {"type": "approval_request", "request_id": "q", "name": HOSTILE, "args": {},
         "preview": f"diff --git a/{HOSTILE} b/{HOSTILE}\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n"
         f" {HOSTILE}\n--- a comment that goes\n+++ {HOSTILE}\n"},
    ]  # fmt: skip
    with (place.scripts / "hostile.jsonl").open("a") as file:
        file.writelines(json.dumps(frame) + "\n" for frame in more)
    browser.wait_for("document.querySelectorAll('.question').length === 2")
    browser.wait_for("document.querySelectorAll('blockquote').length > 5")
    gone = "[...document.querySelectorAll('.line.removed .text')].map(line => line.innerText)"
    assert browser.run(gone) == ["--- a comment that goes"]
    questions = browser.run("document.querySelector('.questions').innerText")
    assert questions.count("<script>window.pwned=1</script>") >= 5
    for tab in ("2", "3", "4", "1", "Escape"):
        press(browser, tab)
    browser.wait_for(f"{ROWS}[0]?.includes('<script>')")
    press(browser, "?")
    assert browser.run("document.querySelectorAll('dialog kbd').length") > 10
    click(browser, "Close")
    assert browser.run("document.querySelectorAll('main img, main script').length") == 0
    assert browser.run("window.pwned") is None


def test_an_agent_is_approved_by_key_steered_and_merged_by_click(browser, pane, place):
    browser.open(pane.url)
    browser.wait_for(f"{ROWS}.length === 1")
    id = place.submit(
        "Add", bash("echo two >> a.txt"), bash("echo three >> a.txt"), says("**Done.**"),
        approve=["bash"],
    )  # fmt: skip
    browser.wait_for(f"{ROWS}.some(row => row.startsWith('needs you'))")
    assert browser.run("document.title") == "(1) Glasspane"
    browser.run(f"location.hash = '#/agent/{id}'")
    browser.wait_for("document.querySelector('.question pre')?.innerText === 'echo two >> a.txt'")
    press(browser, "a")
    browser.wait_for("document.querySelector('.question pre')?.innerText === 'echo three >> a.txt'")
    click(browser, "Allow")
    browser.wait_for("document.querySelector('.entry.text strong')?.innerText === 'Done.'")
    browser.run("document.querySelector('.composer input[type=checkbox]').click()")
    click(browser, "Merge")
    browser.wait_for("document.querySelector('.toast.fine')?.innerText.startsWith('merged')")
    assert (place.repository / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert len(place.git("log", "-1", "--format=%P").split()) == 1  # one commit, no merge
    press(browser, "2")
    browser.wait_for("document.querySelectorAll('.line.added').length === 2")
    press(browser, "Escape")
    browser.wait_for(f"{ROWS}.some(row => row.includes('merged'))")
    browser.run(f"location.hash = '#/agent/{id}'")
    click(browser, "Remove")
    browser.wait_for(f"{ROWS}.length === 1")
    assert place.git("branch", "--list", "zot/*") == ""
    browser.run("document.body.dataset.role = 'see'")  # as for a token that may do no more
    assert browser.run("getComputedStyle(document.getElementById('new')).display") == "none"


def test_an_agent_is_stopped_and_sent_further_from_the_page(browser, pane, place):
    browser.open(pane.url)
    id = place.submit("Wait", bash("sleep 60"), says("Done."))
    browser.wait_for(f"{ROWS}.some(row => row.startsWith('working'))")
    browser.run(f"location.hash = '#/agent/{id}'")
    browser.wait_for("document.querySelector('.entry.tool.running') !== null")
    press(browser, "x")
    browser.wait_for("document.querySelector('.agent').dataset.stage === 'cancelled'")
    browser.run("document.querySelector('textarea').value = 'say:Second answer.'")
    click(browser, "Send")
    browser.wait_for(
        "[...document.querySelectorAll('.entry.text')].some(e => e.innerText === 'Second answer.')"
    )


def test_a_page_that_lost_its_server_comes_back_with_everything_once(browser, pane, place):
    browser.open(pane.url)
    id = place.submit("Talk", "say:first piece")
    place.wait(id)
    browser.run(f"location.hash = '#/agent/{id}'")
    browser.wait_for("document.querySelector('.entry.text') !== null")
    browser.call("Network.enable")
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.call("Network.emulateNetworkConditions", offline=True, **offline)
    place.swarm.send(id, "say:second piece")
    wait_for(lambda: len(place.rows(id, "swarm_run_over")) == 2)
    browser.call("Network.emulateNetworkConditions", offline=False, **offline)
    texts = "[...document.querySelectorAll('.entry.text')].map(e => e.innerText)"
    browser.wait_for(f"{texts}.join() === 'first piece,second piece'")


def test_an_agent_is_steered_and_merged_by_keys_and_stopped_by_a_click(browser, pane, place):
    browser.open(pane.url)
    id = place.submit("Work", bash("echo two >> a.txt; sleep 3"), says("Done."), says("Well."))
    browser.run(f"location.hash = '#/agent/{id}'")
    browser.wait_for("document.querySelector('.entry.tool.running') !== null")
    browser.wait_for("document.querySelector('.badge .state').innerText === 'working'")
    press(browser, "i")
    browser.run("document.activeElement.value = 'say:Hurried.'")
    browser.run(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))"
    )
    users = "[...document.querySelectorAll('.entry.user')].map(e => e.innerText)"
    browser.wait_for(f"{users}.includes('say:Hurried.')")
    browser.wait_for("document.querySelector('.agent').dataset.stage === 'done'")
    browser.wait_for("[...document.querySelectorAll('.toast')].forEach(t => t.remove()) || true")
    press(browser, "m")
    browser.wait_for("document.querySelector('.toast.fine')?.innerText.startsWith('merged')")
    assert (place.repository / "a.txt").read_text() == "one\ntwo\n"
    other = place.submit("Wait", bash("sleep 60"), says("Done."))
    browser.run(f"location.hash = '#/agent/{other}'")
    browser.wait_for("document.querySelector('.entry.tool.running') !== null")
    click(browser, "Stop")
    browser.wait_for("document.querySelector('.agent').dataset.stage === 'cancelled'")


def test_merge_cannot_be_clicked_while_a_merge_runs(browser, pane, place):
    id = place.submit("Work", bash("echo two >> a.txt"), says("Done."))
    place.wait(id)
    browser.open(pane.url)
    browser.run(f"location.hash = '#/agent/{id}'")
    button = "[...document.querySelectorAll('button')].find(b => b.innerText === 'Merge')"
    browser.wait_for(f"{button} && !{button}.hidden")
    with changing(str(place.repository), place.environment):
        browser.run(f"{button}.click()")
        browser.wait_for(f"{button}.disabled")
        press(browser, "m")
    browser.wait_for("document.querySelector('.toast.fine')?.innerText.startsWith('merged')")
    browser.wait_for(f"!{button} || !{button}.disabled")
    assert len(place.rows(id, "swarm_merged")) == 1


def test_the_board_is_filtered_and_a_task_is_begun_from_it(browser, pane, place):
    browser.open(pane.url)
    place.wait(place.submit("First", says("Done.")))
    browser.wait_for(f"{ROWS}.length === 2")
    percent = "document.querySelector('.row[data-stage=done] .percent').textContent"
    browser.wait_for(rf"/^\d+ %$/.test({percent})")
    far = AgentFolder(place.home / "swarm" / "agents" / "far-1")
    far.create(SwarmTask("far-1", "Far away", "/elsewhere/shop", 1.0))
    LogWriter(far.log).row(rows.Claimed(1, "build-3-4711-9f3c1a"))
    browser.wait_for(f"{ROWS}.length === 3")
    for choice, value in (("machines", "build-3"), ("projects", "shop")):
        choose = (
            f"(box => {{ box.value = '%s'; box.dispatchEvent(new Event('change')); }})"
            f"(document.querySelector('select[aria-label=\"All {choice}\"]'))"
        )
        browser.run(choose % value)
        browser.wait_for(f"{ROWS}.length === 1 && {ROWS}[0].includes('Far away')")
        browser.run(choose % "")
    shutil.rmtree(far.path)
    browser.wait_for(f"{ROWS}.length === 2")
    click(browser, "1 done")
    browser.wait_for(f"{ROWS}.length === 1")
    click(browser, "1 done")
    browser.wait_for(f"{ROWS}.length === 2")
    press(browser, "/")
    browser.run("document.activeElement.value = 'hostile'")
    browser.run("document.activeElement.dispatchEvent(new Event('input'))")
    browser.wait_for(f"{ROWS}.length === 1")
    press(browser, "n")
    browser.run("document.querySelector('dialog textarea').value = 'Begin this'")
    browser.run("document.querySelector('dialog [name=approve]').value = 'all'")
    browser.run("document.querySelector('dialog [name=minutes]').value = '2'")
    browser.run("document.querySelector('dialog [name=directory]').value = '/nowhere'")
    click(browser, "Begin")
    browser.wait_for("document.querySelector('.refused').innerText.includes('not a directory')")
    browser.run(f"document.querySelector('dialog [name=directory]').value = '{place.repository}'")
    click(browser, "Begin")
    browser.wait_for("location.hash.startsWith('#/agent/begin-this-')")
    id = browser.run("location.hash").removeprefix("#/agent/")
    task = place.swarm.task(id)
    assert (task.prompt, task.approve, task.max_seconds) == ("Begin this", ("all",), 120.0)
    place.swarm.cancel(id)
