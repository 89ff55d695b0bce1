import json
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest
from support.environment import uncovered
from support.patience import PATIENCE

import zot.ext
from dev import find_python
from zot.ext import (
    Activated,
    Block,
    Call,
    Extension,
    Harness,
    Image,
    Markdown,
    ToolFailed,
    block,
    display,
    insert,
    noop,
    open_panel,
    prompt,
    replace_args,
    replace_system_prompt,
    replace_text,
    schema_of,
    tool_prompt,
)

SDK = Path(zot.ext.__file__)


def test_the_door_names_what_it_has():
    assert sorted(zot.ext.__all__) == zot.ext.__all__
    assert all(hasattr(zot.ext, name) for name in zot.ext.__all__)


def test_the_import_is_cheap_and_needs_the_standard_library_only():
    program = (
        "import sys; import zot.ext; "
        "print([m for m in ('asyncio', 'http', 'inspect', 'msgspec', 'subprocess', 'tempfile', "
        "'logging', 'dataclasses', 'zot.runtime', 'zot.core', 'zot.provider') if m in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=uncovered())
    assert done.stdout == "[]\n"


def test_the_file_alone_is_enough(tmp_path):
    (tmp_path / "zot_ext.py").write_text(SDK.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "main.py").write_text(
        "from zot_ext import Extension\n"
        "ext = Extension('alone', '1.0')\n"
        "@ext.tool\n"
        "def add(a: int, b: int) -> int:\n"
        "    'Adds.'\n"
        "    print('this goes to the log')\n"
        "    return a + b\n"
        "ext.run()\n"
    )
    with Harness([sys.executable, "-I", "-c", _run_in(tmp_path)], timeout=20) as host:
        assert host.hello["name"] == "alone"
        assert host.call("add", a=1, b=2).text == "3"
        assert host.close() == 0


def _run_in(folder: Path) -> str:
    return f"import sys; sys.path.insert(0, {str(folder)!r}); import main"


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_other_pythons_can_use_it(tmp_path, version):
    python = find_python(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    shutil.copy(SDK, tmp_path / "zot_ext.py")
    (tmp_path / "main.py").write_text(
        "from typing import List, Optional\n"
        "from zot_ext import Call, Extension\n"
        "ext = Extension('other')\n"
        "@ext.tool\n"
        "def add(call: Call, a: int, b: Optional[int] = None, c: List[str] = []) -> str:\n"
        "    call.progress('adding')\n"
        "    return str(a + (b or 0))\n"
        "ext.run()\n"
    )
    with Harness([python, "-W", "error", str(tmp_path / "main.py")], timeout=20) as host:
        result = host.call("add", a=1, b=2)
        assert (result.text, result.progress) == ("3", ["adding"])


# --- schema ----------------------------------------------------------------------------------


def test_a_schema_comes_from_the_annotations():
    def tool(
        city: Annotated[str, "the city"],
        days: int,
        unit: Literal["c", "f"] = "c",
        tags: Optional[list[str]] = None,  # noqa: UP045  # the old spelling must work too
        ratio: float | None = 1.0,
        strict: bool = False,
        more: dict[str, int] | None = None,
        either: int | str = 0,
        nullable: int | None = 3,
        anything: Any = None,
        limits: Annotated[int, {"minimum": 1}] = 1,
        call: Call = None,  # type: ignore[assignment]
        *,
        plain: list = (),  # type: ignore[type-arg, assignment]
    ) -> str:
        return ""

    schema, call = schema_of(tool)
    assert call == "call"
    assert schema["required"] == ["city", "days"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == {
        "city": {"type": "string", "description": "the city"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ratio": {"type": "number"},
        "strict": {"type": "boolean"},
        "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "nullable": {"type": "integer"},
        "anything": {},
        "limits": {"type": "integer", "minimum": 1},
        "plain": {"type": "array"},
    }


def test_a_parameter_without_a_json_form_is_refused_at_once():
    ext = Extension("x")

    with pytest.raises(TypeError, match="tool: parameter 'a' needs an annotation"):

        @ext.tool
        def tool(a):
            pass

    with pytest.raises(TypeError, match="other: parameter 'a': .*object.* has no JSON form"):

        @ext.tool
        def other(a: object):
            pass

    with pytest.raises(TypeError, match="more than one kind of item"):

        @ext.tool
        def third(a: tuple[int, str]):
            pass


# --- an extension in a harness ---------------------------------------------------------------


def make() -> Extension:  # noqa: C901  # one of everything
    ext = Extension("demo", "2.0", fail_closed=True)
    panel = ext.panel("p", "Panel", footer="esc closes")
    seen: list[Any] = []

    @ext.command("say")
    def say(args):
        """Says it.

        At length.
        """
        return {
            "prompt": prompt("p"),
            "insert": insert("i"),
            "display": display("d"),
            "noop": noop(),
            "panel": open_panel(panel),
            "text": "plain",
            "none": None,
        }[args]

    @ext.command("fail", "fails")
    def fail(args):
        raise RuntimeError("no luck")

    @ext.tool
    def greet(name: str, call: Call, times: int = 1) -> str:
        """Greets.

        Politely.
        """
        for i in range(times):
            call.progress(f"{i}")
        return "hello " * times + name

    @ext.tool("raw", "takes a dict", schema={"type": "object"}, timeout=5)
    def raw(args):
        return {"got": args}

    @ext.tool
    def kinds(kind: str) -> Any:
        if kind == "failed":
            raise ToolFailed("as expected")
        if kind == "error":
            raise KeyError("oops")
        if kind == "big":
            return "x" * (5 * 1024 * 1024)
        return {"none": None, "image": Image(b"hi"), "list": ["a", Image(b"b", "image/gif")]}[kind]

    @ext.tool
    def wait(call: Call) -> str:
        ext.notify("waiting")
        return f"cancelled: {call.wait(20)}, {call.cancelled}"

    @ext.tool
    def through(path: str, call: Call) -> str:
        return "zot said: " + ext.call_tool("read", {"path": path}, call=call).text

    @ext.tool
    def asks() -> str:
        return f"{ext.confirm('sure?')} {ext.select('which?', ['a', 'b'])} {ext.input('name?')}"

    @ext.on("turn_start", "turn_end")
    def remember(event):
        seen.append(event.event)
        if event.event == "turn_end":
            ext.notify(f"saw {seen} in {event.session_id}", "success")
            event.nothing  # noqa: B018  # raises: the failure goes to the log, nowhere else

    @ext.intercept("tool_call")
    def rewrite(event):
        if event.tool_name == "read":
            return replace_args({"path": "other"})
        return None

    @ext.intercept("tool_call", "assistant_message", "before_agent_start")
    def check(event):
        if event.event == "assistant_message":
            return replace_text(event.text.upper())
        if event.event == "before_agent_start":
            return replace_system_prompt(event.system_prompt + "!")
        if event.tool_args.get("path") == "other":
            return None
        if event.tool_name == "raise":
            raise Block("raised")
        if event.tool_name == "broken":
            raise ValueError("bug")
        return block("not allowed")

    @panel.on_key
    def key(key, text):
        panel.render([key + text], title="Drawn")
        if key == "esc":
            panel.close()

    @panel.on_close
    def closed():
        ext.notify("panel closed", "warn")

    @ext.on_hello
    def greeted(host):
        ext.log("hello from", host.zot_version)
        if host.provider == "test":
            ext.command("dynamic", "registered late")(lambda args: host.data_dir)

    @ext.on_shutdown
    def bye():
        seen.append("bye")

    ext.seen = seen  # type: ignore[attr-defined]
    return ext


@pytest.fixture
def host():
    with Harness(make(), tools={"read": lambda path: f"text of {path}"}) as harness:
        yield harness


def test_registrations_are_sent_before_ready(host):
    assert host.hello == {
        "type": "hello",
        "name": "demo",
        "version": "2.0",
        "capabilities": ["commands", "tools", "events"],
    }
    assert host.commands["say"]["description"] == "Says it."
    assert host.tools["greet"]["description"] == "Greets.\n\nPolitely."
    assert host.tools["raw"]["schema"] == {"type": "object"}
    assert host.tools["raw"]["timeout"] == 5
    assert host.subscribed["fail_closed"] is True
    assert host.subscribed["events"] == ["turn_start", "turn_end"]
    assert host.frames[-1] == {"type": "ready"}


def test_commands_answer(host):
    assert host.command("say", "prompt")["prompt"] == "p"
    assert host.command("say", "insert")["insert"] == "i"
    assert host.command("say", "display")["display"] == "d"
    assert host.command("say", "text")["display"] == "plain"
    assert host.command("say", "noop")["action"] == "noop"
    assert host.command("say", "none")["action"] == "noop"
    assert host.command("say", "panel")["open_panel"]["footer"] == "esc closes"
    assert host.command("fail")["error"] == "RuntimeError: no luck"
    assert host.command("nobody")["error"] == "KeyError: 'nobody'"
    assert Path(host.command("dynamic")["display"]).is_dir()


def test_tools_answer(host):
    result = host.call("greet", name="Ada", times=2)
    assert (result.text, result.progress) == ("hello hello Ada", ["0", "1"])
    assert host.call("raw", a=1).text == '{"got": {"a": 1}}'
    assert host.call("kinds", kind="none").content == []
    image = {"type": "image", "mime_type": "image/png", "data": "aGk="}
    assert host.call("kinds", kind="image").content == [image]
    assert [each["type"] for each in host.call("kinds", kind="list").content] == ["text", "image"]
    assert host.call("through", path="x").text == "zot said: text of x"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("failed", "as expected"),
        ("error", "KeyError: 'oops'"),
        ("big", "ValueError: a 'tool_result' frame of"),
    ],
)
def test_failures_become_error_results(host, kind, text):
    result = host.call("kinds", kind=kind)
    assert result.is_error
    assert result.text.startswith(text)
    assert repr(result).startswith("Result(error: ")


def test_wrong_arguments_become_error_results(host):
    result = host.call("greet", nonsense=1)
    assert result.is_error
    assert "unexpected keyword argument 'nonsense'" in result.text
    assert host.call("missing").text == "KeyError: 'missing'"


def test_questions_to_the_user_have_answers_or_none(host):
    assert host.call("asks").text == "False None None"

    def user(ask):
        return {"confirmed": True} if ask["method"] == "confirm" else {"value": ask["title"]}

    with Harness(make(), answer=user) as other:
        assert other.call("asks").text == "True which? name?"


def test_an_older_zot_is_not_asked():
    ext = Extension("x")
    assert ext.confirm("sure?") is False


def test_a_cancelled_call_is_told(host):
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(host.call("wait")))
    thread.start()
    host.wait_for("notify", message="waiting")
    host.send("tool_cancel", id="1")
    thread.join(PATIENCE)
    assert results[0].text == "cancelled: True, True"


def test_events_come_in_order_and_a_failing_handler_harms_nothing(host):
    host.event("turn_start", step=1)
    host.event("turn_end", stop="end")
    host.wait_for("notify", message="saw ['turn_start', 'turn_end'] in test")
    assert host.notes == ["saw ['turn_start', 'turn_end'] in test"]
    host.event("turn_start", step=2)
    assert host.command("say", "noop")


def test_interceptors_block_and_replace_in_order(host):
    rewritten = host.intercept("tool_call", tool_name="read", tool_args={"path": "x"})
    assert rewritten["modified_args"] == {"path": "other"}
    assert "block" not in rewritten
    blocked = host.intercept("tool_call", tool_name="bash", tool_args={})
    assert (blocked["block"], blocked["reason"]) == (True, "not allowed")
    assert host.intercept("tool_call", tool_name="raise", tool_args={})["reason"] == "raised"
    broken = host.intercept("tool_call", tool_name="broken", tool_args={})
    assert (broken["block"], broken["reason"]) == (True, "the guard failed: ValueError: bug")
    assert host.intercept("assistant_message", text="hi")["replace_text"] == "HI"
    assert host.intercept("before_agent_start", system_prompt="s")["system_prompt"] == "s!"


def test_panels_draw_on_keys(host):
    host.key("p", "rune", "x")
    drawn = host.wait_for("panel_render", panel_id="p")
    assert (drawn["lines"], drawn["title"]) == (["runex"], "Drawn")
    host.key("p", "esc")
    host.wait_for("panel_close", panel_id="p")
    host.send("panel_close", panel_id="p")
    host.wait_for("notify", message="panel closed", level="warn")
    host.key("unknown", "up")


def test_shutdown_runs_its_handlers():
    ext = make()
    with Harness(ext):
        pass
    assert ext.seen[-1] == "bye"  # type: ignore[attr-defined]


def test_levels_are_checked_and_nothing_is_sent_before_run():
    ext = Extension("x")
    ext.notify("nobody hears this")
    with pytest.raises(ValueError, match="unknown level 'loud'"):
        ext.notify("x", "loud")


def test_the_harness_says_what_is_missing():
    with pytest.raises(EOFError, match="did not say ready: the extension ended"):
        Harness([sys.executable, "-c", "pass"])
    with Harness(Extension("x"), timeout=0.1) as host, pytest.raises(TimeoutError, match="no 'x'"):
        host.wait_for("x")


def test_tools_can_wait_and_commands_can_begin_with_one():
    ext = Extension("late")

    @ext.tool(deferred=True)
    def deploy() -> str:
        return "deployed"

    @ext.tool
    def look() -> object:
        """Looks."""
        return Activated(Markdown("# two"), "deploy")

    @ext.command("today")
    def today(args: str):
        ext.submit_slash("/cost")
        return tool_prompt("what is new?", "bash", {"command": "git log"})

    with Harness(ext) as host:
        assert host.wait_for("register_tool", name="deploy")["deferred"] is True
        assert host.call("look").text == "# two"
        frame = host.wait_for("tool_result")
        assert frame["activate_tools"] == ["deploy"]
        assert frame["content"][0]["format"] == "markdown"
        answer = host.command("today")
        assert (answer["action"], answer["tool_name"]) == ("tool_prompt", "bash")
        assert answer["tool_args"] == {"command": "git log"}
        assert host.wait_for("submit_slash")["text"] == "/cost"


# --- models, dataclasses, docstrings, stderr -------------------------------------------------


@dataclass
class Leg:
    to: str
    nights: int = 1


class Trip(pydantic.BaseModel):
    name: str
    budget: float = pydantic.Field(gt=0)


def test_models_and_dataclasses_are_arguments_and_results():
    ext = Extension("x", "1")

    @ext.tool
    def plan(trip: Trip, legs: list[Leg], first: Optional[Leg] = None) -> dict[str, Any]:  # noqa: UP045
        """Plan a trip.

        Args:
            trip: the whole
            legs: its parts,
                in order
        """
        assert isinstance(trip, Trip) and isinstance(legs[0], Leg)
        return {"trip": trip, "last": legs[-1], "first": first}

    with Harness(ext) as host:
        frame = host.tools["plan"]
        assert frame["description"] == "Plan a trip."
        assert frame["schema"]["properties"]["legs"]["description"] == "its parts, in order"
        assert frame["schema"]["properties"]["legs"]["items"]["required"] == ["to"]
        done = host.call("plan", trip={"name": "a", "budget": 2}, legs=[{"to": "Rome"}])
        assert json.loads(done.text) == {
            "trip": {"name": "a", "budget": 2.0},
            "last": {"to": "Rome", "nights": 1},
            "first": None,
        }
        assert host.call("plan", trip={"name": "a", "budget": 0}, legs=[]).is_error


def test_an_image_says_how_it_is_wrong():
    with pytest.raises(TypeError, match="bytes and str"):
        Image("image/png", b"x")


def test_the_harness_shows_what_an_extension_wrote_before_it_died():
    program = "import sys; sys.exit('no such key: WEATHER_KEY')"
    with pytest.raises(EOFError, match="no such key: WEATHER_KEY"):
        Harness([sys.executable, "-c", program])


def test_the_harness_keeps_stderr_and_the_failure_of_an_extension():
    ext = Extension("x", "1")

    @ext.on_hello
    def fail(host: Any) -> None:
        raise RuntimeError("the door is shut")

    with pytest.raises(EOFError, match="the door is shut"):
        Harness(ext)


def test_zot_ext_is_the_same_module_where_zot_is_installed():
    import zot_ext

    assert zot_ext.Extension is Extension
