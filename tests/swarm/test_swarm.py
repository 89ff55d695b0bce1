import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.tools import eventually

from swarm.support import bash, says
from swarm.support import place as place
from zot.swarm import local
from zot.swarm.local import LocalSwarm, socket_path
from zot.swarm.task import NoSuchAgent, SwarmError

pytestmark = pytest.mark.long


def test_a_task_is_done_in_a_tree_of_its_own_and_merged(place):
    id = place.submit("Add a line", bash("echo two >> a.txt"), says("Done."))
    summary = place.wait(id)
    assert (summary.stage, summary.outcome, summary.turns) == ("done", "answered", 2)
    assert (summary.diff.files, summary.diff.added) == (1, 1)
    assert (place.repository / "a.txt").read_text() == "one\n"
    assert "+two" in place.swarm.diff(id)
    place.swarm.merge(id)
    assert (place.repository / "a.txt").read_text() == "one\ntwo\n"
    (freed,) = place.swarm.gc(try_only=True)
    assert freed.id == id
    assert 4096 < freed.bytes < 10_000_000
    place.swarm.remove(id)
    assert place.swarm.agents() == []
    assert place.git("branch", "--list", "zot/*") == ""
    listens = place.home / "swarm" / "socket"
    assert stat.S_IMODE(listens.stat().st_mode) == 0o600


def test_the_keys_are_not_to_be_found_in_the_supervisor(place):
    id = place.submit("Look", bash("cat /proc/$PPID/environ"), says("Done."))
    assert place.wait(id).outcome == "answered"
    pid = place.supervisor()
    if os.getuid() == 0:  # root may look
        shown = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"ZOT_HOME=" in shown
        assert place.environment["ANTHROPIC_API_KEY"].encode() not in shown
    else:
        for name in ("environ", "mem", "maps"):
            with pytest.raises(PermissionError):
                Path(f"/proc/{pid}/{name}").read_bytes()
        with subprocess.Popen(["sleep", "60"]) as other:  # one that does not guard itself
            shown = Path(f"/proc/{other.pid}/environ")
            readable = eventually(lambda: bool(shown.read_bytes()))
            other.kill()
        assert readable


def test_a_socket_in_a_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "TEMPORARY", tmp_path)
    long = tmp_path / ("long" * 40)
    assert socket_path(long).parent == tmp_path / f"zot-{os.getuid()}"
    (tmp_path / f"zot-{os.getuid()}").chmod(0o777)
    with pytest.raises(SwarmError, match="not yours alone"):
        socket_path(long)


@pytest.mark.slow
def test_modules_of_a_cloned_repository_are_not_run(place, monkeypatch):
    mark = place.repository.parent / "ran"
    for name in ("zot", "msgspec", "re"):
        (place.repository / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    place.git("add", "-A")
    place.git("commit", "-qm", "hostile")
    monkeypatch.chdir(place.repository)
    id = place.submit("Say so", says("Done."))
    assert place.wait(id).outcome == "answered"
    assert not mark.exists()


@pytest.mark.slow
def test_the_command_does_it_all(place):
    words = [f"--rpc={word}" for word in place.words]
    task = f"{bash('echo two > new.txt')}\nthen\n{says('Done.')}"
    done = place.zot("new", task, "--provider", "anthropic", *words, "--wait")
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout.splitlines()[-1]
    assert "+1 -0 in 1" in place.zot("list").stdout
    logs = place.zot("logs", "tool").stdout
    assert "> then" in logs
    assert '$ bash {"command":"echo two > new.txt"}' in logs
    assert logs.endswith("Done.\n-- answered\n")
    assert "+two" in place.zot("diff", "too").stdout
    shown = json.loads(place.zot("show", "tool", "--json").stdout)
    assert shown["branch"].startswith("zot/tool-bash-command-")
    refused = place.zot("remove", "tool")
    assert refused.returncode == 1
    assert "not merged" in refused.stderr
    merged = place.zot("merge", "tool", "--squash").stdout
    assert merged == f"merged {place.git('rev-parse', '--short=12', 'HEAD')}\n"
    assert place.git("log", "-1", "--format=%s").startswith("Merge tool-bash")
    assert re.search(r"^would remove tool-\S+  \d+ kB\n1 in all", place.zot("gc", "-n").stdout)
    assert place.zot("gc").stdout.startswith("removed tool-bash")
    broken = place.home / "swarm" / "agents" / "broken-1"
    broken.mkdir()
    (broken / "task.json").write_text("{")
    assert place.zot("gc").stdout == "nothing to remove\n"
    said = place.zot("ls").stderr
    assert "no agents" in said
    assert "broken-1/task.json cannot be read" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new"], "needs a task"),
        (["new", "--file", "nowhere"], "cannot read the tasks"),
        (["show", "nobody"], "no agent 'nobody'"),
        (["budget", "--max-cost", "-1"], "must be a number above 0"),
        (["new", "x", "--max-tokens", "1.5"], "must be a whole number"),
        (["new", "x", "--after", "nobody"], "no agent 'nobody'"),
        (["resume", "nobody"], "no agent 'nobody'"),
        (["new", "x", "--cwd", "/no/such/place", "--wait"], ""),
    ],
)
def test_what_cannot_be_done_is_explained(place, words, said):
    done = place.zot(*words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_tasks_from_a_file_run_side_by_side(place):
    lines = ["# three tasks", "First", json.dumps({"prompt": "Second", "priority": 3}), "", "Third"]
    path = place.scripts / "tasks.txt"
    path.write_text("\n".join(lines))
    words = [f"--rpc={word}" for word in place.words]
    done = place.zot("new", "--file", str(path), "--provider", "anthropic", *words, "--wait")
    assert done.returncode == 0, done.stderr
    assert {summary.task for summary in place.swarm.agents()} == {"First", "Second", "Third"}
    for line, said in (
        ('{"prompt": 1', "line 1 of"),
        ('{"prompt": 1}', "not a task: Expected `str`"),
        ('{"prompt": "x", "colour": 1}', "there is no option 'colour'"),
    ):
        path.write_text(line)
        refused = place.zot("new", "--file", str(path))
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr
    fields = {"prompt": "Fourth", "cwd": ".", "max_minutes": 2, "approve": "bash,write"}
    path.write_text(json.dumps(fields))
    id = place.zot("new", "--file", str(path)).stdout.strip()
    task = place.swarm.task(id)
    assert (task.max_seconds, task.approve) == (120.0, ("bash", "write"))
    assert place.zot("cancel", id).returncode == 0  # nobody answers it: it would try for minutes
    place.wait(id)


def test_one_that_asks_needs_you_until_it_is_answered(place):
    id = place.submit(
        "Make a file", bash("echo x > new.txt"), bash("true"), says("Done."), approve=["bash"]
    )
    summary = place.wait(id, "needs_you")
    (question,) = summary.questions
    assert (question.tool, question.preview) == ("bash", "echo x > new.txt")
    assert "approval of bash" in place.zot("list").stdout
    assert f"zot swarm answer {id} --allow | --always | --deny" in place.zot("show", id).stdout
    assert "say --allow" in place.zot("answer", id).stderr
    assert "has no question 'x'; open: " in place.zot("answer", id, "--question", "x").stderr
    assert place.zot("answer", id, "--allow").returncode == 0
    while place.swarm.show(id).questions == (question,):
        time.sleep(0.05)
    place.wait(id, "needs_you")
    assert place.zot("answer", id, "--deny", "not on a Friday").returncode == 0
    assert place.wait(id).stage == "done"
    results = [json.dumps(row) for row in place.rows(id, "tool_result")]
    assert "not on a Friday" in results[1]
    assert "asks nothing" in place.zot("answer", id, "--allow").stderr


def test_one_that_is_removed_by_several_at_once_goes_once(place):
    id = place.submit("Talk", says("Done."))
    place.wait(id)

    def remove(_):
        swarm = LocalSwarm(place.home, place.environment)
        try:
            swarm.remove(id)
        except SwarmError as error:  # the others hear that it goes, or that it is gone
            return str(error)
        return ""

    with ThreadPoolExecutor(4) as clients:
        said = list(clients.map(remove, range(4)))
    assert said.count("") == 1
    assert all(id in text for text in said if text)
    assert place.swarm.agents() == []


def test_one_that_works_can_be_steered_and_cancelled(place):
    id = place.submit("Wait", bash("touch began; sleep 60"), says("Done."))
    place.wait(id, "working")
    tree = place.home / "swarm" / "agents" / id / "tree"
    while not (tree / "began").exists():
        time.sleep(0.05)
    place.swarm.steer(id, "hurry up")
    with pytest.raises(SwarmError, match="at work"):
        place.swarm.merge(id)
    with pytest.raises(SwarmError, match="cancel it first"):
        place.swarm.remove(id)
    place.swarm.cancel(id)
    assert place.wait(id).stage == "cancelled"
    with pytest.raises(SwarmError, match="already"):
        place.swarm.cancel(id)
    with pytest.raises(SwarmError, match="does not run"):
        place.swarm.steer(id, "hello?")


def test_a_further_message_goes_on_in_the_same_conversation(place):
    id = place.submit("First")
    place.wait(id)
    place.swarm.send(id, "And then?")
    while len(place.rows(id, "swarm_run_over")) < 2:
        time.sleep(0.05)
    place.wait(id)
    said = [row["content"][0]["text"] for row in place.rows(id, "user_message")]
    assert said == ["First", "And then?"]
    assert place.swarm.show(id).attempt == 2


def test_one_that_comes_after_another_waits_for_it(place):
    first = place.submit("First", bash("sleep 0.5"), says("Done."))
    second = place.submit("Second", says("Done."), after=[first[:9]])
    third = place.submit("Third", "error:400")
    fourth = place.submit("Fourth", says("Done."), after=[third])
    assert place.wait(second).stage == "done"
    starts = {
        id: next(row.at for _, row in place.swarm.events(id) if row.frame["type"] == kind)
        for id, kind in ((first, "swarm_exited"), (second, "swarm_started"))
    }
    assert starts[second] >= starts[first]
    assert place.wait(third).stage == "failed"
    assert "was failed" in place.wait(fourth).doing
    with pytest.raises(NoSuchAgent):
        place.swarm.show("nobody")


def test_an_agent_that_is_killed_goes_on_where_it_was(place):
    id = place.submit(
        "Steps",
        bash("echo 1 >> steps"),
        bash("touch wait; sleep 2"),
        bash("echo 2 >> steps"),
        says("Done."),
    )
    tree = place.home / "swarm" / "agents" / id / "tree"
    while not (tree / "wait").exists():
        time.sleep(0.02)
    os.kill(place.rows(id, "swarm_started")[-1]["pid"], signal.SIGKILL)
    summary = place.wait(id)
    assert (summary.stage, summary.attempt) == ("done", 2)
    assert (tree / "steps").read_text() == "1\n2\n"
    assert len(place.rows(id, "done")) == 1
    assert len(place.rows(id, "run_resumed")) == 1
    numbers = [row["seq"] for row in place.rows(id) if "seq" in row]
    assert numbers == sorted(set(numbers))  # none twice, in order


def test_everything_goes_on_when_the_supervisor_is_killed(place):
    id = place.submit("Steps", bash("echo 1 >> steps; touch wait; sleep 2"), says("Done."))
    waits = place.submit("Ask", bash("echo x"), says("Done."), approve=["bash"])
    tree = place.home / "swarm" / "agents" / id / "tree"
    while not (tree / "wait").exists():
        time.sleep(0.02)
    place.wait(waits, "needs_you")
    place.kill_supervisor()
    assert {summary.id for summary in place.swarm.agents()} == {id, waits}  # starts another one
    assert place.wait(id).stage == "done"
    assert (tree / "steps").read_text() == "1\n"
    numbers = [row["seq"] for row in place.rows(id) if "seq" in row]
    assert numbers == sorted(set(numbers))
    kinds = [row["type"] for row in place.rows(id)]
    assert kinds.count("user_message") == kinds.count("tool_result") == kinds.count("done") == 1
    (question,) = place.wait(waits, "needs_you").questions
    place.swarm.approve(waits, question.id, "allow")
    assert place.wait(waits).stage == "done"


@pytest.mark.slow
def test_work_of_a_run_that_was_over_when_the_supervisor_died_is_kept(place):
    id = place.submit("Add", bash("echo two >> a.txt"), says("Done."))
    place.wait(id)
    place.swarm.stop()
    log = place.home / "swarm/agents" / id / "events.jsonl"
    rows = log.read_bytes().splitlines(keepends=True)
    over = next(i for i, row in enumerate(rows) if b"swarm_run_over" in row)
    log.write_bytes(b"".join(rows[: over + 1]))  # it was killed before it kept the work
    summary = place.wait(id)
    assert (summary.stage, summary.diff.added) == ("done", 1)
    assert [row["type"] for row in place.rows(id)][-2:] == ["swarm_size", "swarm_exited"]


def test_a_trap_that_an_agent_leaves_does_not_run_when_the_supervisor_looks(place, tmp_path):
    mark = tmp_path / "ran"
    place.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    place.git("commit", "-qm", "a submodule")
    lay = (
        "cd sub && git init -q . && echo a>f && echo '* filter=e' >.gitattributes && git add . && "
        "git -c user.name=t -c user.email=t@t commit -qm x && "
        f"git config filter.e.clean 'touch {mark}; cat'; echo b>f; cd ..; chmod 311 sub; echo 2 >b"
    )
    id = place.submit("Trap", bash(lay), says("Done."))
    assert place.wait(id).diff.added == 1
    assert "[left out: 'sub' is a repository of its own]" in place.swarm.diff(id)
    place.swarm.merge(id)
    assert (place.repository / "b").read_text() == "2\n"
    assert "'sub' is a repository of its own" in place.zot("rm", id).stderr
    assert place.zot("gc").stdout == "nothing to remove\n"
    assert not mark.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere unread looks like read")
def test_a_command_that_a_supervisor_left_unread_when_it_ended_is_taken_by_the_next(place):
    path = socket_path(place.home / "swarm")
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as ending, ThreadPoolExecutor(1) as pool:
        ending.bind(str(path))
        ending.listen()

        def end():
            while True:
                connection, _ = ending.accept()
                with connection:
                    if connection.recv(1, socket.MSG_PEEK):  # no look whether somebody listens
                        path.unlink()
                        ending.close()
                        return

        ended = pool.submit(end)
        id = place.submit("Say", says("Done."))
        ended.result()
    assert place.wait(id).stage == "done"
    assert len(place.swarm.agents()) == 1


def test_an_agent_that_dies_again_and_again_is_lost_and_can_be_retried(place):
    id = place.submit("Die", words=("--no-such-flag",))  # each start fails at once
    assert place.wait(id).stage == "lost"
    assert "--no-such-flag" in place.rows(id, "swarm_exited")[-1]["said"]
    assert len(place.rows(id, "swarm_started")) == 5
    place.swarm.retry(id)
    assert len(place.rows(id, "swarm_retried")) == 1
    while len(place.rows(id, "swarm_started")) < 10:
        time.sleep(0.05)
    assert place.wait(id).stage == "lost"


def test_a_base_that_is_not_there_is_told_at_once(place):
    refused = place.zot("new", "Do it", "--base", "no-such-branch")
    assert refused.returncode == 1
    assert "has no branch or commit 'no-such-branch'" in refused.stderr
    assert place.swarm.agents() == []


def test_a_word_that_is_none_lists_those_that_people_type(place):
    refused = place.zot("lits")
    assert refused.returncode == 2
    assert "'list'" in refused.stderr
    assert "supervise" not in refused.stderr


def test_two_supervisors_never_run_at_once(place):
    place.submit("First", says("Done."))
    before = place.supervisor()
    assert place.zot("supervise").returncode == 0
    assert place.supervisor() == before


@pytest.mark.slow
def test_all_agents_together_keep_to_one_budget(place):
    assert "without a limit" in place.zot("budget").stdout
    first = place.submit("First", "say:Hello")
    cost = place.wait(first).cost_usd
    assert cost > 0
    assert place.swarm.spending().total().usd == pytest.approx(cost)
    assert place.zot("budget", "--max-cost", str(cost * 2.5)).returncode == 0
    ids = [place.submit(f"Task {number}", "say:Hello") for number in range(6)]
    stages = [place.wait(id).stage for id in ids]
    assert stages.count("done") == 2
    assert stages.count("failed") == 4
    assert "used up" in place.swarm.show(ids[stages.index("failed")]).doing
    spent = place.swarm.spending().total().usd
    assert cost * 2.5 <= spent <= cost * 3.5  # passed by one call at most
    assert place.zot("budget", "--none").stdout.startswith("spent $")


@needs_bwrap
def test_one_in_a_jail_stays_in_its_tree_and_its_work_is_merged(place):
    id = place.submit(
        "Jailed",
        bash("echo x > in.txt; echo y > ../out.txt; cat a.txt"),
        says("Done."),
        jail=True,
    )
    summary = place.wait(id)
    assert summary.stage == "done", summary.doing
    assert summary.model
    assert (summary.diff.files, summary.diff.added) == (1, 1)
    outside = place.home.with_name(f"{place.home.name}-jailed") / id
    assert not (outside / "out.txt").exists()
    place.swarm.merge(id)
    assert (place.repository / "in.txt").read_text() == "x\n"
    place.swarm.remove(id)
    assert not outside.exists()


def test_why_an_agent_cannot_start_is_said_and_one_can_be_resumed(place):
    id = place.submit("Start", says("Done."), provider="nobody")
    summary = place.wait(id)
    assert summary.stage == "lost"
    assert summary.doing.startswith("unknown provider 'nobody'")
    assert summary.doing in place.zot("show", id).stdout
    assert place.zot("resume", id).returncode == 0
    assert len(place.rows(id, "swarm_retried")) == 1
    place.wait(id)


def test_minutes_of_all_agents_are_limited_together(place):
    assert place.zot("budget", "--max-cost", "5").returncode == 0
    said = place.zot("budget", "--max-minutes", "0.01").stdout
    assert said == "spent $0.0000 of $5 and 0.0 of 0.01 minutes\n"  # the other limit stays
    id = place.submit("Slow", bash("sleep 1"), says("never said"))
    summary = place.wait(id)
    assert summary.stage == "failed"
    assert "of 0.01 minutes" in summary.doing
    assert summary.worked_seconds >= 1
    shown = json.loads(place.zot("budget", "--json").stdout)
    assert shown["spent"]["seconds"] >= 1
    assert place.zot("budget", "--none", "--json").returncode == 0


def test_the_budget_of_an_agent_is_for_all_its_messages(place):
    id = place.submit("First", "say:Hello", max_cost=1.0)
    cost = place.wait(id).cost_usd
    assert cost > 0
    second = place.submit("Second", "say:Hello", max_cost=cost, max_seconds=600)
    assert place.wait(second).stage == "done"
    place.swarm.send(second, "say:Once more")
    while len(place.rows(second, "swarm_run_over")) < 2:
        time.sleep(0.05)
    summary = place.wait(second)
    assert (summary.stage, summary.outcome) == ("failed", "limit")
    assert "its budget is used up: max_cost is" in summary.doing


def test_an_agent_whose_work_cannot_be_committed_is_not_done(place):
    id = place.submit("Break", bash("echo x > new.txt; mv .git ../away"), says("Done."))
    summary = place.wait(id)
    assert summary.stage == "lost"
    assert "could not be committed" in summary.doing
    folder = place.home / "swarm" / "agents" / id
    (folder / "away").rename(folder / "tree" / ".git")
    place.swarm.stop()
    place.swarm.retry(id)
    assert place.wait(id, "done").stage == "done"
    assert "+x" in place.swarm.diff(id)


def test_who_follows_an_agent_to_its_end_can_merge_at_once(place):
    for number in range(3):
        id = place.submit("Follow", bash(f"echo x > new-{number}.txt"), says("Done."))
        assert place.zot("logs", "-f", id).stdout.endswith("-- answered\n")
        assert place.zot("merge", id).stderr == ""
        assert (place.repository / f"new-{number}.txt").exists()
