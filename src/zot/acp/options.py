"""Session options that a client can set: model, reasoning level, approval mode, jail."""

from __future__ import annotations

from typing import get_args

from zot.acp import shapes
from zot.core.hook import ApprovalMode
from zot.errors import CommandError, ZotError
from zot.provider.model import clamped, levels
from zot.provider.types import LEVELS, Level, Model
from zot.runtime.runtime import Runtime

MODES: dict[ApprovalMode, tuple[str, str]] = {
    "ask": ("Ask", "Ask before files are changed and commands run"),
    "ask_all": ("Ask always", "Ask before every tool"),
    "edits": ("Accept edits", "Change files of the project without asking, ask before commands"),
    "plan": ("Plan", "Only read: tools that change anything are refused"),
    "yolo": ("Do not ask", "Run every tool without asking"),
}
MAX_MODELS = 500
ON, OFF = "on", "off"


def modes(runtime: Runtime) -> shapes.ModeState:
    known = tuple(shapes.AcpMode(id, name, text) for id, (name, text) in MODES.items())
    return shapes.ModeState(runtime.approvals.mode, known)


def config_options(runtime: Runtime, *, switches: bool) -> tuple[shapes.AcpConfig, ...]:
    """Return all options with their values. `switches`: the client supports boolean options."""
    model = runtime.models.current
    thinking = levels(model)
    level = clamped(runtime.agent.settings.reasoning, model)
    words = tuple(shapes.SelectOption(id, name, text) for id, (name, text) in MODES.items())
    return (
        shapes.SelectConfig("model", "Model", "model", model_value(model), _models(runtime)),
        shapes.SelectConfig(
            "reasoning",
            "Thinking",
            "thought_level",
            level,
            tuple(shapes.SelectOption(word, word.capitalize()) for word in thinking),
        ),
        shapes.SelectConfig("mode", "Approval", "mode", runtime.approvals.mode, words),
        _jail(runtime.state().jail, switches=switches),
    )


def _jail(on: bool, *, switches: bool) -> shapes.AcpConfig:
    text = "Keep the tools inside the working directory, without network"
    if switches:
        return shapes.SwitchConfig("jail", "Jail", "_jail", on, text)
    words = (shapes.SelectOption(OFF, "Off"), shapes.SelectOption(ON, "On"))
    return shapes.SelectConfig("jail", "Jail", "_jail", ON if on else OFF, words, text)


def model_value(model: Model) -> str:
    return f"{model.provider}/{model.id}"


def _models(runtime: Runtime) -> tuple[shapes.SelectOption, ...] | tuple[shapes.SelectGroup, ...]:
    """Return the available models, grouped by provider if there are several."""
    present = runtime.models.current
    try:
        models = list(runtime.models.all())[:MAX_MODELS]
    except ZotError:
        models = []
    if model_value(present) not in map(model_value, models):
        models.insert(0, present)
    providers = dict.fromkeys(model.provider for model in models)
    groups = []
    for name in providers:
        own = (model for model in models if model.provider == name)
        options = (shapes.SelectOption(model_value(model), model.name or model.id) for model in own)
        groups.append(shapes.SelectGroup(name, name, tuple(options)))
    return tuple(groups) if len(groups) > 1 else groups[0].options


def set_option(runtime: Runtime, id: str, value: str | bool) -> None:
    """Set an option. Raises CommandError: there is no such option or value, or a run is in progress
    (the jail); ConfigError, AuthError: there is no such model, or no key for it."""
    match id, value:
        case "model", str():
            _set_model(runtime, value)
        case "reasoning", str():
            runtime.models.set_reasoning(_level(value), while_busy=True, clamp=True)
        case "mode", str():
            set_mode(runtime, value)
        case "jail", bool() | "on" | "off":
            on = value in (True, ON)
            if on != runtime.shell.jailed:  # "on" must not widen a jail that is read-only
                runtime.shell.set_jail(on)
        case "model" | "reasoning" | "mode" | "jail", _:
            raise CommandError(f"the option {id!r} cannot be {value!r}")
        case _:
            raise CommandError(f"there is no option {id!r}: model, reasoning, mode, jail")


def _set_model(runtime: Runtime, value: str) -> None:
    """Set one of the offered models, or any that the runtime finds by this name."""
    provider, _, id = value.partition("/")
    offered = any((model.provider, model.id) == (provider, id) for model in runtime.models.all())
    if offered:
        runtime.models.set(id, provider, later=True)
    else:
        runtime.models.set(value, later=True)


def set_mode(runtime: Runtime, value: str) -> None:
    for mode in get_args(ApprovalMode):
        if mode == value:
            runtime.approvals.set_mode(mode)
            return
    raise CommandError(f"there is no mode {value!r}: {', '.join(MODES)}")


def _level(value: str) -> Level:
    for level in LEVELS:
        if level == value:
            return level
    raise CommandError(f"there is no level {value!r}: {', '.join(LEVELS)}")
