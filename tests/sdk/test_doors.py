import inspect
import pydoc
import subprocess
import sys
from typing import Any, get_args, get_origin

import pytest
from support.environment import uncovered

import zot
from zot import client, sdk
from zot.client import Client, ClientAgent, ClientCommands, EventIterator
from zot.testing import ScriptedProvider

HEAVY = ("asyncio", "ssl", "http", "inspect", "logging", "subprocess", "msgspec", "json")


def loaded(statement):
    """The modules that a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=uncovered()
    )
    return set(done.stdout.split())


def test_import_zot_loads_nothing_else():
    assert loaded("import zot") - loaded("pass") == {"zot"}


def test_import_zot_ext_loads_neither_http_nor_the_agent():
    modules = loaded("import zot.ext")
    assert modules.isdisjoint({"ssl", "http.client", "asyncio", "zot.sdk", "zot.runtime.runtime"})
    assert modules.isdisjoint({"zot.core.agent", "zot.provider.http", "socket"})


def test_import_zot_observe_loads_nothing_else_of_zot():
    ours = {name for name in loaded("import zot.observe") if name.startswith("zot")}
    assert {name for name in ours if not name.startswith("zot.observe")} == {"zot"}


def test_the_runtime_loads_neither_asyncio_nor_http_before_it_is_used():
    modules = loaded("from zot import Runtime")
    assert modules.isdisjoint({"asyncio", "ssl", "http.client", "logging", "argparse"})


def test_all_names_of_the_sdk_are_there():
    assert sorted(sdk.__all__) == sdk.__all__
    for name in sdk.__all__:
        assert getattr(sdk, name) is not None


def test_nothing_public_is_missing_from_all():
    public = {name for name in vars(sdk) if name.isidentifier() and not name.startswith("_")}
    modules = {
        "aio",
        "config",
        "coroutine",
        "function",
        "listener",
        "messages",
        "output",
        "runtime",
        "stream",
        "turns",
    }
    modules.add("annotations")
    assert public - modules - {"TYPE_CHECKING", "Any"} <= set(sdk.__all__)


def test_the_names_of_zot_are_those_of_the_sdk():
    for name in zot.__all__:
        home = client if name in ("AsyncClient", "Client") else sdk
        assert getattr(zot, name) is getattr(home, name)
    assert set(zot.__all__) <= set(dir(zot))
    assert "zot.sdk" in loaded("from zot import *\nassert Runtime")


def test_help_can_show_every_name():
    for name in sdk.__all__:
        assert pydoc.render_doc(getattr(sdk, name)).startswith("Python Library Documentation")


def documented(thing):
    """Whether a class has a docstring of its own, or a function any."""
    return bool((thing.__doc__ if inspect.isclass(thing) else inspect.getdoc(thing)) or "")


def test_every_public_name_and_method_has_a_docstring():
    missing = []
    doors = {name: getattr(sdk, name) for name in sdk.__all__}
    classes = (Client, ClientAgent, ClientCommands, EventIterator, client.AsyncClient)
    classes += (client.AsyncClientAgent, client.AsyncEventIterator, *get_args(sdk.EventFrame))
    doors |= {door.__name__: door for door in classes}
    for name, public in doors.items():
        if get_origin(public) is not None:
            continue  # a Literal has no docstring
        if inspect.isclass(public):
            members = ((f"{name}.{word}", vars(public)[word]) for word in vars(public))
            missing += [
                word
                for word, member in members
                if "._" not in word and (callable(member) or isinstance(member, property))
                if not documented(member)
            ]
        if not documented(public):
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("door", [sdk.Runtime, sdk.AsyncRuntime])
def test_the_signature_names_every_setting_with_its_type_and_default(door):
    config, *settings = inspect.signature(door).parameters.values()
    assert config.name == "config"
    fields = inspect.signature(sdk.Config).parameters
    assert [setting.name for setting in settings] == list(fields)
    for setting in settings:
        assert setting.annotation == fields[setting.name].annotation != Any
        assert setting.default == getattr(sdk.Config(), setting.name)


@pytest.mark.parametrize("module", [zot, sdk])
def test_an_unknown_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = module.nonsense


def test_a_loop_can_ask_for_all_that_a_thread_can():
    def names(door):
        return {name for name in vars(door) if not name.startswith("_")}

    assert names(sdk.AsyncRuntime) - {"name"} == names(sdk.Runtime)


def methods(door):
    return [getattr(door, name) for name in dir(door) if not name.startswith("_")]


@pytest.mark.parametrize(
    "door", [sdk.Runtime, sdk.AsyncRuntime, Client, client.AsyncClient, client.ClientAgent]
)
def test_help_shows_real_parameters(door):
    for method in filter(callable, methods(door)):
        for parameter in inspect.signature(method).parameters.values():
            assert "Args" not in str(parameter.annotation), method
            assert parameter.kind is not parameter.VAR_POSITIONAL, method


def test_help_of_asyncio_names_the_streams_of_asyncio():
    for name in ("prompt", "retry", "resume_run"):
        returned = inspect.signature(getattr(sdk.AsyncRuntime, name)).return_annotation
        assert returned == "AsyncEventStream"
    assert inspect.signature(client.AsyncClient.prompt).return_annotation == "AsyncEventIterator"


def test_a_loop_can_send_all_that_a_thread_can():
    for blocking, door in ((Client, client.AsyncClient), (ClientAgent, client.AsyncClientAgent)):
        assert {name for name in dir(blocking) if not name.startswith("_")} <= set(dir(door))


def test_an_image_says_how_it_is_wrong():
    with pytest.raises(TypeError, match="data is str and must be bytes; base64.b64decode"):
        sdk.Image("image/png", "aGk=")
    with pytest.raises(TypeError, match="mime_type is bytes"):
        sdk.Image(b"hi", "image/png")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"durable": True}, "durable=True needs a session file .*: add session=PATH"),
        ({"cwd": "/no/such"}, "cwd='/no/such' is not a directory"),
        ({"record": "a", "replay": "b"}, "record and replay contradict"),
        ({"extensions": ["/no/such"]}, "extensions '/no/such': there is no extension.json"),
        ({"provider": "scripted"}, "pass script=FILE"),
    ],
)
def test_errors_name_the_keyword_and_not_the_flag(settings, text):
    settings = {"provider": ScriptedProvider(["x"]), **settings}
    with pytest.raises(sdk.ConfigError, match=text) as failed:
        sdk.Runtime(**settings)
    assert "--" not in str(failed.value)


def test_a_name_for_a_run_that_is_not_durable_is_refused_in_words_of_python():
    runtime = sdk.Runtime(provider=ScriptedProvider(["x"]))
    with runtime, pytest.raises(sdk.CommandError, match="durable=True"):
        runtime.prompt("hi", run="mine")


def test_an_unknown_field_of_a_scripted_turn_names_the_known_ones():
    with pytest.raises(sdk.ConfigError, match="`txt`.*a turn has text, thinking, tools"):
        ScriptedProvider([{"txt": "x"}])
