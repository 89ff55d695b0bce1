import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot.cancel import Cancel
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import Overloaded, ToolError
from zot.provider.auth.store import AuthFile, Credential, Token
from zot.provider.types import (
    Finished,
    Image,
    Reasoning,
    ReasoningDelta,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallArgs,
    ToolCallStart,
    Usage,
)
from zot.runtime import redact
from zot.runtime.redact import (
    RedactedStream,
    RedactingProvider,
    RedactingTool,
    Redactor,
    given_secrets,
)
from zot.text import SECRET_GONE

SECRET = "sk-canary-0123456789"


@pytest.fixture
def redactor(tmp_path):
    return Redactor({SECRET, "short", ""}, str(tmp_path))


def test_known_keys_go_and_all_else_stays(redactor):
    assert redactor.text(f"a {SECRET}{SECRET} b sk-other-0123456789 short") == (
        f"a {SECRET_GONE}{SECRET_GONE} b sk-other-0123456789 short"
    )
    value = {"diff": [f"+ {SECRET}", 1, None], "n": (SECRET,)}
    assert redactor.value(value) == {"diff": [f"+ {SECRET_GONE}", 1, None], "n": [SECRET_GONE]}


def test_a_longer_key_is_removed_whole(tmp_path):
    assert Redactor({SECRET, SECRET + "-long"}, str(tmp_path)).text(SECRET + "-long") == SECRET_GONE


def test_keys_of_the_file_are_known_as_they_change(redactor, tmp_path):
    file = AuthFile(str(tmp_path))
    file.put("groq", Credential(api_key="stored-key-0123"))
    assert redactor.text("stored-key-0123") == SECRET_GONE
    file.put("groq", Credential(oauth=Token("access-token-01", "refresh-token-01")))
    assert redactor.text("access-token-01 refresh-token-01") == f"{SECRET_GONE} {SECRET_GONE}"
    (tmp_path / "auth.json").write_text("{")
    assert redactor.text(SECRET) == SECRET_GONE


def test_a_replaced_key_stays_known_in_this_process(redactor, tmp_path):
    file = AuthFile(str(tmp_path))
    file.put("groq", Credential(api_key="replaced-key-0123"))
    assert redactor.text("replaced-key-0123") == SECRET_GONE
    file.put("groq", Credential(api_key="second-key-0123"))
    other = Redactor((), str(tmp_path))  # of a later agent
    for each in (redactor, other):
        assert each.text("replaced-key-0123 second-key-0123") == f"{SECRET_GONE} {SECRET_GONE}"
    file.remove("groq")
    assert redactor.text("replaced-key-0123") == SECRET_GONE


def test_the_number_of_remembered_keys_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(redact, "MAX_SEEN", 3)
    redactor, file = Redactor((), str(tmp_path)), AuthFile(str(tmp_path))
    for number in range(9):
        file.put("groq", Credential(api_key=f"numbered-key-{number}"))
        redactor.secrets()
    assert sorted(redactor.secrets()) == [f"numbered-key-{number}" for number in (6, 7, 8)]


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(st.sampled_from([SECRET, SECRET[:7], "sk-", "s", "x", "\n", SECRET[5:]])),
    cuts=st.lists(st.integers(1, 9), min_size=1),
)
def test_no_key_gets_through_in_pieces(tmp_path_factory, parts, cuts):
    redactor = Redactor({SECRET}, str(tmp_path_factory.getbasetemp() / "no-home"))
    text, shown = "".join(parts), []
    stream = RedactedStream(redactor, shown.append)
    at = 0
    while at < len(text):
        size = cuts[len(shown) % len(cuts)]
        stream.feed(text[at : at + size])
        at += size
    stream.finish()
    stream.finish()
    assert SECRET not in "".join(shown)
    assert "".join(shown).replace(SECRET_GONE, SECRET) == text


class Printer:
    name = "print"
    description = "d"
    schema = {"type": "object"}

    def run(self, args, context):
        context.progress(SECRET[:5])
        context.progress(SECRET[5:] + "!")
        match args["how"]:
            case "text":
                return f"key {SECRET}"
            case "fail":
                raise ToolError(f"bad {SECRET}")
            case _:
                content = (Text(SECRET), Image("image/png", b"x"))
                return ToolOutput(content, details={"out": SECRET})


def test_all_that_a_tool_says_passes(redactor):
    progress: list[str] = []
    tool = RedactingTool(Printer(), redactor)
    context = ToolContext("c", Cancel(), progress.append)
    assert (tool.name, tool.description, tool.schema) == ("print", "d", {"type": "object"})
    assert tool.run({"how": "text"}, context) == f"key {SECRET_GONE}"
    assert "".join(progress) == f"{SECRET_GONE}!"
    with pytest.raises(ToolError, match="removed") as caught:
        tool.run({"how": "fail"}, context)
    assert SECRET not in str(caught.value)
    output = tool.run({"how": "output"}, context)
    assert output.content == (Text(SECRET_GONE), Image("image/png", b"x"))
    assert json.dumps(output.details) == json.dumps({"out": SECRET_GONE})


def test_the_keys_of_the_environment_are_known():
    environ = {"A_KEY": " value ", "OTHER": "x"}
    assert given_secrets("k", ["A_KEY", "B_KEY"], environ) == {"k", "value", ""}


class Talker:
    """A model that says what it was given, and closes."""

    name = "talker"

    def __init__(self, *events):
        self.events = events

    def stream(self, request, cancel):
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event

    def close(self):
        pass


def told(redactor, *events):
    return list(RedactingProvider(Talker(*events), redactor).stream(None, Cancel()))


def test_what_a_model_says_passes_and_what_it_asks_for_stays(redactor):
    call = ToolCall("c", "bash", {"command": SECRET})
    content = (Text(SECRET), Reasoning(SECRET, "a", {"signature": "x"}), Reasoning("b", "a"), call)
    assert told(
        redactor,
        Started(),
        ReasoningDelta("a sk-"),
        ReasoningDelta(SECRET[3:]),
        TextDelta("files"),
        ToolCallStart("c", "bash"),
        ToolCallArgs("c", SECRET[:9]),
        ToolCallArgs("c", SECRET[9:] + "!"),
        Finished(content, "tool_use", Usage()),
    ) == [
        Started(),
        ReasoningDelta("a "),
        ReasoningDelta(SECRET_GONE),
        TextDelta("file"),
        TextDelta("s"),
        ToolCallStart("c", "bash"),
        ToolCallArgs("c", SECRET_GONE + "!"),
        Finished(
            (Text(SECRET_GONE), Reasoning(SECRET_GONE, "a"), Reasoning("b", "a"), call),
            "tool_use",
            Usage(),
        ),
    ]


def test_a_key_in_a_failure_of_the_server_is_removed(redactor):
    with pytest.raises(Overloaded, match="removed") as caught:
        told(redactor, Overloaded(f"busy: {SECRET}", status=503))
    assert (SECRET in str(caught.value), caught.value.status) == (False, 503)


def test_short_keys_count_when_they_are_no_word(tmp_path):
    redactor = Redactor({"abc-1234", "ollama", "dummykey", "k1"}, str(tmp_path))
    assert redactor.secrets() == ("abc-1234",)


def test_a_token_that_was_renewed_for_a_request_does_not_come_back_with_its_answer(tmp_path):
    redactor, file = Redactor((), str(tmp_path)), AuthFile(str(tmp_path))

    class Renewing:
        name = "p"

        def stream(self, request, cancel):
            token = request
            file.put("groq", Credential(api_key=token))
            yield Started()
            yield TextDelta(f"your key is {token}.")
            yield Finished((Text(token),), "end", Usage())

        def close(self): ...

    provider = RedactingProvider(Renewing(), redactor)
    for number in range(3):  # quicker than anybody looks again
        token = f"renewed-token-{number}"
        assert token not in repr(list(provider.stream(token, Cancel())))
