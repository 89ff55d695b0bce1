import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.core.hook import Project, Rule
from zot.provider.types import ToolCall
from zot.runtime.grammar import Simple, parsed
from zot.runtime.programs import READERS, SHELL_WORDS
from zot.runtime.rules import Judge


def covers(rule: Rule, call: ToolCall, cwd: str) -> bool:
    return Judge(Project(cwd, os.environ)).allowed(call, [rule])


def offered(call: ToolCall, cwd: str) -> Rule | None:
    return Judge(Project(cwd, os.environ)).offered(call)


def simple_commands(command: str) -> list[Simple]:
    return [item for item in parsed(command) or () if isinstance(item, Simple)]


def bash(command: str) -> ToolCall:
    return ToolCall("1", "bash", {"command": command})


def write(path: str, tool: str = "write") -> ToolCall:
    return ToolCall("1", tool, {"path": path})


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("ls -la", "ls *"),
        ("git status", "git status *"),
        ("git -C /elsewhere log", "git -C /elsewhere log"),
        ("npm test -- --watch", "npm test -- --watch"),
        ("python -c 'print(1)'", "python -c 'print(1)'"),
        ("python tool.py x", "python tool.py x"),
        ("sudo ls", "sudo ls"),
        ("FOO=1 ls", "FOO=1 ls"),
        ("ls | wc -l", "ls | wc -l"),
        ("", ""),
        ("cat\tx", "cat *"),
        ("npm run build --if-present", "npm run build --if-present"),
        ("make test", "make test"),
        ("wc src/*.py 'a b' \"*\"", "wc *"),
        ("wc *.py", "wc *.py"),
        ("wc 'x", "wc 'x"),
        ("node inspect x.js", "node inspect x.js"),
        ("git log --output=x", "git log --output=x"),
        ("git log '--outp'=x", "git log '--outp'=x"),
        ("wc\u00a0/run", "wc\u00a0/run"),
        ("! ls", "! ls"),
        ("unheard-of --flag", "unheard-of --flag"),
        ("/bin/cat x", "/bin/cat x"),
    ],
)
def test_the_rule_that_is_offered_covers_the_call(command: str, pattern: str) -> None:
    rule = offered(bash(command), "/")
    assert rule == Rule("bash", pattern)
    assert covers(rule, bash(command), "/")


NEVER = """
    setsid busybox watch flock su sudo doas sed tar source . eval exec command builtin trap
    uvx env xargs nice ionice timeout nohup stdbuf ssh find fd rg awk gawk perl python node
    ruby sh bash zsh /bin/sh /usr/bin/env ./run rm mv dd chmod chown cp ln shred truncate mkfs
    kill pkill tee curl wget crontab time ! coproc script parallel entr chroot unshare strace
    gdb sort vim less man npx pip npm git docker make jobs hash enable mapfile compgen bind
    printf test arch pytest mypy eslint prettier black tsc
"""


@pytest.mark.parametrize("program", NEVER.split())
def test_no_pattern_is_offered_for_what_runs_others_or_destroys(program: str) -> None:
    for words in ("-x one", "-c 'touch made'", "--", ""):
        command = f"{program} {words}".strip()
        assert offered(bash(command), "/") == Rule("bash", command)
    assert not covers(Rule("bash", f"{program} -c one *"), bash(f"{program} -c two"), "/")


@pytest.mark.parametrize("command", ["rm *", "rm * ", "mv a *", "*", " *", "ls *", "env *"])
def test_a_command_that_reads_like_a_pattern_is_offered_nothing(command: str) -> None:
    assert offered(bash(command), "/") is None


@pytest.mark.parametrize("pattern", ["git log *", "ls *", "env *", "make test *"])
def test_a_pattern_does_not_cover_the_command_of_the_same_text(pattern: str) -> None:
    assert not covers(Rule("bash", pattern), bash(pattern), "/")  # a file may be called `--output`


OPTIONS_THAT_DO_MORE = """
    apt list -o Dir::Bin::dpkg=./evil
    apt search -c ./evil.conf x
    brew info ./evil.rb
    bun test --preload ./evil.ts
    cargo metadata --config ./evil.toml
    cargo tree --config build.rustc="./evil"
    dotnet build /p:CustomBeforeMicrosoftCommonTargets=evil.targets
    go build -o .git/config
    go list -export -toolexec=./evil ./...
    go vet -vettool=./evil
    gradle build -I ./evil.gradle
    just test --shell ./evil
    kubectl get pods --kubeconfig=./evil.yaml
    make test SHELL=./evil
    mix test --require ./evil.exs
    mvn compile exec:exec -Dexec.executable=./evil
    npm run build --script-shell=./evil
    npm test --script-shell=./evil
    pip list --log .git/config
    pip3 list --python ./evil
    pnpm test --script-shell=./evil
    poetry show -C ./evil
    ruff check -o .git/config
    uv tree --python ./evil
    yarn run build --script-shell=./evil
    eslint . -o .git/config
    flake8 . --output-file=.git/config
    jest . --globalSetup=./evil.js
    mypy . --python-executable ./evil
    prettier . --plugin=./evil.js
    pylint . --load-plugins=evil
    pytest . -p evil
    tsc . --outDir .git
"""


@pytest.mark.parametrize("command", OPTIONS_THAT_DO_MORE.strip().splitlines())
def test_a_program_whose_options_run_or_write_something_has_no_pattern(command: str) -> None:
    command = command.strip()
    words = command.split()
    for count in (1, 2, 3):
        pattern = " ".join(words[:count]) + " *"  # an earlier version may have offered it
        assert not covers(Rule("bash", pattern), bash(command), "/")
    assert offered(bash(command), "/") == Rule("bash", command)
    assert covers(Rule("bash", command), bash(command), "/")


@pytest.mark.parametrize("pattern", ["env *", "sudo -u x *", "/bin/sh *", "FOO=1 *", "uv run *"])
def test_a_pattern_for_a_program_that_runs_others_covers_nothing(pattern: str) -> None:
    # Such rules may stand in files of earlier versions, or be typed.
    assert not covers(Rule("bash", pattern), bash(pattern[:-1] + "touch made"), "/")


def test_every_word_that_bash_takes_for_itself_is_known() -> None:
    listed = subprocess.run(
        ["bash", "-c", "compgen -k; compgen -b"], capture_output=True, text=True
    )
    harmless = {"cd", "echo", "false", "pwd", "true", "type"}
    signs = {"{", "}", "!", "[[", "]]", "["}  # no words of a pattern
    assert set(listed.stdout.split()) - harmless - signs <= SHELL_WORDS


@pytest.mark.parametrize(
    "command",
    [
        "git log; rm -r .",
        "git log && rm x",
        "git log\nrm x",
        "git log $(rm x)",
        "git log `rm x`",
        "git log > .bashrc",
        "git logs",
        "git",
        "rm git log",
    ],
)
def test_a_rule_covers_nothing_but_its_command(command: str) -> None:
    assert not covers(Rule("bash", "git log *"), bash(command), "/")


@given(
    st.text(st.sampled_from("git log-x.;&|<>$`\n\r(){}\\\0 "), max_size=30),
    st.sampled_from(["git log *", "git *", "log *"]),
)
def test_a_pattern_covers_nothing_but_its_own_words(command: str, pattern: str) -> None:
    if covers(Rule("bash", pattern), bash(command), "/nowhere"):
        found = simple_commands(command)
        assert found
        assert all(item.words[0].text == pattern.split()[0] for item in found)


@given(st.text(max_size=40))
def test_every_offer_covers_its_call(command: str) -> None:
    rule = offered(bash(command), "/")
    assert rule is None or covers(rule, bash(command), "/")


def test_anything_can_be_allowed() -> None:
    assert covers(Rule("bash", "*"), bash("a; b"), "/")
    other = ToolCall("1", "favourite", {"x": 1})
    assert offered(other, "/") == Rule("favourite", "*")
    assert covers(Rule("favourite", "*"), other, "/")
    assert not covers(Rule("bash", "*"), other, "/")


def test_paths_are_what_they_lead_to(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project / "src", elsewhere):
        folder.mkdir(parents=True)
    (project / "src" / "link").symlink_to(elsewhere)
    cwd = str(project)
    rule = offered(write("src/a.py"), cwd)
    assert rule == Rule("write", "src/*")
    for path in ("src/b.py", "./src/deep/c.py", str(project / "src/d.py")):
        assert covers(rule, write(path), cwd)
        assert covers(rule, write(path, "edit"), cwd)
    for path in ("a.py", "src/../a.py", "src/link/x", "/etc/passwd", "~/x", "srcs/a"):
        assert not covers(rule, write(path), cwd)
    assert covers(Rule("write", "*"), write("anything"), cwd)
    assert not covers(Rule("write", "*"), write(str(elsewhere / "x")), cwd)
    assert offered(write("top.txt"), cwd) == Rule("write", "top.txt")
    assert offered(write("*"), cwd) is None  # as a pattern it would be every file
    outside = offered(write(str(elsewhere / "x")), cwd)
    assert outside is not None
    assert covers(outside, write("../elsewhere/x"), cwd)
    assert not covers(outside, write("../elsewhere/y"), cwd)


# --- beside a real bash ----------------------------------------------------------------------

BLANKS = [
    "\u00a0",
    "\u2003",
    "\u3000",
    "\x0b",
    "\x0c",
    "\x85",
    "\u2028",
    "\u1680",
    "\x1c",
    "\ufeff",
]
SIGNS = list(";&|<>$`\\(){}!*?[]~#='\"^%,:") + ["\n", "\r", "&&", "||", "$(", "${", "<(", "A=1"]
WORDS = ["git", "log", "wc", "cat", "evil", "/run", "./run", "-x", "--", "é", "if", "time", "x.txt"]
RULES = [
    "wc *",
    "git log *",
    "cat *",
    "git *",
    "evil *",
    "npm run build *",
    "! *",
    "time *",
    "A=1 *",
]
STUB = '#!/bin/sh\nprintf "%s\\n" "${0##*/}" >> "$RAN"\n'
NAMES = ("wc", "git", "cat", "npm", "evil", "log", "run", "build", "é")


def made_commands(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    commands = []
    for _ in range(count):
        words = chosen.choice(RULES)[:-2].split(" ")
        gaps = [chosen.choice([*[" "] * 60, *["\t", "  "] * 10, *BLANKS, *SIGNS]) for _ in words]
        begin = "".join(word + gap for word, gap in zip(words, gaps, strict=True))
        parts = [*WORDS, *SIGNS, *BLANKS, *[" "] * 60, *WORDS * 8]
        rest = "".join(chosen.choice(parts) for _ in range(chosen.randrange(9)))
        commands.append(chosen.choice(["", "", "", " ", "A=1 ", "! "]) + begin + rest)
    return commands


class TracingBash:
    """Runs a command where every program is a stub that says it ran, and bash says what it does."""

    def __init__(self, folder: Path) -> None:
        self._cwd, self._ran, self._trace = folder / "cwd", folder / "ran", folder / "trace"
        stubs = folder / "bin"
        stubs.mkdir()
        self._cwd.mkdir()
        for blank in BLANKS:  # what a hostile repository brings
            for name in ("wc", "git", f"git{blank}log"):
                self._program(self._cwd / f"{name}{blank}" / "run")
        for name in NAMES:
            self._program(stubs / name)
            self._program(self._cwd / name)
        before = folder / "before"
        before.write_text("PS4=+; exec 7>>$TRACE; BASH_XTRACEFD=7; set -x\n")
        names = {"RAN": self._ran, "TRACE": self._trace, "BASH_ENV": before, "PATH": stubs}
        self._env = {**{name: str(path) for name, path in names.items()}, "LC_ALL": "C.UTF-8"}
        self._bash = shutil.which("bash") or "/bin/bash"
        self._files = sorted(self._cwd.iterdir())

    def _program(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STUB)
        path.chmod(0o755)

    def run(self, command: str) -> tuple[list[str], list[str]]:
        """The programs that ran, and the first word of each command that bash carried out."""
        for log in (self._ran, self._trace):
            log.write_text("")
        devnull = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        subprocess.run(
            [self._bash, "-c", command],
            cwd=self._cwd,
            env=self._env,
            stderr=subprocess.DEVNULL,
            timeout=20,
            **devnull,
        )
        assert sorted(self._cwd.iterdir()) == self._files, command
        lines = self._trace.read_text().splitlines()
        return self._ran.read_text().split("\n")[:-1], [line[1:].split(" ")[0] for line in lines]


def test_what_a_rule_lets_through_runs_only_the_program_that_it_names(tmp_path: Path) -> None:
    bash_itself, tried = TracingBash(tmp_path), 0
    corpus = [f"{name}{blank}/run" for blank in BLANKS for name in ("wc", f"git{blank}log")]
    for command in [*corpus, *made_commands(7, 4_000)]:
        for pattern in RULES:
            if tried < 150 and covers(Rule("bash", pattern), bash(command), "/"):
                tried += 1
                ran, done = bash_itself.run(command)
                named = {one.words[0].text for one in simple_commands(command)}
                assert set(ran) <= named, (command, pattern)  # none: bash refused the text
                assert set(done) <= named, (command, pattern)
                assert named <= {pattern.split(" ")[0], *READERS}
    assert tried >= 100  # or it showed nothing


def test_a_blank_that_is_none_for_bash_is_asked_about(tmp_path: Path) -> None:
    bash_itself = TracingBash(tmp_path)
    for blank in BLANKS:
        command = f"wc{blank}/run"
        assert not covers(Rule("bash", "wc *"), bash(command), "/")
    assert bash_itself.run("wc\u00a0/run")[0] == ["run"]  # what would have run


# --- names of files in place of words --------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        "src/*.py",
        "./*",
        "x?",
        "A=*",
        "'*'",
        '"-*"',
        "'src'/*",
        "''x*",
        "-x",
        "'a *'",
    ],
)
def test_a_word_that_becomes_no_option_is_plain(word: str) -> None:
    assert covers(Rule("bash", "git log *"), bash(f"git log {word} -1"), "/")


@pytest.mark.parametrize(
    "word",
    ["*", "*.py", "--[o]*/*", "--[o]*", "?x", "[-]x", "-*", "'-'*", '"-"x*', "''*", "\"\"''-*"]
    + ["'--o'*", "-'a b'*", r"\*?", "x[a]", "~/*", "{-x,y}", "@(-x)", "+(-)x", "!(y)", "x'", '"x'],
)
def test_a_word_that_may_become_an_option_is_asked_about(word: str) -> None:
    for command in (f"git log {word}", f"git log {word} -1", f"git log -- a {word}"):
        assert not covers(Rule("bash", "git log *"), bash(command), "/")


@pytest.mark.parametrize("command", ["A=* git log", "A=x* git log", "g* log", "gi? log", "git l*"])
def test_a_pattern_covers_no_assignment_and_no_program_from_the_names_of_files(
    command: str,
) -> None:
    assert not covers(Rule("bash", "git log *"), bash(command), "/")
    assert not covers(Rule("bash", "A=* *"), bash(command), "/")


HOSTILE_NAMES = [
    *("--output=.git/config", "--output=x", "-x", "-", "--", "---", "-a b", "-*", "-[o]", "-'x'"),
    *("*", "?", "[o]", "'-x", '"-x', "~-x", "A=-x", "x-", "x y", "a", "o", "src/-x", "src/--ou"),
    *("é-x", "#x", "!x", "@(-x)", "{-x,y}", "-é", ".-x", ".x", "x[$(y)]"),
]
PARTS = [*"-*?[]xao/.=~!^@+#é", "--", "o", "'-'", '"-"', "''", '""', "'x'", "'*'", '"[o]"', "' '"]
PARTS += ["[!a]", "[^a]", "[-]", "[[:punct:]]", "--o", "src/", "./", "A=", "\\", "{", "}", "(", ","]
SETTINGS = ["", "extglob", "dotglob", "nullglob", "nocaseglob", "extglob dotglob globstar"]


def made_words(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    lengths = [chosen.randrange(1, 6) for _ in range(count)]
    return ["".join(chosen.choice(PARTS) for _ in range(length)) for length in lengths]


def expanded(words: list[str], folder: Path, settings: str) -> list[list[str]]:
    """What bash makes of each of these words."""
    lines = [f"shopt -s {settings}" if settings else "", "show() { printf '%s\\0' \"$@\" $'\\n'; }"]
    lines += [f"show x {word}" for word in words]
    done = subprocess.run(
        ["bash"], input="\n".join(lines), cwd=folder, capture_output=True, text=True, check=True
    )
    return [row.split("\0")[1:-1] for row in done.stdout.split("\n\0")[:-1]]


def text_of(word: str) -> str:
    """The word without its quotes."""
    (command,) = parsed(f"x {word}") or ()
    assert isinstance(command, Simple)
    return command.words[1].text if len(command.words) > 1 else ""  # a comment


def test_bash_makes_no_option_of_a_word_that_a_pattern_covers(tmp_path: Path) -> None:
    for name in HOSTILE_NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    rule, cwd = Rule("bash", "git log *"), str(tmp_path)
    plain = [word for word in made_words(11, 4_000) if covers(rule, bash(f"git log {word}"), cwd)]
    texts = [text_of(word) for word in plain]
    for settings in SETTINGS:
        results = expanded(plain, tmp_path, settings)
        assert len(results) == len(plain)
        others = 0
        for word, text, result in zip(plain, texts, results, strict=True):
            options = [name for name in result if name.startswith("-")]
            assert options in ([], [text]), word
            assert not any(name.startswith("--ou") for name in options), word
            others += bool(result) and result != [text]
        assert others > 10  # or it showed nothing
        assert expanded(["--[o]*/*"], tmp_path, settings) == [["--output=.git/config"]]


@pytest.mark.parametrize("command", ["printf -v x* y", "test -v x*"])
def test_built_ins_that_evaluate_the_name_of_a_file_have_no_pattern(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "x[$(touch made)]").touch()
    subprocess.run(["bash", "-c", command], cwd=tmp_path, stderr=subprocess.DEVNULL)
    assert (tmp_path / "made").exists()  # what would run unasked
    program = command.split()[0]
    assert not covers(Rule("bash", f"{program} *"), bash(command), "/")
    assert offered(bash(command), "/") == Rule("bash", command)
