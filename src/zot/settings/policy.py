"""Makes the policy of a jail from the settings."""

from __future__ import annotations

from zot.core.confinement import NO_JAIL, JailPolicy, with_words
from zot.home import Surroundings, expand_user
from zot.settings.options import Options


def policy_of(options: Options, around: Surroundings) -> JailPolicy:
    """Return the policy; relative directories are those of the process. Raises ConfigError."""
    project_only = options.jail_read == "project"
    if not (options.jail or options.deny_read or options.allow_write or project_only):
        return NO_JAIL
    written = (expand_user(path, around.environ) for path in options.allow_write)
    policy = JailPolicy(
        project_only=project_only,
        allow_write=tuple(map(around.absolute, written)),
        deny_read=options.deny_read,
    )
    return with_words(policy, options.jail or False)
