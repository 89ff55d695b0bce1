import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT
from support.extension import call, running_host, text_of, wait_for, write_extension
from support.patience import PATIENCE

from zot.cli.main import run as run_zot
from zot.errors import ExtensionError
from zot.ext import Harness
from zot.extensions import install

HELLO = ROOT / "examples" / "extensions" / "hello"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.fixture
def zot_ext(capsys):
    def run(*argv):
        code = run_zot(["ext", *argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def git(*argv, cwd):
    author = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *author, *argv], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    folder = write_extension(tmp_path / "repos", "cloned", "hello()")
    git("init", "-q", cwd=folder)
    git("add", ".", cwd=folder)
    git("commit", "-qm", "x", cwd=folder)
    return folder


# --- list ------------------------------------------------------------------------------------


def test_an_empty_list_says_how_to_begin(home, zot_ext):
    code, out, err = zot_ext("list")
    assert (code, out) == (0, "")
    assert "no extensions installed; begin one with `zot ext new NAME`" in err
    assert zot_ext("list", "--json")[1] == "[]\n"


def test_the_list_shows_scope_state_and_problems(home, zot_ext, tmp_path):
    write_extension(home / "extensions", "mine", "", description="my own", language="python")
    write_extension(home / "extensions", "off", "", enabled=False)
    write_extension(tmp_path / "work" / ".zot" / "extensions", "theirs", "")
    (home / "extensions" / "broken").mkdir()
    (home / "extensions" / "broken" / "extension.json").write_text("{")
    code, out, err = zot_ext("list")
    assert code == 1
    head, *rows = out.splitlines()
    assert head.split() == [
        "NAME", "VERSION", "STATE", "SCOPE", "LANGUAGE", "DESCRIPTION", "FOLDER"
    ]  # fmt: skip
    assert "theirs  1.0.0    not trusted  project" in rows[0]
    assert "mine    1.0.0    enabled      global   python    my own" in rows[1]
    assert "off     1.0.0    disabled" in rows[2]
    assert "broken/extension.json: " in err
    listed = json.loads(zot_ext("list", "--json")[1])
    assert [each["state"] for each in listed] == ["not_trusted", "enabled", "disabled"]


# --- install and remove ----------------------------------------------------------------------


def test_a_folder_is_installed_under_its_manifests_name(home, zot_ext):
    code, out, _ = zot_ext("install", str(HELLO))
    assert code == 0
    assert out.startswith(f"installed hello 1.0.0 in {home / 'extensions' / 'hello'}\n")
    assert os.access(home / "extensions" / "hello" / "hello.py", os.X_OK)
    assert json.loads(zot_ext("list", "--json")[1])[0]["name"] == "hello"


def test_why_a_folder_cannot_be_copied_is_one_sentence(home, zot_ext, tmp_path):
    folder = write_extension(tmp_path, "piped", "")
    os.mkfifo(folder / "pipe")
    code, _, err = zot_ext("install", str(folder))
    assert code == 1
    assert "'piped' could not be copied" in err.replace(f"{tmp_path}/", "")
    assert "is a named pipe" in err
    assert "[(" not in err


def test_an_installed_one_is_replaced_only_with_force(home, zot_ext, tmp_path):
    folder = write_extension(tmp_path, "x", "old = 1")
    assert zot_ext("install", str(folder))[0] == 0
    (folder / "main.py").write_text("new = 1")
    code, _, err = zot_ext("install", str(folder))
    assert code == 1
    assert "is installed already in" in err
    assert "old" in (home / "extensions" / "x" / "main.py").read_text()
    assert zot_ext("install", "--force", "--json", str(folder))[0] == 0
    assert "new" in (home / "extensions" / "x" / "main.py").read_text()
    assert [each.name for each in (home / "extensions").iterdir()] == ["x"]


def test_a_bad_source_changes_nothing(home, zot_ext, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = zot_ext("install", str(tmp_path / "empty"))
    assert code == 1
    assert "extension.json: No such file" in err
    assert "neither a folder nor" in zot_ext("install", str(tmp_path / "nothing"))[2]
    linked = write_extension(tmp_path, "linked", "")
    (linked / "secret").symlink_to("/etc/passwd")
    assert "is a link that leaves" in zot_ext("install", str(linked))[2]
    assert not home.exists()


def test_a_failed_copy_leaves_the_old_one(home, zot_ext, tmp_path, monkeypatch):
    folder = write_extension(tmp_path, "x", "old = 1")
    zot_ext("install", str(folder))
    (folder / "main.py").write_text("new = 1")

    def fail(self, target):
        if self.name.startswith(".new"):
            raise OSError(28, "No space left on device")
        return original(self, target)

    original = Path.rename
    monkeypatch.setattr(Path, "rename", fail)
    code, _, err = zot_ext("install", "--force", str(folder))
    assert code == 1
    assert "No space left" in err
    assert "old" in (home / "extensions" / "x" / "main.py").read_text()
    assert [each.name for each in (home / "extensions").iterdir()] == ["x"]


def test_a_repository_is_cloned_and_its_hooks_do_not_run(home, zot_ext, repository, tmp_path):
    trap = tmp_path / "trap"
    template = tmp_path / "template" / "hooks"
    template.mkdir(parents=True)
    (template / "post-checkout").write_text(f"#!/bin/sh\ntouch {trap}\n")
    (template / "post-checkout").chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[init]\ntemplateDir = {template.parent}\n[core]\nhooksPath = {template}\n"
        f"[core]\nfsmonitor = touch {trap}\n"
    )
    os.environ["GIT_CONFIG_GLOBAL"] = str(config)
    try:
        code, _, err = zot_ext("install", f"file://{repository}")
    finally:
        del os.environ["GIT_CONFIG_GLOBAL"]
    assert (code, err) == (0, "")
    assert (home / "extensions" / "cloned" / "extension.json").is_file()
    assert not (home / "extensions" / "cloned" / ".git").exists()
    assert not trap.exists()


def test_a_commit_can_be_named_and_nothing_else_is_installed(home, zot_ext, repository):
    words = ["git", "rev-parse", "HEAD"]
    first = subprocess.check_output(words, cwd=repository, text=True).strip()
    (repository / "later").touch()
    git("add", ".", cwd=repository)
    git("commit", "-qm", "y", cwd=repository)
    assert zot_ext("install", f"file://{repository}#{first}")[0] == 0
    assert not (home / "extensions" / "cloned" / "later").exists()
    for pin, reason in (
        ("0" * 40, "git clone"),
        ("main", "no whole commit id"),
        (first[:9], "no whole"),
    ):
        code, _, err = zot_ext("install", "--force", f"file://{repository}#{pin}")
        assert code and reason in err
    assert zot_ext("install", "--force", f"file://{repository}")[0] == 0
    assert (home / "extensions" / "cloned" / "later").exists()


def test_a_clone_without_a_manifest_is_rolled_back(home, zot_ext, repository):
    git("rm", "-q", "extension.json", cwd=repository)
    git("commit", "-qm", "gone", cwd=repository)
    code, _, err = zot_ext("install", f"file://{repository}")
    assert code == 1
    assert "extension.json: No such file" in err
    assert not home.exists()


@pytest.mark.parametrize("url", ["file:///no/such/repo.git", "ext::sh -c touch% /tmp/x.git"])
def test_a_clone_that_fails_says_why(home, zot_ext, url):
    code, _, err = zot_ext("install", url)
    assert code == 1
    assert "git clone" in err
    assert not home.exists()


def test_what_is_not_built_is_installed_with_a_hint(home, zot_ext, tmp_path):
    folder = write_extension(tmp_path, "x", "", exec="./missing")
    code, _, err = zot_ext("install", str(folder))
    assert code == 0
    assert "build it there before zot can start it" in err


@pytest.mark.parametrize(("answer", "gone"), [("y\n", True), ("\n", False), ("", False)])
def test_remove_asks(home, zot_ext, answer, gone, monkeypatch, tmp_path):
    zot_ext("install", str(HELLO))
    reply = tmp_path / "reply"
    reply.write_text(answer)
    with reply.open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code, _, err = zot_ext("remove", "hello")
    assert f"remove {home / 'extensions' / 'hello'} ? [y/N]" in err
    assert code == (0 if gone else 1)
    assert (home / "extensions" / "hello").exists() is not gone


def test_remove_of_a_link_keeps_what_it_points_to(home, zot_ext, tmp_path):
    folder = write_extension(tmp_path, "x", "")
    (home / "extensions").mkdir(parents=True)
    (home / "extensions" / "x").symlink_to(folder)
    assert zot_ext("rm", "-y", "x")[0] == 0
    assert folder.exists()
    assert not os.path.lexists(home / "extensions" / "x")
    assert "no extension 'x' is installed" in zot_ext("remove", "-y", "x")[2]


def test_a_broken_one_can_be_removed_by_its_folder(home, zot_ext):
    (home / "extensions" / "broken").mkdir(parents=True)
    (home / "extensions" / "broken" / "extension.json").write_text("{")
    assert zot_ext("remove", "-y", "broken")[0] == 0
    assert list((home / "extensions").iterdir()) == []


def test_an_update_keeps_the_files_that_only_the_installed_one_has(home, zot_ext, tmp_path):
    folder = write_extension(tmp_path, "x", "old")
    zot_ext("install", str(folder))
    installed = home / "extensions" / "x"
    (installed / "state").mkdir()
    (installed / "state" / "todo.json").write_text("[1]")
    (installed / "link").symlink_to("state")
    (folder / "main.py").write_text("new")
    (folder / "state").mkdir()
    (folder / "state" / "schema.json").write_text("{}")
    assert zot_ext("install", "--force", str(folder))[0] == 0
    assert (installed / "main.py").read_text() == "new"
    assert (installed / "state" / "todo.json").read_text() == "[1]"
    assert (installed / "state" / "schema.json").read_text() == "{}"
    assert (installed / "link").is_symlink()
    assert [path.name for path in (home / "extensions").iterdir()] == ["x"]


# --- enable and disable ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n   "version": "1",\n   "name": "x",\n   "args": ["a", "b"],\n   "enabled": true,\n'
            '   "exec": "./x",\n   "zzz": {"b": 1, "a": 2}\n}\n',
            '{\n   "version": "1",\n   "name": "x",\n   "args": ["a", "b"],\n   "enabled": false,\n'
            '   "exec": "./x",\n   "zzz": {"b": 1, "a": 2}\n}\n',
        ),
        (
            '{\n\t"name": "x",\n\t"exec": "./x"\n}\n',
            '{\n\t"name": "x",\n\t"exec": "./x",\n\t"enabled": false\n}\n',
        ),
        ('{"name": "x", "exec": "./x"}', '{"name": "x", "exec": "./x", "enabled": false}\n'),
        (
            '{"name": "x", "zzz": {"enabled": true}, "exec": "./ü"}',
            '{\n  "name": "x",\n  "zzz": {\n    "enabled": true\n  },\n  "exec": "./ü",\n'
            '  "enabled": false\n}\n',
        ),
    ],
)
def test_disable_changes_one_field_and_keeps_order_and_layout(home, zot_ext, before, after):
    path = home / "extensions" / "x" / "extension.json"
    path.parent.mkdir(parents=True)
    path.write_text(before, encoding="utf-8")
    assert zot_ext("disable", "x")[0] == 0
    assert path.read_text(encoding="utf-8") == after
    assert zot_ext("enable", "x")[0] == 0
    assert json.loads(path.read_text(encoding="utf-8"))["enabled"] is True


def test_a_manifest_that_is_no_object_cannot_be_switched(home):
    path = home / "extensions" / "x" / "extension.json"
    path.parent.mkdir(parents=True)
    path.write_text("[1]")
    with pytest.raises(ExtensionError, match="extension.json: "):
        install.set_enabled(path.parent, True)


# --- logs ------------------------------------------------------------------------------------


def test_logs_show_the_end_and_reach_into_the_rotated_file(home, zot_ext):
    write_extension(home / "extensions", "x", "")
    assert "has no log yet" in zot_ext("logs", "x")[2]
    assert "no extension 'nobody'" in zot_ext("logs", "nobody")[2]
    (home / "logs").mkdir()
    (home / "logs" / "ext-x.log.1").write_text("1\n2\n")
    (home / "logs" / "ext-x.log").write_text("3\n")
    assert zot_ext("logs", "x")[1] == "1\n2\n3\n"
    assert zot_ext("logs", "x", "-n", "2")[1] == "2\n3\n"


def test_logs_can_be_followed_through_a_rotation(home, tmp_path):
    write_extension(home / "extensions", "x", "")
    log = home / "logs" / "ext-x.log"
    log.parent.mkdir()
    log.write_text("old\n")
    command = [sys.executable, "-m", "zot", "ext", "logs", "x", "-f"]
    out = tmp_path / "out"
    with out.open("w") as stdout, subprocess.Popen(command, stdout=stdout) as process:
        wait_for(lambda: out.read_text() == "old\n")
        with log.open("a") as file:
            file.write("more\n")
        wait_for(lambda: out.read_text() == "old\nmore\n")
        log.rename(log.with_name("ext-x.log.1"))
        log.write_text("new\n")
        wait_for(lambda: out.read_text() == "old\nmore\nnew\n")
        process.send_signal(2)
        assert process.wait(PATIENCE) == 130


# --- doctor and new --------------------------------------------------------------------------


def test_doctor_shows_the_handshake_and_what_is_registered(home, zot_ext):
    code, out, err = zot_ext("doctor", str(ROOT / "examples" / "extensions" / "guard"))
    assert (code, err) == (0, "")
    assert out.startswith("guard 1.0.0  ok\n")
    assert "handshake  hello after" in out
    assert "commands   /audit" in out
    assert "guards     tool_call (fails closed)" in out


def test_doctor_says_what_is_wrong(home, zot_ext):
    body = """
hello("another")
emit("register_tool", name="bash", schema={"type": "object"})
emit("register_tool", name="bad", schema=[])
emit("register_tool", name="dup", schema={"type": "object"})
emit("subscribe", events=["turn_start", "no_such_event"], intercept=["tool_result"])
emit("strange")
for frame in frames(): pass
"""
    write_extension(home / "extensions", "a-odd", body)
    write_extension(home / "extensions", "b-dead", "sys.stderr.write('why'); sys.exit(4)")
    write_extension(home / "extensions", "c-dup", body)
    (home / "extensions" / "d-broken").mkdir()
    (home / "extensions" / "d-broken" / "extension.json").write_text("{}")
    code, out, _ = zot_ext("doctor")
    assert code == 1
    for text in (
        "tool 'bad' was refused",
        "says hello as 'another', its manifest says 'a-odd'",
        "never says ready",
        "(by silence)",
        "tool 'bash' is never used: zot has one of that name",
        "tool 'dup' is never used: another extension has one of that name",
        "subscribes to 'no_such_event', which is never sent",
        "intercepts 'tool_result', which is never asked",
        "sent 1 frame(s) of the unknown type 'strange'",
        "exited with code 4",
        "said       why",
        "ext-b-dead.log",
        "d-broken/extension.json",
    ):
        assert text in out
    found = json.loads(zot_ext("doctor", "--json", "b-dead")[1])
    assert [each["state"] for each in found] == ["stopped"]


@pytest.mark.slow
def test_doctor_gives_a_slow_start_the_time_of_a_run(home, zot_ext):
    body = 'time.sleep(3.4)\nhello("x")\nemit("ready")\nfor frame in frames(): pass\n'
    write_extension(home / "extensions", "x", body)
    code, out, _ = zot_ext("doctor")
    assert (code, "problem" in out) == (0, False)
    assert "s to start; the first prompt waits 3 s" in out


def test_doctor_without_extensions_says_so(home, zot_ext):
    code, out, err = zot_ext("doctor")
    assert (code, out) == (0, "")
    assert "no extensions to examine" in err


@pytest.mark.parametrize("language", install.LANGUAGES)
def test_a_new_extension_works_at_once(home, zot_ext, tmp_path, language):
    program = {"shell": "jq", "python": "python3"}.get(language, language)
    if subprocess.run(["which", program], capture_output=True).returncode:
        pytest.skip(f"{program} is not installed")
    code, out, _ = zot_ext("new", "my-ext", "--language", language)
    assert code == 0
    assert "my-ext/README.md\n" in out
    assert "zot ext doctor ./my-ext" in out
    folder = tmp_path / "work" / "my-ext"
    with running_host(tmp_path, folder) as (host, seen):
        assert seen.events == []
        assert text_of(call(host, "my_ext_reverse", {"text": "añc"})) == "cña"
        said = "Say hello to {} in one short sentence."
        assert host.run_command("my-ext", "Ada").text == said.format("Ada")
        assert host.run_command("my-ext", "").text == said.format("me")
    code, _, err = zot_ext("new", "my-ext")
    assert code == 1
    assert "my-ext' is there already: choose another name" in err


def test_a_name_that_cannot_be_used_is_refused(home, zot_ext):
    assert "the name '../x' cannot be used" in zot_ext("new", "../x")[2]


def test_a_name_that_begins_with_a_digit_makes_a_valid_tool(home, zot_ext, tmp_path):
    zot_ext("new", "2nd", "--dir", str(tmp_path))
    assert "def _2nd_reverse(" in (tmp_path / "2nd" / "main.py").read_text()


def test_every_action_can_speak_json(home, zot_ext, tmp_path):
    def asked(*argv):
        code, out, _ = zot_ext(*argv, "--json")
        assert code == 0
        return json.loads(out)

    made = asked("new", "x", "--dir", str(tmp_path))
    assert [Path(path).name for path in made["files"]] == ["README.md", "extension.json", "main.py"]
    assert asked("install", made["directory"])["scope"] == "global"
    assert asked("disable", "x")["enabled"] is False
    assert asked("enable", "x")["enabled"] is True
    assert asked("doctor", "x")[0]["commands"] == ["x"]
    assert "starting" in asked("logs", "x")["lines"][0]
    assert asked("remove", "-y", "x") == {"removed": str(home / "extensions" / "x")}
    assert asked("list") == []


# --- the command itself ----------------------------------------------------------------------


def test_wrong_usage_is_exit_code_2(home, zot_ext):
    code, _, err = zot_ext("fly")
    assert code == 2
    assert "COMMAND" in err
    assert zot_ext("--help")[0] == 0


def test_a_terminal_gets_colours_unless_it_does_not_want_them(home):
    write_extension(home / "extensions", "x", "hello()\nemit('ready')\nsys.stdin.read()")
    for no_color, colored in (("", True), ("1", False)):
        leader, follower = pty.openpty()
        command = [sys.executable, "-m", "zot", "ext", "doctor"]
        env = {**os.environ, "NO_COLOR": no_color}
        subprocess.run(command, stdout=follower, env=env, timeout=60, check=True)
        os.close(follower)
        shown = os.read(leader, 100_000)
        os.close(leader)
        assert (b"\x1b[1mx\x1b[0m" in shown) is colored


def test_the_test_in_the_skeletons_readme_passes(home, zot_ext):
    assert zot_ext("new", "mine")[0] == 0
    with Harness(["./mine/main.py"], timeout=30) as zot:
        assert zot.call("mine_reverse", text="abc").text == "cba"


def test_doctor_says_how_a_program_is_made_executable(home, zot_ext):
    assert zot_ext("new", "mine")[0] == 0
    Path("mine/main.py").chmod(0o644)
    code, out, _ = zot_ext("doctor", "./mine")
    assert code == 1
    assert "make it executable: chmod +x ./main.py" in out


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.git", "git://127.0.0.1:9/x"])
def test_an_extension_does_not_come_over_an_open_line(tmp_path: Path, url: str) -> None:
    environ = {"PATH": os.environ["PATH"]}
    for written in (url, url.replace("http", "HTTP")):
        with pytest.raises(ExtensionError, match="--insecure"):
            install.install(written, tmp_path, environ)
    with pytest.raises(ExtensionError, match="git clone"):  # it was tried
        install.install(url, tmp_path, environ, insecure=True)
