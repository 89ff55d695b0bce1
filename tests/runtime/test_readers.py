"""Commands that only read run unasked; compound commands need a rule for each other part."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from zot.core.hook import Project, Rule
from zot.provider.types import ToolCall
from zot.runtime.rules import Judge
from zot.tools.hidden import HiddenPaths


def bash(command: str) -> ToolCall:
    return ToolCall("1", "bash", {"command": command})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("x")
    (root / "link").symlink_to("/etc")
    (root / "inner").symlink_to("src")
    git(root, "init", "-q")
    git(root, "add", "src")
    return root


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@x")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def judge(root: Path, **environ: str) -> Judge:
    return Judge(Project(str(root), {"PATH": os.environ["PATH"], **environ}))


READS = """
ls -la
ls | head -5
cat src/a.py | grep -n 'a\\|b' | sort | uniq -c
cd src && ls && cat ../src/a.py
cd src; ls; pwd
(cd src && ls) && cat src/a.py
grep -rn "def " src --include=*.py
grep -n '/etc/passwd' src/a.py
find . -name '*.py' -not -path './node_modules/*' | head -20
find src \\( -name a -o -name b \\) -type f -mtime -7
sed -n '1,40p' src/a.py
sed -n '/def x/,/^$/p' src/a.py
git status --short
git status && git diff
git --no-pager log --oneline -5
git log --format='%h %s' -3 -- src
git diff HEAD -- src/a.py
git -C src status
git branch --list 'x*'
git branch -a
git remote -v
git stash list
wc -l src/*.py
cat *.md 2>/dev/null
test -f src/a.py && echo yes || echo no
[ -d src ] && echo "there: $?"
command -v git
jq '.scripts | keys' package.json
diff src/a.py src/b.py
echo "hello; rm -rf /"
tail -n 20 src/a.py 2>&1
node --version
# look around
date +%s
stat src && file src/a.py
uniq src/a.py
LC_ALL=C ls
"""
ASKED = """
cat /etc/passwd
cat ~/.ssh/id_rsa
cat link/passwd
cat */passwd
cat src/../../x
cd .. && ls
cd link && ls
cd && ls
cd - && ls
cd src || cat ../x
cd src; cat ../x
cat src/a.py > b
cat < /etc/passwd
ls $HOME
ls $(pwd)
ls `pwd`
env
printenv
find . -delete
find . -exec rm {} +
find . -fprint x
find -L . -name x
find / -name x
sort -o x src/a.py
sort --outp=x src/a.py
sort --compress-program=./evil src/a.py
uniq src/a.py b
sed -i s/a/b/ src/a.py
sed -n '1e id' src/a.py
sed '1w x' src/a.py
sed -n '1,40p;w x' src/a.py
git -c core.pager=./evil log
git -c alias.status='!id' status
git --exec-path=. status
git log --output=x
git log --outp=x
git diff --ext-diff
git diff --no-index /etc/passwd src
git diff /etc/passwd /etc/group
git log --show-signature
git log --format=%G?
git grep -O./evil x
git branch new
git branch -D x
git tag v1
git stash
git status --help
git -C / status
git -C .. status
git commit -m x
git push
rg --pre ./evil x
rg -z x
grep -f /etc/passwd x
grep -R x .
diff -r src src
tree -o x
date -s 2020-01-01
file -C -m src
jq -n env
jq -n '$ENV'
jq -f /etc/passwd
printf -v x y
test -v 'x[$(id)]'
[ -v 'x[$(id)]' ]
command ls
type -a ls; rm x
PATH=. ls
LD_PRELOAD=./x.so ls
GIT_EXTERNAL_DIFF=./evil git diff
IFS=x ls
A=1; ls
ls <(id)
cat <<< x
cat <<E
./ls
/bin/ls
src/ls
xargs rm
ls | xargs rm
ls | sh
watch ls
setsid ls
timeout 5 ls
nice ls
tee x
awk 1 src/a.py
less src/a.py
wc --files0-from=x
"""


def lines(text: str) -> list[str]:
    return [line for line in text.strip().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("command", [*lines(READS), "# look\nls"])
def test_a_command_that_only_reads_runs_unasked(command: str, project: Path) -> None:
    for program in {"file", "git", "jq", "rg", "tree"}.intersection(command.split()):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    assert judge(project).reads(bash(command))


@pytest.mark.parametrize("command", lines(ASKED))
def test_a_command_that_may_do_more_is_asked_about(command: str, project: Path) -> None:
    assert not judge(project).reads(bash(command))


@pytest.mark.parametrize(
    "setting",
    ["core.fsmonitor=./evil", "diff.external=./evil", "filter.x.clean=./evil", "core.worktree=/etc"]
    + ["diff.x.textconv=./evil", "core.hooksPath=.", "include.path=/tmp/x", "core.pager=./evil"]
    + ["remote.origin.promisor=true", "gpg.program=./evil", "log.showSignature=true"],
)
def test_git_is_asked_about_where_the_repository_names_a_program(
    setting: str, project: Path
) -> None:
    assert judge(project).reads(bash("git status"))
    git(project, "config", *setting.split("="))
    for command in ("git status", "git diff", "cd src && git log -p", "git -C src show"):
        assert not judge(project).reads(bash(command))


def test_git_is_asked_about_where_reading_runs_a_hook_or_enters_a_repository(project: Path) -> None:
    hook = project / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.touch()
    assert not judge(project).reads(bash("git status"))
    hook.unlink()
    assert not judge(project, GIT_DIR="/elsewhere").reads(bash("git status"))
    nested = project / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    git(nested, "commit", "-q", "--allow-empty", "-m", "x")
    assert judge(project).reads(bash("git status"))
    git(project, "add", "nested")
    for command in ("git status", "git diff"):
        assert not judge(project).reads(bash(command))
    assert judge(project).reads(bash("git log --oneline"))


def test_a_program_of_the_project_is_no_reader(project: Path) -> None:
    program = project / "ls"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert judge(project).reads(bash("ls"))
    for path in (f"{project}:/bin", ".:/bin", f"{project}/inner/..:/bin"):
        assert not judge(project, PATH=path).reads(bash("ls"))


def test_a_file_that_is_called_like_an_option_is_asked_about(project: Path) -> None:
    (project / "link").unlink()
    assert judge(project).reads(bash("sort *"))
    (project / "-ox").touch()
    assert not judge(project).reads(bash("sort *"))
    assert judge(project).reads(bash("sort src/*"))


def test_hidden_files_are_asked_about(project: Path) -> None:
    hidden = HiddenPaths([".env", "src/*.key"], str(project))
    (project / "other").symlink_to(".env")
    judge = Judge(Project(str(project), dict(os.environ), hidden.covers))
    for command in ("ls -la", "cat src/a.py", "git status", "find . -name '.env'"):
        assert judge.reads(bash(command)) or command.startswith("find")
    for command in ("cat .env", "cat other", "cat src/*", "cat src/x.key", "cd src && cat ../.env"):
        (project / "src" / "x.key").touch()
        assert not judge.reads(bash(command))
    for command in ("grep -r x .", "rg x", "git show", "git diff"):  # they would show it, too
        assert not judge.reads(bash(command))


# --- rules for parts --------------------------------------------------------------------------

COVERED = [
    ("npm test", "npm test"),
    ("npm test", "npm test 2>&1 | tail -20"),
    ("npm test", "cd src && npm test"),
    ("npm test", "npm test && git status; echo $?"),
    ("npm test", "CI=1 npm test"),
    ("mkdir *", "mkdir -p src/x && cd src && ls"),
    ("git add *", "git add -A && git status"),
    ("rm -r build", "rm -r build"),
    ("./run x", "./run x && ls"),
]
NOT_COVERED = [
    ("npm test", "npm test; rm x"),
    ("npm test", "npm test > src/a.py"),
    ("npm test", "npm test --x"),
    ("npm test", "cd .. && npm test"),
    ("npm test", "echo x | npm test"),
    ("npm test", "npm test < src/a.py"),
    ("npm test", "PATH=. npm test"),
    ("npm test", "NODE_OPTIONS=x npm test"),
    ("npm test", "npm test $(id)"),
    ("npm *", "npm test"),
    ("rm *", "rm x"),
    ("rm -r build", "cd src && rm -r build"),
    ("./run x", "cd src && ./run x"),
    ("sh", "cat src/a.py | sh"),
    ("xargs rm", "ls | xargs rm"),
    ("mkdir *", "mkdir /tmp/x"),
    ("mkdir *", "mkdir link/x"),
    ("cat *", "cat /etc/passwd"),
    ("git commit *", "git commit -F /etc/passwd"),
    ("git log *", "git -c core.pager=x log"),
]


@pytest.mark.parametrize(("pattern", "command"), COVERED)
def test_a_compound_command_is_covered_when_each_part_is(
    pattern: str, command: str, project: Path
) -> None:
    if command.startswith("CI=1"):
        pattern = "CI=1 npm test"
    assert judge(project).allowed(bash(command), [Rule("bash", pattern)])


@pytest.mark.parametrize(("pattern", "command"), NOT_COVERED)
def test_a_part_without_a_rule_is_asked_about(pattern: str, command: str, project: Path) -> None:
    assert not judge(project).allowed(bash(command), [Rule("bash", pattern)])


def test_a_redirection_is_covered_by_a_rule_for_writing(project: Path) -> None:
    rules = [Rule("bash", "npm test"), Rule("write", "out/*")]
    assert judge(project).allowed(bash("npm test > out/log 2>&1"), rules)
    assert judge(project).allowed(bash("echo x >> out/log"), rules)
    for target in ("src/a", "link/a", "/tmp/x", "../x", "$x", "*"):
        assert not judge(project).allowed(bash(f"echo x > {target}"), rules)
    assert not judge(project).allowed(bash("cd src && echo x > out/a"), rules)


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("npm test 2>&1 | tail -20", "npm test"),
        ("ls && npm test", "npm test"),
        ("cd src && npm test", "cd src && npm test"),
        ("npm ci && npm test", "npm ci && npm test"),
        ("find . -name x | xargs rm", "find . -name x | xargs rm"),
        ("rm -rf build && ls", "rm -rf build"),
        ("cat /etc/passwd", "cat /etc/passwd"),
        ("cd src && touch x", "touch *"),
    ],
)
def test_the_rule_for_a_part_is_no_wider_than_shown(
    command: str, pattern: str, project: Path
) -> None:
    rule = judge(project).offered(bash(command))
    assert rule == Rule("bash", pattern)
    assert judge(project).allowed(bash(command), [rule])


# --- deny -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["rm x", "ls; rm -r y", "cd src && rm z", "/bin/rm x", "sudo rm x", "ls | xargs rm", "rm"]
    + ["env A=1 rm x", "for x in 1; do rm $x; done", "$(rm x)", "(rm x)", "bash -c 'rm x'"],
)
def test_a_deny_rule_wins(command: str, project: Path) -> None:
    deny = Rule("bash", "rm *", deny=True)
    assert judge(project).denying(bash(command), [deny]) == deny
    assert not judge(project).allowed(bash(command), [Rule("bash", "*"), deny])


def test_a_deny_rule_denies_only_its_calls(project: Path) -> None:
    rules = [Rule("bash", "git push *", deny=True), Rule("write", ".env*", deny=True)]
    for command in ("git log", "echo rm; ls", "git commit -m 'push it'", "grep -n push src/a.py"):
        assert judge(project).denying(bash(command), rules) is None
    for command in ("git -C src push", "git push -f", "git --no-pager push", "echo x > .env"):
        assert judge(project).denying(bash(command), rules) is not None
    for path, denied in ((".env", True), ("src/.env.local", True), ("src/env", False)):
        call = ToolCall("1", "edit", {"path": path})
        assert (judge(project).denying(call, rules) is not None) == denied
