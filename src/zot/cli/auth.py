"""`zot login`, `zot logout`, `zot auth status`. Talks to the user; stores nothing itself."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import closing

import msgspec

from zot.bugs import complain
from zot.cancel import Cancel
from zot.cli import output
from zot.cli.output import PlainParser, arg, flag, json_flag, say, say_either, say_now
from zot.errors import AuthError, UsageError
from zot.home import home_dir
from zot.provider.auth import oauth
from zot.provider.auth.page import CallbackPage, KeyPage
from zot.provider.auth.resolve import find_credential, key_from_command, masked
from zot.provider.auth.store import AuthFile, Credential, KeyCommand
from zot.provider.discover import probe
from zot.provider.providers import ProviderInfo
from zot.settings.known import Known, keep_key, log_out, try_key, with_token

COMMAND_SECONDS = 120.0


# --- login -----------------------------------------------------------------------------------


def login(argv: Sequence[str]) -> int:
    parser = PlainParser(
        prog="zot login", description="Store a credential of a model provider on this machine."
    ).add(
        arg("provider", nargs="?", default="", help="anthropic, openai, ..."),
        flag("--no-browser", help="ask in the terminal"),
        flag("--no-probe", help="do not test the key"),
        flag("--keyring", help="store the key in the keyring"),
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--oauth", action="store_true", help="log in with the browser")
    how.add_argument("--device", action="store_true", help="log in with a code on any device")
    how.add_argument("--command", nargs="+", help="run this program for the key, each time")
    arguments = parser.parse_args(argv[1:])
    known = Known(home_dir(os.environ))
    info = _provider(arguments.provider, known)
    file = AuthFile(known.home)
    if arguments.command:
        program, *rest = arguments.command
        if not arguments.no_probe:
            words, hidden = (program, *rest), known.key_variables(os.environ)
            key = key_from_command(words, COMMAND_SECONDS, info.name, os.environ, hidden)
            if note := try_key(info, key):
                complain(note)
        file.put(info.name, Credential(api_key_command=KeyCommand(program, tuple(rest))))
    elif arguments.oauth or arguments.device:
        server = oauth.server_of(info.name, known.home)
        if arguments.device:
            file.put(info.name, _device(server))
        else:
            file.put(info.name, _browser(server, show=_has_browser() and not arguments.no_browser))
    else:
        _key(info, known.home, arguments)
    say(f"logged in to {info.title or info.name}; the credential is in {file.path}")
    return 0


def _provider(name: str, known: Known) -> ProviderInfo:
    if not name and sys.stdin.isatty():
        names = [info.name for info in known.providers().values() if info.auth != "none"]
        name = output.asked(f"providers: {', '.join(names)}\nlog in to: ")
    if not name:
        raise UsageError("name a provider, for example: zot login anthropic")
    info = known.provider(name)
    if info.auth == "none":
        raise AuthError(f"provider {info.name!r} needs no credential")
    return info


def _key(info: ProviderInfo, home: str, arguments: argparse.Namespace) -> None:
    def take(key: str) -> str:
        try:
            note = keep_key(
                info, key, home, try_it=not arguments.no_probe, keyring=arguments.keyring
            )
        except AuthError as error:
            return str(error)
        if note:
            complain(note)
        return ""

    if sys.stdin.isatty() and _has_browser() and not arguments.no_browser:
        with closing(KeyPage(info.title or info.name, take)) as page:
            output.open_in_browser(page.url)
            if not page.wait(Cancel()):
                raise AuthError("no key was entered within ten minutes; start again")
        return
    if sys.stdin.isatty():
        key = getpass.getpass(f"API key of {info.title or info.name}: ").strip()
    else:
        key = sys.stdin.readline().strip()
    if not key:
        raise AuthError("no key was given; pipe it in, or run this in a terminal")
    if problem := take(key):
        raise AuthError(problem)


def _browser(server: oauth.AuthServer, *, show: bool) -> Credential:
    with closing(CallbackPage(server)) as page:
        attempt = page.attempt
        if not show and server.manual_redirect:
            attempt = oauth.begin(server, server.manual_redirect)
        if show:
            output.open_in_browser(attempt.url)
        else:
            say_now(f"open this address in a browser:\n\n  {attempt.url}\n")
        say_now("or paste here the code, or the address the browser ends on:")
        failed: list[AuthError] = []
        threading.Thread(
            target=_read_code, args=(attempt, page, failed), name="zot-paste", daemon=True
        ).start()
        try:
            code = page.wait(Cancel())
        except AuthError as error:
            raise failed[0] if failed else error from None
        return oauth.exchange(server, attempt, code)


def _read_code(attempt: oauth.Attempt, page: CallbackPage, failed: list[AuthError]) -> None:
    """Read a pasted code: a browser on another machine cannot redirect to this one."""
    line = sys.stdin.readline()
    if not line.strip():
        return  # no terminal, or it was closed: the browser may still redirect
    try:
        page.paste(oauth.pasted_code(line, attempt))
    except AuthError as error:
        failed.append(error)
        page.paste("")


def _device(server: oauth.AuthServer) -> Credential:
    device = oauth.begin_device(server)
    address = device.verification_uri_complete or device.verification_uri
    say_now(f"open {address} on any device and enter the code {device.user_code}")
    return oauth.finish_device(server, device, Cancel())


def _has_browser() -> bool:
    """Return whether a browser can be opened here; environment variables take precedence."""
    if os.environ.get("ZOT_NO_BROWSER"):
        return False
    if os.environ.get("ZOT_FORCE_BROWSER"):
        return True
    if sys.platform != "linux":
        return True
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(shown) and not os.path.exists("/.dockerenv")


# --- logout and status -----------------------------------------------------------------------


def logout(argv: Sequence[str]) -> int:
    parser = PlainParser(prog="zot logout", description="Delete a credential.").add(
        arg("provider", nargs="?", default=""),
        flag("--all", help="of every provider"),
    )
    arguments = parser.parse_args(argv[1:])
    file = AuthFile(home_dir(os.environ))
    stored = file.all()
    names = list(stored) if arguments.all else [arguments.provider]
    if names == [""]:
        raise UsageError(
            f"name a provider, or use --all; logged in to: {', '.join(stored) or 'none'}"
        )
    for name in names:
        log_out(name, home_dir(os.environ))
        say(f"logged out of {name}")
    return 0


class AuthStatus(msgspec.Struct, frozen=True):
    provider: str
    source: str
    where: str
    key: str
    """Masked: only the end of the key."""
    probe: str


def auth(argv: Sequence[str]) -> int:
    parser = PlainParser(prog="zot auth", description="List the credentials.").add(
        arg("action", choices=["status"]),
        flag("--no-probe", help="do not ask the providers"),
        json_flag(),
    )
    arguments = parser.parse_args(argv[1:])
    known = Known(home_dir(os.environ))
    AuthFile(known.home).check()  # once, not once for every provider
    statuses = [
        status
        for info in known.providers().values()
        if (status := _status(info, known, ask=not arguments.no_probe)) is not None
    ]
    for status in statuses:
        words = (f"{status.provider:16}", f"{status.key:10}", status.source, status.where)
        say_either(arguments, status, "  ".join((*words, status.probe)).rstrip())
    if not statuses and not arguments.json:
        say("no credentials; `zot login PROVIDER` keeps one")
    return 0


def _status(info: ProviderInfo, known: Known, *, ask: bool) -> AuthStatus | None:
    if info.auth == "none":
        return None
    try:
        credential = find_credential(
            info,
            "",
            os.environ,
            known.home,
            run_commands=ask,
            hidden=known.key_variables(os.environ),
        )
    except AuthError as error:
        return AuthStatus(info.name, "broken", "", "", str(error))
    if credential is None:
        return None
    words, key = "", credential.key
    if ask and key:
        probed = probe(with_token(info, key) if credential.source == "oauth" else info, key)
        words = f"{probed.verdict}: {probed.reason}" if probed.reason else probed.verdict
    return AuthStatus(info.name, credential.source, credential.where, masked(key), words)
