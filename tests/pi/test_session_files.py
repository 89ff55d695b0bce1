"""pi's own session code, unmodified, reads what zot wrote, and zot what pi adds."""

import json
import subprocess
from pathlib import Path

import pytest
from support.npm import cache, node, unpacked

from zot.core.session import (
    Compaction,
    Label,
    LevelChange,
    ModelChange,
    ResultNote,
    Session,
    Title,
    UsageNote,
)
from zot.provider.types import Image, Message, Origin, Reasoning, Text, ToolCall, ToolResult, Usage
from zot.sessions.files import FileStore, load
from zot.sessions.rows import Meta

__all__ = ["cache"]  # a fixture

PI = "@mariozechner/pi-coding-agent@0.73.1"
# The two packages that pi's session code loads besides itself; it uses one function of the first.
STUBS = {
    "uuid": 'export const v7 = () => "00000000-0000-7000-8000-000000000000";',
    "cross-spawn": "export default null; export const spawn = null; export const sync = null;",
}
READ = """
const { SessionManager } = await import(process.argv[2]);
const session = SessionManager.open(process.argv[3]);
const { messages, model, thinkingLevel } = session.buildSessionContext();
const labels = session.getEntries().filter((entry) => entry.type === "label")
  .map((entry) => session.getLabel(entry.targetId));
const name = session.getSessionName();
console.log(JSON.stringify({ messages, model, thinkingLevel, name, labels }));
const usage = { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } };
session.appendMessage({ role: "user", content: "from pi", timestamp: 1000 });
session.appendMessage({ role: "assistant", content: [{ type: "text", text: "pi says" }],
  api: "anthropic-messages", provider: "anthropic", model: "m", usage, stopReason: "stop",
  timestamp: 2000 });
"""
ORIGIN = Origin("anthropic", "m", "anthropic", "tool_use", Usage(10, 20))


def said(text: str, role: str = "user") -> Message:
    return Message(role, (Text(text),), 1.0, ORIGIN if role == "assistant" else None)


def read_by_pi(path: Path, cache: Path, folder: Path) -> dict:
    program = node()
    package = unpacked(PI, cache)
    for name, code in STUBS.items():
        stub = package / "node_modules" / name
        stub.mkdir(parents=True, exist_ok=True)
        (stub / "package.json").write_text(json.dumps({"type": "module", "main": "index.js"}))
        (stub / "index.js").write_text(code)
    script = folder / "read.mjs"
    script.write_text(READ)
    manager = package / "dist" / "core" / "session-manager.js"
    done = subprocess.run(
        [program, str(script), str(manager), str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_pi_goes_on_with_a_session_of_ours_and_we_with_what_it_added(tmp_path, cache):
    path = tmp_path / "s.jsonl"
    meta = Meta(
        "01a1e121-dd05-7af3-a8c3-2ccf7f1e29df", "/tmp", "m", "anthropic", "2026-01-02T03:04:05Z"
    )
    store = FileStore.create(str(path), meta, format="pi")
    session = Session(id=meta.id, store=store)
    store.follow(session)
    results = tuple(ToolResult(id, (Text(f"out {id}"),), id == "b", "bash") for id in "ab")
    calls = tuple(ToolCall(id, "bash", {"command": id}) for id in "ab")
    thought = Reasoning("hm", "anthropic", {"signature": "s"})
    session.append(ModelChange("anthropic", "m"))
    session.append(LevelChange("high"))
    session.append(said("before"))
    kept = session.append(Message("user", (Text("one"), Image("image/png", b"abc")), 1.0))
    session.append(Message("assistant", (thought, Text("ok"), *calls), 2.0, ORIGIN))
    session.append(ResultNote(results[0]))
    session.append(Message("tool", results, 3.0))
    session.append(UsageNote(Usage(1), Usage(1)))
    session.append(Compaction("the summary", kept.id, 1000))
    session.append(said("two"))
    session.append(Title("My name"))
    session.append(Label(kept.id, "mark"))
    session.close()
    found = read_by_pi(path, cache, tmp_path)
    assert (found["name"], found["labels"], found["thinkingLevel"]) == ("My name", ["mark"], "high")
    assert found["model"] == {"provider": "anthropic", "modelId": "m"}
    assert [message["role"] for message in found["messages"]] == [
        "compactionSummary",
        "user",
        "assistant",
        "toolResult",
        "toolResult",
        "user",
    ]
    assert [block["type"] for block in found["messages"][2]["content"]] == [
        "thinking",
        "text",
        "toolCall",
        "toolCall",
    ]
    assert [message.get("isError") for message in found["messages"][3:5]] == [False, True]
    again = Session(entries=load(str(path)).entries.values())
    assert [message.content for message in again.messages()[:5]] == [
        message.content for message in session.messages()
    ]
    assert [message.content[0].text for message in again.messages()[-2:]] == ["from pi", "pi says"]
