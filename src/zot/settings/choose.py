"""Which provider, when the user named none: the first one that can answer. Never a guess that
costs something, never a download, never an address outside this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from zot.errors import AuthError, ConfigError, ProviderError
from zot.provider.address import parse_url
from zot.provider.providers import (
    PROVIDERS,
    ProviderInfo,
    env_base_url,
    env_key,
    find_provider,
)

CONNECT_SECONDS = 0.05
"""A loopback port answers or refuses within a millisecond; this is for a machine under load."""
ANSWER_SECONDS = 0.5
MAX_ANSWER = 1 << 20

THREE_WAYS = """\
no model is set up. Three ways to get one:
  1. a key:    set ANTHROPIC_API_KEY, OPENAI_API_KEY or another provider's variable,
               or run `zot login`
  2. a server: start ollama, llama.cpp, vLLM, LM Studio, Jan or Docker Model Runner on this
               machine; zot finds it
  3. no key, no network: pip install 'zot[local]' && zot local pull
               (1.1 GB; `zot local list` shows a smaller one)"""


class Choice(Struct, frozen=True):
    info: ProviderInfo
    model: str = ""
    """Empty: the provider's default."""
    base_url: str = ""
    because: str = ""
    """Why this one; empty when the user named it."""

    def line(self, model: str) -> str:
        """What the user is told."""
        return (
            f"using {self.info.name} with {model} ({self.because}); --provider NAME chooses another"
        )


class Candidate(Struct, frozen=True):
    """A server that may run on this machine."""

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
    provider: str,
    environ: Mapping[str, str],
    *,
    stored: Callable[[], Sequence[str]] = tuple,
    candidates: Sequence[Candidate] = CANDIDATES,
) -> Choice:
    """The provider to use; `provider` is what the user set, `stored` names those with credentials.

    Raises:
        ConfigError: the user named one that does not exist.
        AuthError: there is none at all; says how to get one.
    """
    if provider:
        return Choice(find_provider(provider))
    for info in PROVIDERS.values():
        if env_key(info, environ) and not info.key_optional:
            return Choice(info, because=f"{_key_variable(info, environ)} is set")
    for name in stored():
        return Choice(find_provider(name), because="you are logged in")
    return _on_this_machine(environ, candidates) or _pulled() or _none()


def _on_this_machine(environ: Mapping[str, str], candidates: Sequence[Candidate]) -> Choice | None:
    """The first server that answers, of all that listen."""
    wanted = [_moved(candidate, environ) for candidate in candidates]
    for candidate in _listening([each for each in wanted if is_loopback(each.base_url)]):
        if model := first_model(candidate.base_url):
            port = _address(candidate.base_url)[1]
            return Choice(
                PROVIDERS[candidate.provider],
                model,
                candidate.base_url,
                f"{candidate.title} answers on port {port}",
            )
    return None


def _moved(candidate: Candidate, environ: Mapping[str, str]) -> Candidate:
    """The user may have moved a server to another port."""
    if candidate.provider == "custom":
        return candidate
    moved = env_base_url(PROVIDERS[candidate.provider], environ)
    return msgspec.structs.replace(candidate, base_url=moved) if moved else candidate


def _pulled() -> Choice | None:
    # Deferred: only when nothing else was found.
    from zot.local.models import DEFAULT, pulled_models

    names = [model.name for model in pulled_models()]
    if not names:
        return None
    name = DEFAULT if DEFAULT in names else names[0]
    return Choice(PROVIDERS["local"], name, because="the model on this machine")


def _none() -> Choice:
    raise AuthError(THREE_WAYS)


def _key_variable(info: ProviderInfo, environ: Mapping[str, str]) -> str:
    return next(name for name in info.env if environ.get(name))


# --- asking the machine ----------------------------------------------------------------------


def is_loopback(url: str) -> bool:
    return _address(url)[0] in ("127.0.0.1", "localhost", "::1")


def _address(url: str) -> tuple[str, int]:
    try:
        address = parse_url(url)
    except ConfigError:
        return "", 0
    return address.host, address.port


def _listening(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those with somebody behind their port; all are tried at once."""
    import select
    import socket  # both only when nothing was configured

    trying: dict[int, tuple[socket.socket, Candidate]] = {}
    poll = select.poll()
    for candidate in candidates:
        host, port = _address(candidate.base_url)
        family = socket.AF_INET6 if host == "::1" else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1" if host == "localhost" else host, port))
        poll.register(sock, select.POLLOUT)
        trying[sock.fileno()] = sock, candidate
    answering = set()
    waiting = set(trying)
    while waiting and (ready := poll.poll(CONNECT_SECONDS * 1000)):
        for fd, _ in ready:
            poll.unregister(fd)
            waiting.remove(fd)
            sock, candidate = trying[fd]
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                answering.add(candidate)
    for sock, _ in trying.values():
        sock.close()
    return [candidate for candidate in candidates if candidate in answering]


def first_model(base_url: str) -> str:
    """The first model a server offers for conversation; empty when it is not a model server."""
    from zot.provider.http import open_url  # as above

    headers = {"accept": "application/json"}
    url = f"{base_url.rstrip('/')}/models"
    try:
        with open_url("local", url, headers=headers, seconds=ANSWER_SECONDS) as answer:
            if answer.status != 200:
                return ""
            listed = msgspec.json.decode(answer.read_all(MAX_ANSWER), type=_Models)
    except (ProviderError, ConfigError, msgspec.MsgspecError, UnicodeDecodeError):
        return ""  # something else lives on that port
    talking = [row.id for row in listed.data or () if "embed" not in row.id.lower()]
    return talking[0] if talking else ""


class _ModelRow(Struct, frozen=True):
    id: str


class _Models(Struct, frozen=True):
    data: tuple[_ModelRow, ...] | None = ()
