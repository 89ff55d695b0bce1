"""Skills: folders with a SKILL.md that the model reads when it needs them.

Only names and descriptions are in every prompt; the body is loaded by the `skill` tool or when the
user writes `/skill:name`. Plain string paths: pathlib costs milliseconds before the first delta.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from zot.core.tool import ToolContext
from zot.errors import ConfigError, ToolError
from zot.files import StrPath, read_own
from zot.provider.types import Json
from zot.text import Frozen, compiled

FILE = "SKILL.md"
MAX_BYTES = 256 * 1024
MAX_FOLDER_BYTES = 8 * 1024 * 1024
"""Maximum total size of the files in one folder of skills; further files are not read."""
MAX_FOLDER_FILES = 500
MAX_DEPTH = 6
MAX_FOLDERS = 2000
"""Maximum number of folders to search; ends a walk through something that is no skill folder."""
MAX_NAME = 64
MAX_DESCRIPTION = 1024

NAME = r"[a-z0-9]+(-[a-z0-9]+)*"
_HEAD = r"(?ms)\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?(?:\n|\Z)"

BUILTIN = os.path.join(os.path.dirname(__file__), "builtin")


class Skill(Frozen):
    name: str
    description: str
    body: str
    directory: str
    """Directory of the skill's files."""
    source: str
    """`builtin`, or the folder it was found in, with `~` for the user's home."""
    hidden: bool = False
    """Whether it is not offered to the model; the user may still call it."""
    problems: tuple[str, ...] = ()
    """Problems that `zot skills check` reports."""

    @property
    def path(self) -> str:
        return os.path.join(self.directory, FILE)


class SkillFolder(Frozen):
    """A folder that may hold skills."""

    path: StrPath
    prefix: str = ""
    """Prefix of the names of its skills: the extension's name."""
    inside: StrPath | None = None
    """Directory that must contain the files after resolving links; None if only the user can
    write to the folder."""


def places(
    cwd: StrPath, home: StrPath, user: str, extensions: Iterable[SkillFolder] = ()
) -> list[SkillFolder]:
    """Return the folders to search for skills; the first skill of a name wins. `home` is zot's
    directory, `user` the user's."""
    folders: list[SkillFolder] = []
    for name in (".zot", ".claude", ".agents"):
        users = home if name == ".zot" else os.path.join(user, name)
        folders += [
            SkillFolder(os.path.join(cwd, name, "skills"), inside=cwd),
            SkillFolder(os.path.join(users, "skills")),
        ]
    return [*folders, *extensions, SkillFolder(BUILTIN)]


def find_skills(where: Iterable[SkillFolder], user: str) -> list[Skill]:
    """Return all skills, sorted by name; the first one of a name wins."""
    skills: dict[str, Skill] = {}
    for place in where:
        left = MAX_FOLDER_BYTES
        for path in skill_files(place.path)[:MAX_FOLDER_FILES]:
            skill = read_builtin(path) if place.path == BUILTIN else read_skill(path, place, user)
            left -= len(skill.body)
            if left < 0:
                break
            skills.setdefault(skill.name, skill)
    return [skills[name] for name in sorted(skills)]


def skill_files(folder: StrPath) -> list[str]:
    """Return the SKILL.md files in and below a folder. No folder is entered twice."""
    if os.path.basename(folder) == FILE:
        return [os.fspath(folder)] if os.path.isfile(folder) else []
    seen: set[tuple[int, int]] = set()
    files: list[str] = []
    waiting = [(os.fspath(folder), 0)]
    while waiting and len(seen) < MAX_FOLDERS:
        at, depth = waiting.pop(0)
        try:
            status = os.stat(at)
            names = sorted(os.listdir(at))
        except OSError:
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        if FILE in names and os.path.isfile(os.path.join(at, FILE)):
            files.append(os.path.join(at, FILE))
            continue  # folders below belong to that skill
        if depth < MAX_DEPTH:
            deeper = (os.path.join(at, name) for name in names if not name.startswith("."))
            waiting += [(path, depth + 1) for path in deeper if os.path.isdir(path)]
    return files


# --- one file --------------------------------------------------------------------------------


def read_skill(path: StrPath, place: SkillFolder, user: str = "") -> Skill:
    """Read a skill as far as its file allows; problems are recorded, never raised."""
    problems: list[str] = []
    try:
        data = read_own(path, place.inside, MAX_BYTES)
    except OSError as error:
        data = b""
        problems.append(f"cannot be read: {error.strerror or error}")
    if len(data) > MAX_BYTES:
        problems.append(f"is longer than {MAX_BYTES} bytes; the rest is not used")
    head, body = split(data[:MAX_BYTES].decode("utf-8", "replace"), problems)
    directory = os.path.dirname(path)
    folder = os.path.basename(directory)
    name = _text(head, "name", problems) or folder
    description = _text(head, "description", problems)
    _check(name, description, folder, head, problems)
    return Skill(
        name=f"{place.prefix}:{name}" if place.prefix else name,
        description=" ".join(description.split())[:MAX_DESCRIPTION],
        body=body.strip(),
        directory=directory,
        source=_source(directory, user),
        hidden=head.get("disable-model-invocation") is True or not description.strip(),
        problems=tuple(problems),
    )


def read_builtin(path: str) -> Skill:
    """Read a skill that ships with zot. These need no YAML parser, which would cost every run some
    milliseconds.
    """
    with open(path, encoding="utf-8") as file:
        _, head, body = file.read().split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    directory = os.path.dirname(path)
    return Skill(fields["name"], fields["description"], body.strip(), directory, "builtin")


def split(text: str, problems: list[str]) -> tuple[dict[str, Json], str]:
    """Split a text into front matter and body. Without front matter all of it is the body."""
    head_match = compiled(_HEAD).match(text)
    if not head_match:
        problems.append("has no front matter between two lines of ---")
        return {}, text
    # Deferred import: loaded only if there is a skill to read.
    from zot.skills.head import read_head

    try:
        return read_head(head_match[1]), text[head_match.end() :]
    except ConfigError as error:
        problems.append(str(error))
        return {}, text


def _text(head: dict[str, Json], key: str, problems: list[str]) -> str:
    value = head.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        # Show only small numbers: the text of other values may be longer than their source.
        shown = f": {value}" if isinstance(value, int) and abs(value) < 10**9 else ""
        problems.append(f"has a {key} that is not text{shown}")
        return ""
    return value.strip()


def _check(
    name: str, description: str, folder: str, head: dict[str, Json], problems: list[str]
) -> None:
    """Check the requirements of the Agent Skills format."""
    if head and "name" not in head:
        problems.append("has no name")
    if len(name) > MAX_NAME or not compiled(NAME).fullmatch(name):
        problems.append(
            f"is named {name!r}; a name has up to {MAX_NAME} small letters, digits and hyphens"
        )
    elif name != folder:
        problems.append(f"is named {name!r}, but its folder {folder!r}")
    if head and not description:
        problems.append("has no description: the model will not know when to use it")
    if len(description) > MAX_DESCRIPTION:
        problems.append(f"has a description of more than {MAX_DESCRIPTION} characters")


def _source(directory: str, user: str) -> str:
    if directory.startswith(BUILTIN):
        return "builtin"
    is_users = bool(user) and directory.startswith(user + os.sep)
    return f"~{directory.removeprefix(user)}" if is_users else directory


# --- use -------------------------------------------------------------------------------------


def manifest(skills: Sequence[Skill]) -> str:
    """Return the system prompt's section on skills; empty when there is none to offer."""
    rows = [
        f"- {skill.name} [{skill.source}]: {skill.description}"
        for skill in skills
        if not skill.hidden
    ]
    if not rows:
        return ""
    head = (
        "Skills hold instructions for special tasks. When one fits the task, read it with the "
        "skill tool before you start:"
    )
    return "\n".join([head, *rows])


def shown(skill: Skill) -> str:
    """Return the text of a skill for the model."""
    where = "" if skill.source == "builtin" else f"\n\nIts files are in {skill.directory}."
    head = f"# Skill: {skill.name}\n\n{skill.description}{where}"
    return f"{head}\n\n---\n\n{skill.body}"


def named(name: str, skills: Sequence[Skill]) -> Skill:
    for skill in skills:
        if skill.name == name:
            return skill
    names = ", ".join(skill.name for skill in skills) or "none"
    raise ToolError(f"skill: no skill named {name!r}; there is: {names}")


class SkillTool:
    """Lets the model read a skill."""

    name = "skill"
    description = "Read the instructions of a skill by its name."
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Name of the skill."}},
        "required": ["name"],
        "additionalProperties": False,
    }

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = skills

    def run(self, args: dict[str, Json], context: ToolContext) -> str:
        name = str(args.get("name", "")).strip()
        if not name:
            raise ToolError("skill: name is required")
        return shown(named(name, self._skills))
