"""`zot ext`: list, install, remove, switch, examine and create extensions.

Prints only; the work is done in `zot.extensions`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from zot.bugs import complain
from zot.cli import output
from zot.cli.output import YES, Subcommands, arg, flag, json_flag, say, say_either, say_json
from zot.errors import ExtensionError
from zot.extensions import install, manifest
from zot.extensions.doctor import Finding, examine
from zot.extensions.host import HostSettings
from zot.home import home_dir
from zot.provider.types import Json
from zot.settings.known import Known
from zot.settings.trust import is_trusted
from zot.text import for_terminal
from zot.tools.registry import NAMES

TAIL_LINES = 200


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("ext", "Extensions: programs that add tools, commands and guards to zot.")
    name, json = arg("name"), json_flag("print JSON")
    add = actions.add
    # fmt: off
    add("list", _list, "list the installed extensions", json)
    add("install", _install, "copy a folder, or clone a repository", json,
        arg("source", metavar="PATH|GIT-URL[#COMMIT]"),
        flag("--force", help="replace an installed extension"),
        flag("--insecure", help="allow http:// and git://"))
    add("remove", _remove, "delete an extension's folder; its log stays", name, YES, json,
        aliases=("rm",))
    for word in ("enable", "disable"):
        add(word, _switch, f"{word} an extension without touching its files", name, json)
    add("logs", _logs, "show an extension's stderr, and zot's notes about it", name, json,
        flag("-f", "--follow", help="go on as it grows"),
        arg("-n", "--lines", type=int, default=TAIL_LINES, help="lines from the end (200)"))
    add("doctor", _doctor, "start extensions and report their problems; waits up to 60 s each",
        json, arg("names", nargs="*", metavar="NAME|PATH", help="default: all"))
    add("new", _new, "create a small working extension", name, json,
        arg("--language", choices=install.LANGUAGES, default="python"),
        arg("--dir", default=".", help="parent of the new folder (default: here)"))
    # fmt: on
    return actions.run(argv[1:])


# --- list ------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    cwd = Path.cwd()
    discovery = manifest.discover(manifest.ExtensionPlaces(cwd, _home()))
    trusted = is_trusted(str(cwd), home_dir(os.environ))
    if options.json:
        described = [_described(installed, trusted) for installed in discovery.extensions]
        say_json(described, indent=True)
    elif not discovery.extensions:
        complain(
            "no extensions installed; begin one with `zot ext new NAME`, or install one with "
            "`zot ext install PATH|GIT-URL`"
        )
    else:
        heads = ("NAME", "VERSION", "STATE", "SCOPE", "LANGUAGE", "DESCRIPTION", "FOLDER")
        output.say_table([heads, *(_row(installed, trusted) for installed in discovery.extensions)])
    for problem in discovery.problems:
        complain(problem.message)
    return 1 if discovery.problems else 0


def _state(installed: manifest.Installed, trusted: bool) -> str:
    if not installed.manifest.enabled:
        return "disabled"
    return "not trusted" if installed.scope == "project" and not trusted else "enabled"


def _row(installed: manifest.Installed, trusted: bool) -> tuple[str, ...]:
    says = installed.manifest
    folder = str(installed.directory).replace(str(Path.home()) + "/", "~/")
    return (
        *(installed.name, says.version or "-", _state(installed, trusted), installed.scope),
        *(says.language or "-", says.description or "-", folder),
    )


def _described(installed: manifest.Installed, trusted: bool) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(installed.manifest)
    return {
        **fields,
        "state": _state(installed, trusted).replace(" ", "_"),
        "scope": installed.scope,
        "directory": str(installed.directory),
    }


# --- change ----------------------------------------------------------------------------------


def _install(options: argparse.Namespace) -> None:
    done = install.install(
        options.source, _home(), os.environ, force=options.force, insecure=options.insecure
    )
    if options.json:
        say_json(_described(done, trusted=True), indent=True)
        return
    version = f" {done.manifest.version}" if done.manifest.version else ""
    say(f"installed {done.name}{version} in {done.directory}")
    try:
        if done.manifest.exec:
            done.command()
    except ExtensionError as error:
        complain(f"{error}; build it there before zot can start it")
    say(f"check it with: zot ext doctor {done.name}")


def _remove(options: argparse.Namespace) -> int:
    folder = install.find(options.name, Path.cwd(), _home())
    if not options.yes and not output.agreed(f"remove {folder} ?"):
        complain("nothing was removed; --yes removes it without asking")
        return 1
    install.remove(folder)
    say_either(options, {"removed": str(folder)}, f"removed {folder}", indent=True)
    return 0


def _switch(options: argparse.Namespace) -> None:
    folder, enabled = install.find(options.name, Path.cwd(), _home()), options.action == "enable"
    install.set_enabled(folder, enabled)
    what = f"{options.action}d {options.name} ({folder / manifest.FILE})"
    value = {"name": options.name, "enabled": enabled, "directory": str(folder)}
    say_either(options, value, f"{what}; it counts from the next start or reload", indent=True)


def _new(options: argparse.Namespace) -> None:
    parent = Path(options.dir)
    files = install.create(options.name, options.language, parent)
    folder = parent / options.name
    paths = [str(folder / file.name) for file in files]
    advice = [
        f"try it:   zot ext doctor {_as_path(folder)}",
        f"use it:   zot ext install {_as_path(folder)}",
    ]
    value = {"directory": str(folder), "files": paths}
    say_either(options, value, "\n".join(paths + advice), indent=True)


def _as_path(folder: Path) -> str:
    return str(folder) if folder.is_absolute() else f"./{folder}"


# --- logs ------------------------------------------------------------------------------------


def _logs(options: argparse.Namespace) -> int:
    path = manifest.log_path(_home(), options.name)
    if not path.exists():
        install.find(options.name, Path.cwd(), _home())
        if not options.follow:
            raise ExtensionError(f"{options.name!r} has no log yet: it was never started")
    lines = _last_lines(path, max(0, options.lines))
    if options.json:
        texts = [line.rstrip("\n") for line in lines]
        say_json({"path": str(path), "lines": texts}, indent=True)
        return 0
    sys.stdout.write(for_terminal("".join(lines)))
    sys.stdout.flush()
    if options.follow:
        _follow(path)
    return 0


def _last_lines(path: Path, count: int) -> list[str]:
    lines: list[str] = []
    for file in (path.with_name(path.name + ".1"), path):
        if file.exists():
            lines += file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return lines[len(lines) - count :] if count < len(lines) else lines


def _follow(path: Path) -> None:
    """Print added text until interrupted, also after the file was rotated."""
    file = _opened_at_end(path)
    try:
        while True:
            if file is not None and (data := file.read()):
                sys.stdout.write(for_terminal(data))
                sys.stdout.flush()
                continue
            time.sleep(0.2)
            if path.exists() and (file is None or _is_other(file, path)):
                if file is not None:
                    file.close()
                file = path.open(encoding="utf-8", errors="replace")
    finally:
        if file is not None:
            file.close()


def _opened_at_end(path: Path) -> IO[str] | None:
    if not path.exists():
        return None
    file = path.open(encoding="utf-8", errors="replace")
    file.seek(0, os.SEEK_END)
    return file


def _is_other(file: IO[str], path: Path) -> bool:
    return os.fstat(file.fileno()).st_ino != path.stat().st_ino


# --- doctor ----------------------------------------------------------------------------------


def _doctor(options: argparse.Namespace) -> int:
    cwd = Path.cwd()
    chosen = tuple(_folder(name, cwd) for name in options.names)
    settings = HostSettings(
        cwd=cwd,
        home=_home(),
        environ=os.environ,
        explicit=chosen,
        search=not chosen,
        trusted=is_trusted(str(cwd), home_dir(os.environ)),
        secrets=Known(home_dir(os.environ)).key_variables(os.environ),
        reserved_tools=frozenset(NAMES),
    )
    findings = examine(settings)
    if options.json:
        say_json(findings, indent=True)
    elif not findings:
        complain(f"no extensions to examine in {manifest.global_dir(_home())}")
    else:
        sys.stdout.write("\n".join(_report(finding) for finding in findings))
    return 1 if any(finding.problems for finding in findings) else 0


def _home() -> Path:
    return Path(home_dir(os.environ))


def _folder(name: str, cwd: Path) -> Path:
    folder = Path(name)
    if (folder / manifest.FILE).is_file():
        return manifest.read(folder.absolute()).directory
    return install.find(name, cwd, _home())


def _report(finding: Finding) -> str:
    healthy = not finding.problems
    mark = output.coloured("ok", "32") if healthy else output.coloured("problem", "31")
    lines = [f"{output.coloured(finding.name, '1')} {for_terminal(finding.version)}  {mark}"]

    def add(label: str, value: str) -> None:
        if value:
            lines.append(f"  {label:<10} {for_terminal(value)}")

    add("folder", finding.directory)
    if finding.hello_ms is not None:
        ready = "" if finding.ready_ms is None else f", ready after {finding.ready_ms} ms"
        quiet = "" if finding.said_ready or not ready else " (by silence)"
        add("handshake", f"hello after {finding.hello_ms} ms{ready}{quiet}")
    add("commands", ", ".join(f"/{name}" for name in finding.commands))
    add("tools", ", ".join(finding.tools))
    add("events", ", ".join(finding.events))
    closed = " (fails closed)" if finding.fail_closed else ""
    add("guards", ", ".join(finding.intercepts) + closed if finding.intercepts else "")
    for problem in finding.problems:
        add(output.coloured("problem".ljust(10), "31"), problem)
    for hint in finding.hints:
        add("hint", hint)
    for line in finding.said:
        add("said", line)
    if finding.problems:
        add("log", finding.log)
    return "\n".join(lines) + "\n"
