"""Make a release, or check that a tag is one.

    python3 scripts/release.py prepare 0.2.0    date the changelog, set the version, commit, tag
    python3 scripts/release.py verify v0.2.0    the tag, the version and the changelog agree

docs/releasing.md says what comes before and after.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
VERSION_FILE = ROOT / "src" / "zot" / "__init__.py"
VERSION_LINE = re.compile(r'^__version__ = "([0-9]+)\.([0-9]+)\.([0-9]+)"$', re.MULTILINE)
UNRELEASED = "## Unreleased\n"


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def current_version() -> tuple[int, ...]:
    match = VERSION_LINE.search(VERSION_FILE.read_text(encoding="utf-8"))
    if match is None:
        sys.exit(f'{VERSION_FILE.relative_to(ROOT)} has no line __version__ = "X.Y.Z"')
    return tuple(map(int, match.groups()))


def parse_version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", text):
        sys.exit(f"{text!r} is not a version: write it as 0.2.0")
    return tuple(map(int, text.split(".")))


def prepare(version: str) -> None:
    if parse_version(version) <= current_version():
        sys.exit(f"{version} is not above {'.'.join(map(str, current_version()))}")
    if git("branch", "--show-current") != "main" or git("status", "--porcelain"):
        sys.exit("a release is made on main, with nothing uncommitted")
    changes = CHANGELOG.read_text(encoding="utf-8")
    if UNRELEASED not in changes:
        sys.exit(f"CHANGELOG.md has no heading {UNRELEASED.strip()!r}")
    before, _, rest = changes.partition(UNRELEASED)
    news, earlier = split_news(rest)
    dated = f"{UNRELEASED}\n## {version} ({time.strftime('%Y-%m-%d')})\n{by_area(news)}"
    CHANGELOG.write_text(before + dated + earlier, encoding="utf-8")
    source = VERSION_FILE.read_text(encoding="utf-8")
    source = VERSION_LINE.sub(f'__version__ = "{version}"', source)
    VERSION_FILE.write_text(source, encoding="utf-8")
    git("commit", "--all", "--message", f"release: {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"zot {version}")
    print(f"made the tag v{version}; `git push --follow-tags` publishes it")


def split_news(text: str) -> tuple[str, str]:
    """Split the changelog after its first heading into the news and the earlier versions."""
    earlier = text.find("\n## ")
    return (text, "") if earlier < 0 else (text[: earlier + 1], text[earlier + 1 :])


def by_area(news: str) -> str:
    """Join the sections of one area, which several people began."""
    first, *sections = re.split(r"^### (.*)\n", news, flags=re.MULTILINE)
    areas: dict[str, list[str]] = {}
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        areas.setdefault(heading, []).append(text.strip("\n"))
    joined = (f"### {area}\n\n" + "\n".join(texts) + "\n\n" for area, texts in areas.items())
    return first + "".join(joined) if areas else news


def verify(tag: str) -> None:
    version = ".".join(map(str, current_version()))
    if tag != f"v{version}":
        sys.exit(f"the tag {tag} does not name the version {version} of {VERSION_FILE.name}")
    heading = rf"^## {re.escape(version)} \([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}\)$"
    if not re.search(heading, CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE):
        sys.exit(f"CHANGELOG.md has no heading `## {version} (YYYY-MM-DD)`")
    print(f"{tag} is a release")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = parser.add_subparsers(required=True, metavar="prepare|verify")
    for action, argument in ((prepare, "VERSION"), (verify, "TAG")):
        word = words.add_parser(action.__name__)
        word.add_argument("value", metavar=argument)
        word.set_defaults(action=action)
    chosen = parser.parse_args()
    chosen.action(chosen.value)


if __name__ == "__main__":
    main()
