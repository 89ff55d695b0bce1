"""Examples for models too small to follow instructions: they copy the nearest one instead.

None of these is a request of the benchmark. A larger model gets the fixed ones of prompt.py.
"""

from __future__ import annotations

import math
import re
from collections import Counter

Example = tuple[str, str, str]
"""A request, the tool it needs (empty: none), and the right answer."""

SHOWN = 8


def _bash(request: str, command: str) -> Example:
    return (request, "bash", f'{{"tool":"bash","command":"{command}"}}')


def _read(request: str, path: str) -> Example:
    return (request, "read", f'{{"tool":"read","path":"{path}"}}')


def _write(request: str, path: str, content: str) -> Example:
    return (request, "write", f'{{"tool":"write","path":"{path}","content":"{content}"}}')


def _edit(request: str, path: str, old: str, new: str) -> Example:
    return (request, "edit", f'{{"tool":"edit","path":"{path}","old":"{old}","new":"{new}"}}')


def _say(request: str, answer: str) -> Example:
    return (request, "", answer)


BANK: tuple[Example, ...] = (
    _bash("Run `id -u` and tell me the result.", "id -u"),
    _bash("Run make.", "make"),
    _bash("Run the linter with ruff.", "ruff check ."),
    _bash("Execute setup.sh", "./setup.sh"),
    _bash("Start the script deploy.sh.", "./deploy.sh"),
    _bash("What is here?", "ls"),
    _bash("List everything, also hidden files.", "ls -la"),
    _bash("List the files in docs.", "ls docs"),
    _bash("Where am I?", "pwd"),
    _bash("How many lines are in access.log?", "wc -l access.log"),
    _bash("Count the words of poem.txt.", "wc -w poem.txt"),
    _bash("How big is the directory data?", "du -sh data"),
    _bash("How much memory is free?", "free -h"),
    _bash("How full is the disk?", "df -h"),
    _bash("What time is it? Use the shell.", "date"),
    _bash("Which user am I?", "whoami"),
    _bash("Remove the file junk.tmp.", "rm junk.tmp"),
    _bash("Delete the directory cache.", "rm -r cache"),
    _bash("Rename one.txt to two.txt.", "mv one.txt two.txt"),
    _bash("Copy a.json to b.json.", "cp a.json b.json"),
    _bash("Create a folder called out.", "mkdir out"),
    _bash("Find all text files below here.", "find . -name '*.txt'"),
    _bash("Find every C file in lib.", "find lib -name '*.c'"),
    _bash("Search for the word error in logs.", "grep -rn error logs"),
    _bash("Search all .py files for import os.", "grep -rn 'import os' --include='*.py' ."),
    _bash("Show the last 3 commits of the repository.", "git log -3 --oneline"),
    _bash("Which git branch is this?", "git branch --show-current"),
    _bash("What did I change? Use git.", "git diff"),
    _bash("Show the first 10 lines of table.csv.", "head -n 10 table.csv"),
    _bash("Show the last 30 lines of system.log.", "tail -n 30 system.log"),
    _bash("Which Node version is installed?", "node --version"),
    _bash("Make start.sh executable.", "chmod +x start.sh"),
    _bash("Sort words.txt and show it.", "sort words.txt"),
    _read("Show me what is in todo.txt.", "todo.txt"),
    _read("What does package.json contain?", "package.json"),
    _read("Open index.html and show it.", "index.html"),
    _read("Read src/main.rs.", "src/main.rs"),
    _write("Create a file called note.txt with the text Buy milk", "note.txt", "Buy milk\\n"),
    _write("Write a file NAME containing zot", "NAME", "zot\\n"),
    _write("Write a Python script hi.py that prints hi.", "hi.py", "print('hi')\\n"),
    _write("Write a Python script mul.py that prints 4 * 7.", "mul.py", "print(4 * 7)\\n"),
    _edit("In prog.py replace LEVEL = 1 with LEVEL = 2.", "prog.py", "LEVEL = 1", "LEVEL = 2"),
    _edit("In run.py change size = 5 to size = 6", "run.py", "size = 5", "size = 6"),
    _edit(
        "Fix the typo in guide.md: replace recieve with receive.", "guide.md", "recieve", "receive"
    ),
    _edit(
        "Change the host in web.ini from a.org to b.org. The line is host=a.org.",
        "web.ini",
        "host=a.org",
        "host=b.org",
    ),
    _say("Who are you? What is your name?", "I am zot, a coding agent on your computer."),
    _say("Hi! How are you?", "Hello! I am zot. What shall I do?"),
    _say("Thank you, bye.", "You are welcome!"),
    _say(
        "In one sentence: what is a stack?",
        "A stack is a list where the last item in is the first out.",
    ),
    _say(
        "Explain the difference between a process and a thread in two sentences.",
        "A process has memory of its own. Threads share the memory of their process.",
    ),
    _say("What does the HTTP status code 500 mean?", "It means that the server failed."),
)


def nearest(request: str, count: int = SHOWN) -> tuple[Example, ...]:
    """The examples most like the request, the most similar one last: nearest to the answer."""
    wanted = _words(request)
    ranked = sorted(BANK, key=lambda example: _likeness(wanted, _words(example[0])))
    return tuple(ranked[-count:])


def _likeness(wanted: Counter[str], words: Counter[str]) -> float:
    shared = sum(_rarity(word) for word in wanted if word in words)
    return shared / math.sqrt(1 + len(words))


def _rarity(word: str) -> float:
    return math.log(1 + len(BANK) / (1 + _SEEN[word]))


# The end of a name is looked for from its start only: from each part of it, that would cost the
# square of its length.
_FILE = re.compile(r"(?<![\w/-])[\w/-]++(?=\.\w)")


def _words(text: str) -> Counter[str]:
    """Words without their endings; a file name counts by its kind."""
    words = re.findall(r"\.\w+\b|[a-z]+|[0-9]+", _FILE.sub("file", text.lower()))
    return Counter("9" if word.isdigit() else word[:5] for word in words)


_SEEN: Counter[str] = Counter(word for request, _, _ in BANK for word in _words(request))
