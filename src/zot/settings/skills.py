"""Collects the skills of a run: from the project, the user, zot itself, and the extensions."""

from __future__ import annotations

from collections.abc import Sequence

from zot.files import StrPath
from zot.home import Surroundings, may_have_extensions
from zot.settings.trust import is_trusted
from zot.skills.skill import Skill, SkillFolder, find_skills, places


def skills_here(
    cwd: StrPath,
    around: Surroundings,
    explicit: Sequence[str] = (),
    *,
    extensions: bool = True,
    trusted: bool = False,
) -> list[Skill]:
    """Return every skill, sorted by name. `explicit` are the extensions named on the command line;
    extensions of the project count only where it is trusted.
    """
    home = around.home
    of_extensions: list[SkillFolder] = []
    if may_have_extensions(explicit, str(cwd), home, search=extensions):
        of_extensions = _of_extensions(cwd, home, explicit, search=extensions, trusted=trusted)
    return find_skills(places(cwd, home, around.user, of_extensions), around.user)


def _of_extensions(
    cwd: StrPath, home: str, explicit: Sequence[str], *, search: bool, trusted: bool
) -> list[SkillFolder]:
    from pathlib import Path

    from zot.extensions import manifest

    folders = tuple(Path(folder) for folder in explicit)
    where = manifest.ExtensionPlaces(Path(cwd), Path(home), folders, search=search)
    installed = manifest.discover(where).extensions
    return [
        SkillFolder(path, prefix=extension.name)
        for extension in installed
        if extension.manifest.enabled
        and (extension.scope != "project" or trusted or is_trusted(str(cwd), home))
        for path in extension.skill_paths()
    ]
