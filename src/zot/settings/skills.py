"""All skills of a run: those of the project, the user, zot itself, and the extensions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zot.extensions.manifest import discover
from zot.home import home
from zot.settings.trust import is_trusted
from zot.skills.skill import Skill, SkillFolder, find_skills, places


def skills_here(
    cwd: str | Path,
    explicit: Sequence[str] = (),
    *,
    extensions: bool = True,
    trusted: bool = False,
) -> list[Skill]:
    """Every skill, by name. `explicit` are the extensions named on the command line; those of the
    project count only where it is trusted.
    """
    found = discover(Path(cwd), home(), [Path(each) for each in explicit], search=extensions)
    of_extensions = [
        SkillFolder(path, prefix=extension.name)
        for extension in found.extensions
        if extension.manifest.enabled
        and (extension.scope != "project" or trusted or is_trusted(str(cwd)))
        for path in extension.skill_paths()
    ]
    return find_skills(places(cwd, home(), of_extensions))
