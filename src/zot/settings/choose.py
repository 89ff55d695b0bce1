"""Chooses a provider on this machine when the user named none and has no key: a model server that
answers, or a pulled model. Downloads nothing, and contacts no address outside this machine.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import msgspec

from zot.errors import ConfigError, NoModelError, ProviderError
from zot.local.models import DEFAULT, pulled_models
from zot.provider.address import host_and_port, is_loopback
from zot.provider.discover import live_models
from zot.provider.providers import PROVIDERS, env_base_url
from zot.settings.resolve import Choice
from zot.text import Frozen

CONNECT_SECONDS = 0.05
"""Connect timeout: a loopback port responds within a millisecond, later under load."""
ANSWER_SECONDS = 0.5

THREE_WAYS = """\
no model is set up. Three ways to get one:
  1. a key:    set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's variable,
               or run `zot login`
  2. a server: start ollama, llama.cpp, vLLM, LM Studio, Jan or Docker Model Runner on this
               machine; zot finds it
  3. no key, no network: zot local pull (1.1 GB; `zot local list` shows a smaller one)"""


class Candidate(Frozen):
    """A model server that may run on this machine."""

    provider: str
    title: str
    base_url: str


CANDIDATES = (
    Candidate("ollama", "ollama", "http://127.0.0.1:11434/v1"),
    Candidate("llama.cpp", "llama.cpp", "http://127.0.0.1:8080/v1"),
    Candidate("vllm", "vLLM", "http://127.0.0.1:8000/v1"),
    Candidate("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1"),
    Candidate("custom", "Jan", "http://127.0.0.1:1337/v1"),
    Candidate("custom", "Docker Model Runner", "http://127.0.0.1:12434/engines/v1"),
)


def choose(
    environ: Mapping[str, str], home: str, candidates: Sequence[Candidate] = CANDIDATES
) -> Choice:
    """Choose a provider on this machine; `home` is zot's.

    Raises:
        AuthError: there is none at all; says how to get one.
    """
    choice = _on_this_machine(environ, candidates) or _pulled(home)
    if choice is None:
        raise NoModelError(THREE_WAYS)
    return choice


def _on_this_machine(environ: Mapping[str, str], candidates: Sequence[Candidate]) -> Choice | None:
    """Return the first listening server that offers a model."""
    for server in (_moved(candidate, environ) for candidate in candidates):
        host, port = host_and_port(server.base_url)
        if is_loopback(host) and _listens(server) and (model := first_model(server)):
            because = f"{server.title} answers on port {port}"
            return Choice(PROVIDERS[server.provider], model, server.base_url, because)
    return None


def _moved(candidate: Candidate, environ: Mapping[str, str]) -> Candidate:
    """Return the candidate at the address the user set, if any."""
    if candidate.provider == "custom":
        return candidate
    moved = env_base_url(PROVIDERS[candidate.provider], environ)
    return msgspec.structs.replace(candidate, base_url=moved) if moved else candidate


def _pulled(home: str) -> Choice | None:
    names = [model.name for model in pulled_models(home)]
    if not names:
        return None
    name = DEFAULT if DEFAULT in names else names[0]
    return Choice(PROVIDERS["local"], name, because="the model on this machine")


# --- probing the machine ---------------------------------------------------------------------


def _listens(server: Candidate) -> bool:
    """Return whether the server's port accepts connections."""
    try:
        socket.create_connection(host_and_port(server.base_url), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def first_model(server: Candidate) -> str:
    """Return the first chat model the server offers; empty when it is not a model server."""
    info = PROVIDERS[server.provider]
    try:
        models = live_models(info, base_url=server.base_url, seconds=ANSWER_SECONDS)
    except (ProviderError, ConfigError):
        return ""  # something else listens on that port
    return models[0].id if models else ""
