"""The words that the grammar sees are those that bash gives to its programs."""

import random
import subprocess
from pathlib import Path

import pytest

from zot.runtime.grammar import Simple, parsed

PIECES = [
    *("p", "q", "p", "q", " ", " ", " ", " ", " ", "\t", "\n", "a", "b c", "-x", "x.txt", "é"),
    *("'a b'", '"c d"', "'$x'", '"a\\"b"', '"\\n\\|"', "\\ ", "\\'", '\\"', "\\\\", "\\$", "\\;"),
    *("&&", "||", "|", ";", "&", "|&", ">", ">>", "2>", "2>&1", "<", "&>", ">|", "(", ")", "(("),
    *("{", "}", "$?", "$x", "$(p)", "`p`", "<(p)", "{a,b}", "@{1}", "#", "# p", "!", "[[", "["),
    *("]", "=", "A=1", "A=", "A+=1", "a[0]=1", "*", "?", "[a]", "'", '"', "\\", "\\\n", " \\\n "),
    *("<<E", "if", "then", "fi", "for", "do", "done", "time", "function p", "p()", "case", "in"),
    *("esac", "$'a'", '$"a"', "${x}", "$((1))", "coproc", "eval", "\u00a0", "\r", "\x0b", "\x00"),
]
STUB = """p() { printf '%s\\0' p "$@" $'\\x01' >> "$RAN"; }
q() { printf '%s\\0' q "$@" $'\\x01' >> "$RAN"; }
set -f
"""


def made(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    texts = []
    for _ in range(count):
        pieces = [chosen.choice(PIECES) for _ in range(chosen.randrange(1, 9))]
        texts.append("p " + chosen.choice(["", " "]).join(pieces))
    return texts


def ran(command: str, folder: Path) -> list[list[str]]:
    """The programs that bash ran, with their words."""
    log, script = folder / "ran", folder / "script"
    log.write_text("")
    script.write_text(STUB + command + "\n")
    env = {"RAN": str(log), "PATH": "/nowhere", "LC_ALL": "C.UTF-8"}
    cwd = folder / "cwd"
    cwd.mkdir(exist_ok=True)
    subprocess.run(
        ["/bin/bash", str(script)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    return [row.split("\0")[:-1] for row in log.read_text().split("\x01\0")[:-1]]


def test_bash_runs_only_the_words_that_the_grammar_sees(tmp_path: Path) -> None:
    tried = 0
    for command in made(3, 3_000):
        items = parsed(command)
        if items is None or tried >= 120:
            continue
        said = [item for item in items if isinstance(item, Simple)]
        if all(item.words[0].text == "p" and len(item.words) == 1 for item in said):
            continue
        tried += 1
        seen = [[word.text for word in item.words] for item in said]
        for words in ran(command, tmp_path):
            assert words in seen, (command, seen)
    assert tried >= 100  # or it showed nothing


@pytest.mark.parametrize(
    "command",
    ["p $(q)", "p `q`", "p $x", "p <(q)", "p <<E\nq\nE", "p <<< q", "if p; then q; fi", "((1))"]
    + ["for x in 1; do p; done", "p {a,b}", "time p", "! p", "coproc p", "[[ a ]]", "p $'a'", "A=1"]
    + ["p\u00a0x", "p\x0bq", "p\rq", "p 'a", 'p "a', "a[0]=1 p", "A=$(q) p", "A=~/x p", "p &&"]
    + ["{ p; }", "[ a > b ]", "export A=1", "p >&x", "p \\", "case x in x) p;; esac", "p ${x}"]
    + ["p a\\\nb", "p() { q; }"],
)
def test_more_than_words_is_unknown(command: str) -> None:
    assert parsed(command) is None


def test_a_list_is_read_in_its_order() -> None:
    items = parsed("cd x && A=1 p 'a b' 2>&1 > out c | q # note\n(p; q) & [ -f x ]")
    assert items is not None
    shown = [item if isinstance(item, str) else item.text for item in items]
    expected = ["cd x", "&&", "A=1 p 'a b' c", "|", "q", ";", "(", "p", ";", "q", ")", "&"]
    assert shown == [*expected, "[ -f x ]"]


def test_a_command_that_is_too_long_or_broken_is_unknown() -> None:
    assert parsed("p " + "x" * 20_000) is None
    assert parsed("p \udcff") is None
