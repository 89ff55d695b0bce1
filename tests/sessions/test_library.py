import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.environment import uncovered

from tests.support.around import zot_home
from zot.cli.main import run as main
from zot.cli.sessions import seconds
from zot.core import session as core
from zot.core.session import Compaction, Entry, Session, Title
from zot.errors import SessionError
from zot.provider import types
from zot.provider.types import Image, Message, Origin, Reasoning, Text, ToolCall, ToolResult, Usage
from zot.sessions import library
from zot.sessions.export import export, fenced, format_of, import_file, render
from zot.sessions.export_html import coloured, prose, to_html
from zot.sessions.files import Loaded, load
from zot.sessions.open import begin_session, open_session, sessions_dir
from zot.sessions.rows import Meta


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ZOT_FSYNC", "off")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


def said(text: str, role="user") -> Message:
    origin = None
    if role == "assistant":
        origin = Origin("anthropic", "m", "anthropic", "end", Usage(10, 5, cost=types.Cost(0.01)))
    return Message(role, (Text(text),), 1_700_000_000.0, origin)


def make(*bodies, cwd: str | None = None, path: str | None = None) -> Session:
    cwd, said = cwd or str(Path.cwd()), {"provider": "anthropic", "model": "m"}
    session = open_session(path, cwd, **said) if path else begin_session(cwd, zot_home(), **said)
    for body in bodies:
        session.append(body)
    session.close()
    return session


def run(*words: str, capsys) -> str:
    assert main(["sessions", *words]) == 0
    return capsys.readouterr().out


# --- finding ---------------------------------------------------------------------------------


def test_sessions_are_listed_latest_first_with_what_one_wants_to_know(capsys):
    first = make(
        said("first question\nmore"),
        said("answer", "assistant"),
        core.UsageNote(Usage(1), Usage(1, cost=types.Cost(1.5))),
        core.ModelChange("openai", "gpt"),
    )
    second = make(said("second"), Title("named"))
    os.utime(first.store.path, (1, time.time() - 100))
    newest, older = library.summaries(str(Path.cwd()), zot_home())
    assert (newest.id, newest.title, newest.first_text) == (second.id, "named", "second")
    assert (older.messages, older.cost, older.provider, older.model) == (2, 1.5, "openai", "gpt")
    lines = run("list", capsys=capsys).splitlines()
    assert lines[0].startswith(second.id[-8:])
    assert lines[1].endswith("first question more")
    assert "$1.50" in lines[1]
    rows = [json.loads(line) for line in run("list", "--json", capsys=capsys).splitlines()]
    assert [row["id"] for row in rows] == [second.id, first.id]


def test_hidden_broken_and_empty_files_are_not_listed(place, capsys):
    directory = Path(sessions_dir(str(Path.cwd()), zot_home()))
    make(said("x"))
    (directory / "20200101-000000-hidden00.jsonl").write_text(
        '{"type":"meta","meta":{"id":"h","hide_from_sessions":true}}\n'
        '{"type":"message","message":{"role":"user","content":[{"text":"x"}]}}\n'
    )
    (directory / "20200101-000000-broken00.jsonl").write_text('"type":"message" nonsense')
    (directory / "20200101-000000-empty000.jsonl").write_text('{"type":"meta","meta":{"id":"e"}}\n')
    assert len(list(library.summaries(str(Path.cwd()), zot_home()))) == 1
    assert main(["sessions", "list", "--cwd", str(place)]) == 0
    assert "no sessions here" in capsys.readouterr().err


def test_all_directories_can_be_listed(place, capsys):
    make(said("here"))
    make(said("there"), cwd=str(place / "other"))
    assert len(run("list", capsys=capsys).splitlines()) == 1
    lines = run("list", "--all", capsys=capsys).splitlines()
    assert len(lines) == 2
    assert any(str(place / "other") in line for line in lines)


def test_a_session_is_found_by_path_id_name_or_latest(place):
    session = make(said("x"))
    path, here = session.store.path, str(Path.cwd())
    for name in (path, session.id, session.id[:13], session.id[-8:], "latest", Path(path).stem):
        assert library.find(name, here, zot_home()) == path
    with pytest.raises(SessionError, match="no session 'nope'"):
        library.find("nope", here, zot_home())
    with pytest.raises(SessionError, match="no session here"):
        library.find("latest", str(place), zot_home())
    library.fork(path)
    with pytest.raises(SessionError, match="fits 2 sessions"):
        library.find(session.id[:4], here, zot_home())


def test_search_finds_words_in_messages_and_tool_output(capsys):
    result = ToolResult("c", (Text("the NEEDLE was here"), Image("image/png", b"")))
    session = make(said("hay"), Message("tool", (result,), 1.0), said("a needle, äöü", "assistant"))
    make(said("other"))
    hits = list(library.search("Needle", str(Path.cwd()), zot_home()))
    assert [hit.role for hit in hits] == ["tool", "assistant"]
    assert {hit.summary.id for hit in hits} == {session.id}
    assert len(list(library.search("ÄÖ", str(Path.cwd()), zot_home()))) == 1
    assert len(list(library.search('"', str(Path.cwd()), zot_home()))) == 0
    assert "needle, äöü" in run("search", "needle", capsys=capsys)
    assert json.loads(run("search", "--json", "hay", capsys=capsys))["text"] == "hay"
    assert main(["sessions", "search", "absent"]) == 1


# --- changing --------------------------------------------------------------------------------


def test_a_session_gets_a_name_also_while_it_is_open(capsys):
    session = begin_session(str(Path.cwd()), zot_home())
    session.append(said("x"))
    run("rename", "latest", "a", "good", "name", capsys=capsys)
    session.append(said("y"))
    session.close()
    (summary,) = library.summaries(str(Path.cwd()), zot_home())
    assert (summary.title, summary.messages) == ("a good name", 2)
    run("rename", "latest", "better", capsys=capsys)
    (summary,) = library.summaries(str(Path.cwd()), zot_home())
    assert (summary.title, summary.messages) == ("better", 2)


def test_a_fork_goes_its_own_way(capsys):
    session = make(said("a"), said("b", "assistant"), said("c"), said("d", "assistant"))
    path = session.store.path
    ids = list(session.entries)
    copy = run("fork", path, "--at", "2", capsys=capsys).strip()
    loaded = load(copy)
    assert [entry.body.content[0].text for entry in loaded.entries.values()] == ["a", "b"]
    assert (loaded.meta.parent, loaded.meta.fork_point) == (session.id, 2)
    assert loaded.meta.id != session.id
    assert len(load(library.fork(path, ids[2])).entries) == 3
    assert len(load(library.fork(path)).entries) == 4
    assert len(load(library.fork(path, 0)).entries) == 0
    with pytest.raises(SessionError, match="4 messages, not 9"):
        library.fork(path, 9)
    with pytest.raises(SessionError, match="no entry 'ffff'"):
        library.fork(path, "ffff")


def test_a_fork_of_a_compacted_session_is_whole(place):
    session = begin_session(str(Path.cwd()), zot_home())
    session.append(said("a"))
    kept = session.append(said("b"))
    session.append(Compaction("sum", kept.id))
    session.append(said("c"))
    session.close()
    copy = Session(entries=load(library.fork(session.store.path)).entries.values())
    assert copy.messages() == session.messages()


def test_a_fork_of_a_pi_session_names_its_file(place):
    session = make(said("a"), said("b", "assistant"))
    source = export(session.store.path, str(place / "s"), "pi")
    copy = library.fork(source, 1)
    head = json.loads(Path(copy).read_text().splitlines()[0])
    assert head["parentSession"] == source
    assert Path(copy).parent == place
    (message,) = Session(entries=load(copy).entries.values()).messages()
    assert message.content == (Text("a"),)


def test_the_tree_shows_branches_and_where_we_are(capsys):
    session = begin_session(str(Path.cwd()), zot_home())
    first = session.append(said("root"))
    left = session.append(said("left"))
    session.append(Title("t"))
    session.move(first.id)
    session.append(Message("assistant", (Text("right"), ToolCall("c", "bash", {})), 1.0))
    session.append(core.Label(left.id, "old"))
    session.append(Compaction("so far", None))
    session.append(core.ModelChange("p", "m"))
    session.append(core.Cleared())
    session.close()
    lines = run("tree", "latest", capsys=capsys).splitlines()
    assert re.sub(r"^\w+ ", "", lines[0]) == "* user: root"
    assert [line[9:] for line in lines[1:]] == [
        "    user: left",
        "    title: t",
        "*   assistant: right [bash]",
        f"*   label of {left.id}: old",
        "*   compaction: so far",
        "*   model: p/m",
        "*   cleared",
    ]


def test_one_session_is_removed_and_one_in_use_is_not(place, capsys):
    gone = make(said("gone"))
    run("remove", gone.store.path, "--yes", capsys=capsys)
    assert not Path(gone.store.path).exists()
    used = begin_session(str(Path.cwd()), zot_home())
    used.append(said("in use"))
    assert main(["sessions", "rm", "latest", "--yes"]) == 1
    assert "a process of zot works with it" in capsys.readouterr().err
    used.close()


def test_prune_removes_what_nobody_misses_and_asks_first(place, capsys, monkeypatch):
    old = make(said("old"))
    os.utime(old.store.path, (1, time.time() - 40 * 86400))
    fresh = make(said("fresh"))
    empty = Path(sessions_dir(str(Path.cwd()), zot_home())) / "20200101-000000-00000000.jsonl"
    empty.write_text('{"type":"meta","meta":{}}\n')
    os.utime(empty, (1, time.time() - 100))
    just_made = empty.with_name("20200101-000000-11111111.jsonl")
    just_made.write_text('{"type":"meta","meta":{}}\n')
    used = begin_session(str(Path.cwd()), zot_home())
    used.append(said("in use"))
    os.utime(used.store.path, (1, time.time() - 90 * 86400))
    assert run("prune", "--dry-run", capsys=capsys).split() == [str(empty)]
    listed = run("prune", "--dry-run", "--older-than", "30d", capsys=capsys).split()
    assert listed == sorted([str(empty), old.store.path])
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115, PTH123  closed below
    assert main(["sessions", "prune", "--older-than", "30d"]) == 1
    sys.stdin.close()
    assert "--yes" in capsys.readouterr().err
    run("prune", "--older-than", "30d", "--yes", capsys=capsys)
    assert not empty.exists()
    assert not Path(old.store.path).exists()
    assert Path(fresh.store.path).exists()
    used.close()
    assert run("prune", "--all", "--dry-run", capsys=capsys) == ""
    assert run("prune", "--cwd", str(place), capsys=capsys) == ""


def test_lengths_of_time():
    assert seconds("90m") == 5400
    assert seconds("2mo") == 60 * 86400
    for wrong in ("", "5", "d", "1 d", "-1d"):
        with pytest.raises(SessionError, match="older-than"):
            seconds(wrong)


def test_removing_what_is_gone_is_an_error(place):
    with pytest.raises(SessionError, match="cannot remove"):
        library.remove(str(place / "gone"))


def test_an_existing_file_is_not_overwritten(place):
    target = place / "x.jsonl"
    target.write_text("mine")
    with pytest.raises(SessionError, match="exists"):
        library.write_session(str(target), Meta(), [])
    assert target.read_text() == "mine"
    assert sorted(each.name for each in place.iterdir()) == ["work", "x.jsonl"]


# --- out and in ------------------------------------------------------------------------------

TOOLS = (
    Message(
        "assistant",
        (
            Reasoning("thinking aloud", "anthropic"),
            Reasoning("", "anthropic"),
            Text("Look:\n\n```python\nprint('<b>')\n```\n\nand `this` is **bold**."),
            ToolCall("c1", "bash", {"command": "ls <dir>"}),
            ToolCall("c2", "edit", {"path": "a.py"}),
            ToolCall("c3", "read", None, "{broken"),
            ToolCall("c4", "bash", {}),
        ),
        1_700_000_000.0,
        Origin(
            "anthropic", "m", "anthropic", "aborted", Usage(10, cost=types.Cost(0.5)), "cut <off>"
        ),
    ),
    Message(
        "tool",
        (
            ToolResult("c1", (Text("out\n" * 30), Image("image/png", b"\x89PNG")), False, "bash"),
            ToolResult("c2", (Text("x"),), False, "edit", {"diff": "  1 a\n- 2 old\n+ 2 new"}),
            ToolResult("c3", (Text("bad <args>"), Text("")), True, "read"),
            ToolResult("gone", (Text("orphan"),), False),
        ),
        1_700_000_001.0,
    ),
    Message("user", (Text("see"), Image("image/svg+xml", b"<svg onload=x>")), 1_700_000_002.0),
)


def test_a_portable_file_holds_all_but_the_place(place, capsys):
    session = make(said("secret place"), *TOOLS, core.ModelChange("openai", "gpt"), Title("T!  t"))
    target = run("export", "latest", str(place / "out"), capsys=capsys).strip()
    assert target.endswith("out.zotsession")
    data = Path(target).read_text()
    assert str(Path.cwd()) not in data
    assert json.loads(data.splitlines()[0])["meta"]["cwd"] == ""
    assert Path(target).stat().st_mode & 0o777 == 0o600
    imported = run("import", target, capsys=capsys).strip()
    loaded = load(imported)
    assert loaded.meta.id != session.id
    summary = library.describe(imported, loaded)
    assert (summary.cwd, summary.model, summary.title) == (str(Path.cwd()), "gpt", "T!  t")
    assert Session(entries=loaded.entries.values()).messages() == session.messages()
    named = run("export", session.id[-8:], capsys=capsys).strip()
    assert re.fullmatch(r"\./\d{8}-\d{6}-[0-9a-f]{8}-t-t\.zotsession", named)


def test_what_cannot_be_imported_is_said(place):
    (place / "empty").touch()
    with pytest.raises(SessionError, match="session file is empty"):
        import_file(str(place / "empty"), "/w", zot_home())
    (place / "text").write_text("hello\n")
    with pytest.raises(SessionError, match="not a session file"):
        import_file(str(place / "text"), "/w", zot_home())
    (place / "head").write_text('{"type":"meta","meta":{"id":"x"}}\n')
    with pytest.raises(SessionError, match="nothing in"):
        import_file(str(place / "head"), "/w", zot_home())
    with pytest.raises(SessionError, match="cannot open"):
        import_file(str(place / "gone"), "/w", zot_home())


def test_pi_files_are_exported_and_imported(place, capsys):
    session = make(said("hi"), *TOOLS)
    target = run("export", "latest", str(place / "x"), "--format", "pi", capsys=capsys).strip()
    assert json.loads(Path(target).read_text().splitlines()[0])["version"] == 3
    imported = load(run("import", target, capsys=capsys).strip())
    again = Session(entries=imported.entries.values())
    assert [message.role for message in again.messages()] == [
        message.role for message in session.messages()
    ]


def test_json_markdown_and_show(place, capsys):
    make(said("a question"), *TOOLS)
    value = json.loads(run("show", "latest", "--json", capsys=capsys))
    assert value["session"]["first_text"] == "a question"
    assert [message["role"] for message in value["messages"]] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert value["messages"][0]["content"] == [{"text": "a question"}]
    text = run("show", "latest", capsys=capsys)
    assert text.startswith("# a question\n")
    assert '**bash**\n\n```json\n{\n  "command": "ls <dir>"\n}\n```' in text
    assert "**read** (failed)" in text
    assert "> thinking aloud" in text
    assert "> Failed: cut <off>" in text
    assert run("export", "latest", "-", "--format", "markdown", capsys=capsys) == text
    assert run("export", "latest", str(place / "a.md"), capsys=capsys) == f"{place}/a.md\n"
    assert (place / "a.md").read_text() == text
    assert [format_of(name) for name in ("a.html", "b.htm", "c.json", "d")] == [
        "html",
        "html",
        "json",
        "zotsession",
    ]


def test_an_export_that_cannot_be_written_is_an_error(place):
    session = make(said("x"))
    (place / "file").touch()
    with pytest.raises(SessionError, match="cannot write"):
        export(session.store.path, str(place / "file" / "x.html"), "html")


def test_a_fence_is_longer_than_any_inside():
    assert fenced("a\n````\nb").startswith("`````\n")


def test_a_terminal_is_not_told_what_a_tool_printed(capsys):
    make(said("\x1b]0;evil\x07 text \u202e"))
    assert "\x1b" not in run("show", "latest", capsys=capsys)
    assert "\u202e" not in run("list", capsys=capsys)
    session = make(said("x"), Title("\x9b31m red"), core.ModelChange("p\x1b[2J", "m"))
    session.store.close()
    for action in (("list",), ("list", "--all"), ("tree", "latest"), ("show", "latest")):
        assert not set("\x1b\x9b\r") & set(run(*action, capsys=capsys))


def test_emoji_and_spaces_are_shown_as_they_are(capsys):
    text = "\U0001f468\u200d\U0001f469\u200d\U0001f467 10\u00a0km \u2764\ufe0f \u0645\u200c\u06cc"
    make(said(text))
    assert text in run("show", "latest", capsys=capsys)


# --- the page --------------------------------------------------------------------------------

TAGS = (
    "html head meta title style body h1 h2 h3 h4 h5 h6 small dl div dt dd main section p pre code "
    "details summary span img footer strong em s a ul ol li blockquote hr br table thead tbody tr "
    "th td"
)
ALLOWED = set(TAGS.split())
VOID = {"meta", "img", "hr", "br"}


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED, tag
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in ("action", "srcdoc"), name
            if name == "href":
                assert value.lower().startswith(("http://", "https://", "mailto:")), value
                assert ("rel", "noopener noreferrer nofollow") in attrs
            if name == "src":
                assert value.startswith("data:image/")
                self.images.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


def test_the_page_shows_everything_and_needs_nothing_else(place, capsys):
    make(said("a <script>alert(1)</script> question"), *TOOLS, Title("Two & <b>"))
    target = run("export", "latest", str(place / "page.html"), capsys=capsys).strip()
    text = Path(target).read_text()
    page = Page(text)
    assert "://" not in text
    assert "Content-Security-Policy" in text
    for shown in (
        "<script>alert(1)</script>",
        "ls <dir>",
        "bad <args>",
        "orphan",
        "thinking aloud",
    ):
        assert shown in page.text
    for shown in (
        "{broken",
        "No result was recorded",
        "Failed: cut <off>",
        "Two & <b>",
        "10 tokens",
    ):
        assert shown in page.text
    assert page.images == ["data:image/png;base64,iVBORw=="]
    assert "image/svg+xml, 14 bytes" in page.text
    assert '<span class="add">+ 2 new</span>' in text
    assert '<span class="del">- 2 old</span>' in text
    assert "<code>this</code> is <strong>bold</strong>" in text
    assert "print('<b>')" in page.text
    assert "prefers-color-scheme: dark" in text
    assert re.search(r"<dd>\d{4}-\d\d-\d\d \d\d:\d\d UTC</dd>", text)


pieces = st.text(max_size=30) | st.sampled_from(
    ["<script>", "</pre>", "```", "`", "**", "&amp;", '"', "'", "\n\n", "<!--", "]]>", "</style>"]
    + ["[a](javascript:x)", "![a](http://b/c)", "[a](https://b 'c')", "<http://a>", "[a]: data:b\n"]
    + [
        "\n# ",
        "\n- ",
        "\n> ",
        "\n|a|\n|-|\n",
        "\n```python\n",
        '\n```" onload=x\n',
        "](",
        "<b onload=x>",
    ]
)
strange = st.lists(pieces, max_size=6).map("".join)


@settings(max_examples=80, deadline=None)
@given(text=strange, name=strange, mime=strange)
def test_nothing_in_a_session_becomes_markup(text, name, mime):
    clean = text.encode("utf-8", "replace").decode()
    messages = [
        Message("user", (Text(clean), Image(mime, b"x")), 1.0),
        Message("assistant", (ToolCall(name, name, {"command": clean}), Reasoning(text, "")), 1.0),
        Message("tool", (ToolResult(name, (Text(clean),), True, details={"diff": clean}),), 1.0),
    ]
    entries = {
        str(number): Entry(str(number), str(number - 1) if number else None, 1.0, message)
        for number, message in enumerate(messages)
    }
    loaded = Loaded(Meta(title=name), entries, ())
    Page(to_html(loaded, library.describe("x", loaded)))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Plan", "<h3>Plan</h3>"),
        ("*so* **strong** ~~gone~~", "<p><em>so</em> <strong>strong</strong> <s>gone</s></p>"),
        ("a\n```\nb", "<p>a</p>\n<pre><code>b</code></pre>"),
        ("```python\ndef f\n```", '<span class="k">def</span>'),
        ("```no-such-language\na < b\n```", "<pre><code>a &lt; b</code></pre>"),
        ("    indented <b>", "<pre><code>indented &lt;b&gt;</code></pre>"),
        ("<b>text</b> <!-- x -->", "<p>&lt;b&gt;text&lt;/b&gt; &lt;!-- x --&gt;</p>"),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
        ("[a](src/a.py)", "<p>[a](src/a.py)</p>"),
        ("[a](DATA:text/html,x)", "<p>[a](DATA:text/html,x)</p>"),
        ("![alt](data:image/png;base64,AA)", "<p>![alt](data:image/png;base64,AA)</p>"),
        ("![alt](https://a/b.png)", 'rel="noopener noreferrer nofollow">alt</a>'),
        ("1 < 2 & *", "<p>1 &lt; 2 &amp; *</p>"),
    ],
)
def test_markdown_is_shown_as_its_author_meant_it_and_hostile_text_as_text(text, html):
    assert html in prose(text)


def test_text_too_long_for_a_person_is_shown_as_it_is():
    long = "[" * 1_000_000
    assert prose(long) == f"<pre><code>{long}</code></pre>"
    assert "<span" not in coloured("def f\n" * 10_000, "python")


def test_the_libraries_of_the_page_are_loaded_for_a_page_only(place):
    make(said("x"))
    program = (
        "import sys; from zot.cli.main import run; run(sys.argv[1:], as_pi=False);"
        "assert not {'markdown_it', 'pygments'} & set(sys.modules)"
    )
    for words in (["list"], ["export", "latest", "out.md"]):
        command = [sys.executable, "-c", program, "sessions", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=uncovered())
        assert done.returncode == 0, done.stderr


# --- the command -----------------------------------------------------------------------------


def test_the_command_works_as_a_process_and_reports_mistakes_in_one_line(place):
    make(said("x"))
    zot = [sys.executable, "-m", "zot", "sessions"]
    done = subprocess.run([*zot, "list"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("x\n")
    done = subprocess.run([*zot, "show", "nothing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "zot: there is no session 'nothing'; `zot sessions list` shows them\n"


def test_every_format_can_be_rendered(place):
    session = make(said("x"))
    for form in ("zotsession", "json", "markdown", "html", "pi"):
        assert b"x" in render(session.store.path, form)
