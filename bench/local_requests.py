"""The requests of the local-model benchmark, with what counts as right.

`TUNED` was looked at while the prompt was written; `HELD_OUT` was run once, at the end. `UNSEEN`
came long after: nothing was tuned for it, and nothing is to be. `TASKS` are run to the end in a
directory, and what is on the disk or in the answer is checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Check = Callable[[str | None, dict[str, Any], str], bool]
"""Tool (None for text), its arguments, the text."""


def bash(pattern: str) -> Check:
    return lambda tool, args, text: tool == "bash" and _full(pattern, args.get("command"))


def shows(path: str) -> Check:
    """read, or a command that prints the whole file."""
    command = rf"cat (\./)?{re.escape(path)}"
    return lambda tool, args, text: (
        (tool == "read" and _full(rf"(\./)?{re.escape(path)}", args.get("path")))
        or (tool == "bash" and _full(command, args.get("command")))
    )


def write(path: str, content: str) -> Check:
    return lambda tool, args, text: (
        tool == "write"
        and _full(rf"(\./)?{re.escape(path)}", args.get("path"))
        and _full(content, args.get("content"))
    )


def edit(path: str, old: str, new: str) -> Check:
    def check(tool: str | None, args: dict[str, Any], text: str) -> bool:
        edits = args.get("edits") or [{}]
        return (
            tool == "edit"
            and _full(rf"(\./)?{re.escape(path)}", args.get("path"))
            and len(edits) == 1
            and _full(old, edits[0].get("oldText"))
            and _full(new, edits[0].get("newText"))
        )

    return check


def says(pattern: str) -> Check:
    return lambda tool, args, text: tool is None and bool(re.search(pattern, text, re.I))


def any_of(*checks: Check) -> Check:
    return lambda tool, args, text: any(check(tool, args, text) for check in checks)


def finds(tool: str, pattern: str, path: str = ".*") -> Check:
    """grep or glob, with this pattern, in this place."""
    return lambda used, args, text: (
        used == tool
        and _full(pattern, args.get("pattern"))
        and _full(path, args.get("path") or args.get("glob") or "")
    )


def _full(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value.strip(), re.S) is not None


TUNED: tuple[tuple[str, Check], ...] = (
    ("Run `uname -a` and tell me what it prints.", bash(r"uname -a")),
    ("List the files in this directory.", bash(r"ls( -\w+)?( \.)?")),
    ("Show me what is in notes.txt.", shows("notes.txt")),
    ("What does config.toml contain?", shows("config.toml")),
    (
        "Create a file called hello.txt with the text Hello, world",
        write("hello.txt", r"Hello, world!?\s*"),
    ),
    (
        "In app.py replace DEBUG = True with DEBUG = False.",
        edit("app.py", r"DEBUG = True", r"DEBUG = False"),
    ),
    ("How many lines does server.log have?", bash(r"wc -l (< ?)?server\.log")),
    ("Run the tests with pytest.", bash(r"(python3? -m )?pytest( -\w+)*")),
    ("What is today's date? Use the shell.", bash(r"date( .*)?")),
    ("Delete the file old.bak.", bash(r"rm (-f )?(\./)?old\.bak")),
    ("Rename draft.md to final.md.", bash(r"mv (\./)?draft\.md (\./)?final\.md")),
    ("Make a directory named build.", bash(r"mkdir (-p )?(\./)?build/?")),
    ("Find every Python file below this directory.", bash(r"find \.? ?.*\*\.py['\"]?.*")),
    ("Search for the word TODO in src.", bash(r"(grep -\w*[rR]\w*|rg) .*TODO.* (\./)?src/?.*")),
    ("Show the last 5 commits of this git repository.", bash(r"git log .*-?n? ?5.*")),
    (
        "Which branch am I on?",
        bash(r"git (branch( --show-current)?|status.*|rev-parse --abbrev-ref HEAD)"),
    ),
    ("Write a Python script add.py that prints 2 + 3.", write("add.py", r".*print\(2 ?\+ ?3\).*")),
    (
        "Change the port in settings.ini from 8000 to 9000. The line is port=8000.",
        edit("settings.ini", r"(port=)?8000", r"(port=)?9000"),
    ),
    ("How much disk space is free?", bash(r"df( .*)?")),
    ("Execute build.sh", bash(r"(bash |sh |\./)(\./)?build\.sh")),
    ("Hello! Who are you?", says(r"\bzot\b")),
    ("In one sentence: what is a hash table?", says(r"key|hash function")),
    ("Thanks, that is all.", says(r"welcome|glad|bye|anything|good|help")),
    (
        "Explain the difference between a list and a tuple in Python in two sentences.",
        says(r"mutable"),
    ),
)

HELD_OUT: tuple[tuple[str, Check], ...] = (
    ("Print the working directory.", bash(r"pwd")),
    ("Show me the contents of Makefile.", shows("Makefile")),
    ("Count the words in essay.md.", bash(r"wc -w (< ?)?essay\.md")),
    ("Who am I logged in as? Check with the shell.", bash(r"whoami|id.*|echo \$USER|who am i")),
    (
        "Copy config.yml to config.yml.bak.",
        bash(r"cp (-\w+ )?(\./)?config\.yml (\./)?config\.yml\.bak"),
    ),
    ("Create an empty directory called logs.", bash(r"mkdir (-p )?(\./)?logs/?")),
    ("Remove the directory tmp and everything in it.", bash(r"rm -(rf|fr|r|R) (\./)?tmp/?")),
    ("Write a file VERSION containing 1.4.2", write("VERSION", r"1\.4\.2\s*")),
    (
        "In main.py change timeout = 10 to timeout = 30",
        edit("main.py", r"timeout = 10", r"timeout = 30"),
    ),
    ("Open requirements.txt and show it.", shows("requirements.txt")),
    ("What changed since the last commit? Use git.", bash(r"git (diff|status).*")),
    ("Show the first 20 lines of data.csv.", bash(r"head -(n ?)?20 (\./)?data\.csv")),
    ("Show the last 50 lines of app.log.", bash(r"tail -(n ?)?50 (\./)?app\.log")),
    ("Which Python version is installed?", bash(r"python3? (--version|-V)|which python3?.*")),
    ("Search all .js files for console.log.", bash(r".*(grep|rg) .*console\\?\.log.*")),
    ("Make run.sh executable.", bash(r"chmod (\+x|[au]\+x|7\d\d|755) (\./)?run\.sh")),
    (
        "How big is the file video.mp4?",
        bash(r"(ls -\w*[ls]\w*|du -?\w*|stat|wc -c) .*video\.mp4.*"),
    ),
    (
        "Sort names.txt alphabetically and show the result.",
        bash(r"sort( -f)? (\./)?names\.txt|cat names\.txt \| sort"),
    ),
    (
        "Write a Python script square.py that prints the square of 12.",
        write("square.py", r".*(12 ?\*\* ?2|12 ?\* ?12|144|\w+ ?\*\* ?2\b).*"),
    ),
    (
        "Fix the typo in README.md: replace teh with the.",
        edit("README.md", r"teh", r"the"),
    ),
    ("What is your name?", says(r"\bzot\b")),
    (
        "What does the HTTP status code 404 mean?",
        says(r"not found|does not exist|could not be found"),
    ),
    ("Good morning!", says(r"morning|hello|hi\b|help")),
    (
        "What is the difference between git merge and git rebase? Two sentences.",
        says(r"commit|history"),
    ),
)

UNSEEN: tuple[tuple[str, Check], ...] = (
    ("How much free disk space is there?", bash(r"df( -\w+)*( [./]\S*)?")),
    ("Which processes use the most memory? Show them.", bash(r"(ps|top) .*")),
    ("Print the environment variable PATH.", bash(r"echo \"?\$\{?PATH\}?\"?|printenv PATH")),
    (
        "Show me what is in the folder src.",
        any_of(bash(r"ls( -\w+)* (\./)?src/?"), finds("glob", r"(\./)?src/\*.*|\*+(/\*)?")),
    ),
    (
        "Find all files named settings.toml.",
        any_of(
            bash(r"find .*-i?name ['\"]?settings\.toml['\"]?.*"),
            finds("glob", r"(\*\*/)?settings\.toml"),
        ),
    ),
    (
        "Create a symbolic link called latest that points to build-42.",
        bash(r"ln -s\w* (\./)?build-42/? (\./)?latest"),
    ),
    (
        "Write a file .gitignore that ignores the directory node_modules.",
        write(".gitignore", r"/?node_modules/?\s*"),
    ),
    (
        "In app.js replace var count with let count.",
        edit("app.js", r"var count(.*)", r"let count(.*)"),
    ),
    (
        "Rename the function get_user to fetch_user in api.py.",
        any_of(
            edit("api.py", r"(def )?get_user.*", r"(def )?fetch_user.*"),
            bash(r"sed -i .*get_user.*fetch_user.*api\.py"),
        ),
    ),
    (
        "Show the last 5 commits, one line each.",
        bash(r"git log (?=.*--oneline)(?=.*-(n ?)?5\b|.*--max-count=5).*"),
    ),
    ("Read pyproject.toml.", shows("pyproject.toml")),
    (
        "Compress the folder photos into photos.tar.gz.",
        bash(r"tar -?\w*c\w* (\./)?photos\.tar\.gz (\./)?photos/?"),
    ),
    (
        "How many lines of server.log contain ERROR?",
        any_of(
            bash(r"grep (-\w*c\w*) ['\"]?ERROR['\"]? server\.log"),
            bash(r".*grep .*ERROR.*\| ?wc -l"),
            finds("grep", "ERROR", r"(\./)?server\.log"),
        ),
    ),
    ("Which kernel does this machine run?", bash(r"uname( -\w+)*|cat /proc/version")),
    ("Put the current date into a file called stamp.txt.", bash(r"date.*> ?(\./)?stamp\.txt")),
    (
        "Show the differences between old.txt and new.txt.",
        bash(r"(diff|git diff --no-index)( -\w+)* (\./)?old\.txt (\./)?new\.txt"),
    ),
    ("What is 17 times 23?", says(r"\b391\b")),
    ("Write one sentence about the sea.", says(r"\bsea|ocean|wave")),
    ("What can you do for me?", says(r"file|code|command|help")),
    ("What is the difference between TCP and UDP? One sentence.", says(r"connection|reliab")),
)


class Task:
    def __init__(
        self, prompt: str, files: dict[str, str], check: Callable[[Path, str, list[str]], bool]
    ) -> None:
        self.prompt, self.files, self.check = prompt, files, check


def _reads(path: Path, name: str) -> str:
    try:
        return (path / name).read_text()
    except OSError:
        return ""


def _prints(path: Path, name: str, expected: str) -> bool:
    run = [sys.executable, name]
    done = subprocess.run(run, cwd=path, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() == expected


TASKS = (
    Task(
        "How many lines does log.txt have?",
        {"log.txt": "a\nb\nc\nd\n"},
        lambda path, text, calls: bool(re.search(r"\b(4|four)\b", text)),
    ),
    Task(
        "What port does the server use? Look in server.py.",
        {"server.py": 'HOST = "localhost"\nPORT = 8123\n'},
        lambda path, text, calls: (
            "8123" in text and _reads(path, "server.py").endswith("PORT = 8123\n")
        ),
    ),
    Task(
        "Create a file greet.py that prints hello, then run it.",
        {},
        lambda path, text, calls: (
            (path / "greet.py").is_file()
            and _prints(path, "greet.py", "hello")
            and any("greet.py" in call for call in calls if call.startswith("bash"))
        ),
    ),
    Task(
        "Rename a.txt to b.txt.",
        {"a.txt": "x\n"},
        lambda path, text, calls: _reads(path, "b.txt") == "x\n" and not (path / "a.txt").exists(),
    ),
    Task(
        "In config.ini change the port from 80 to 8080.",
        {"config.ini": "[web]\nport = 80\nname = x\n"},
        lambda path, text, calls: _reads(path, "config.ini") == "[web]\nport = 8080\nname = x\n",
    ),
    Task(
        "Delete all .tmp files in this directory.",
        {"a.tmp": "", "b.tmp": "", "keep.txt": "k\n"},
        lambda path, text, calls: sorted(each.name for each in path.iterdir()) == ["keep.txt"],
    ),
    Task(
        "Show me what is in fruit.csv.",
        {"fruit.csv": "apples,3\npears,5\nplums,8\n"},
        lambda path, text, calls: all(word in text for word in ("apples", "pears", "plums")),
    ),
    Task(
        "Which file contains the word secret?",
        {"one.txt": "nothing\n", "two.txt": "the secret is here\n", "three.txt": "no\n"},
        lambda path, text, calls: "two.txt" in text and "one.txt" not in text,
    ),
    Task(
        "The script add.py should print 5 but prints 1. Fix it.",
        {"add.py": "def add(a, b):\n    return a - b\n\nprint(add(3, 2))\n"},
        lambda path, text, calls: _prints(path, "add.py", "5"),
    ),
    Task(
        "What is the sum of the numbers in numbers.txt?",
        {"numbers.txt": "10\n20\n12\n"},
        lambda path, text, calls: bool(re.search(r"\b42\b", text)),
    ),
    Task(
        "Add a line 'done' to the end of todo.txt.",
        {"todo.txt": "one\ntwo\n"},
        lambda path, text, calls: _reads(path, "todo.txt").strip() == "one\ntwo\ndone",
    ),
    Task(
        "What does the function area in shape.py do? Do not change anything.",
        {"shape.py": "def area(w, h):\n    return w * h\n"},
        lambda path, text, calls: (
            bool(calls)
            and bool(re.search(r"multipl|product|area", text, re.I))
            and _reads(path, "shape.py") == "def area(w, h):\n    return w * h\n"
        ),
    ),
)
