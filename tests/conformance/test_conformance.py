import json
import subprocess
import sys
from pathlib import Path

import pytest

from zot.conformance.cli import summary
from zot.testing import check_wire

pytestmark = pytest.mark.long

ZOT = str(Path(sys.executable).parent / "zot")
OTHER = str(Path(__file__).parent / "other_server.py")


def conformance(*words, timeout=100):
    command = [ZOT, "conformance", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.mark.slow
def test_zot_conforms_to_its_own_wire():
    points = check_wire([ZOT, "rpc", "--no-ext"], seconds=30)
    assert [point for point in points if not point.holds] == []
    assert len(points) > 140
    assert "must: " in summary(points)


@pytest.fixture(scope="module")
def report():
    only = ("commands", "text", "hostile_lines", "no_hello", "wrong_token")
    points = check_wire([sys.executable, OTHER, "{url}"], only=only, seconds=2)
    return {point.id: point for point in points}


def detail(report, id):
    assert not report[id].holds
    return report[id].detail


@pytest.mark.slow
def test_another_implementation_is_told_where_the_order_differs(report):
    assert detail(report, "text.order").startswith(
        "event 5: expected usage, got assistant_message; all: user_message turn_start"
    )


def test_another_implementation_is_told_of_a_second_done(report):
    assert detail(report, "text.one_done") == "expected 1, got 2"


def test_another_implementation_is_told_which_value_differs(report):
    assert detail(report, "text.deltas") == "expected 'hello wide world', got 'hellowideworld'"
    assert detail(report, "text.time") == "today"


def test_another_implementation_is_told_which_fields_are_wrong(report):
    assert "'step': '1'" in detail(report, "fields.turn_start")
    assert report["fields.text_delta"].holds


def test_an_event_that_is_not_documented_is_an_addition(report):
    point = report["fields.mood"]
    assert (point.holds, point.level) == (True, "should")


def test_another_implementation_is_told_that_it_died(report):
    said = detail(report, "hostile_lines.completes")
    assert "waited for the response to 'not_json': it ended" in said
    assert "JSONDecodeError" in said


def test_another_implementation_is_told_that_auth_does_not_end_it(report):
    assert detail(report, "no_hello.refused") == "expected False, got True"
    assert detail(report, "wrong_token.completes").startswith("it did not exit within 2 s")


ODD = """
import json, sys
for line in sys.stdin:
    for frame in ({"type": "response", "id": json.loads(line)["id"], "data": [1]}, {"type": "done"},
                  {"type": ["done"]}, {"no": "type"}, {"type": "assistant_message", "content": 5}):
        print(json.dumps(frame), flush=True)
"""


@pytest.mark.slow
def test_a_program_that_ends_at_once_gets_a_whole_report():
    points = check_wire([sys.executable, "-c", "", "{url}"], seconds=2)
    failed = {point.id: point.detail for point in points if not point.holds}
    assert len(failed) >= 30
    assert "it ended" in failed["commands.completes"]
    assert failed["end_of_input.last"] == "expected ['done'], got []"


def test_frames_of_other_shapes_are_told_and_not_a_crash():
    only = ("commands", "image", "auth", "end_of_input")
    points = check_wire([sys.executable, "-c", ODD, "{url}"], only=only, seconds=5)
    failed = {point.id: point.detail for point in points if not point.holds}
    said = "a frame is missing or not as documented"
    assert failed["commands.completes"].startswith(f"{said} (AttributeError: 'list' object has")
    assert failed["auth.completes"].startswith(f"{said} (KeyError: 'success'); last frames: ")


def test_the_report_and_the_exit_code_are_for_people_and_programs():
    done = conformance("--only", "text", "--seconds", "5", "--", sys.executable, OTHER, "{url}")
    assert done.returncode == 1
    assert "ok   text.ack_first: the first frame answers the prompt\n" in done.stdout
    assert "FAIL text.one_done: 1 run(s) end in exactly 1 done\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("must: ")


def test_the_report_as_json():
    words = ("--json", "--failures", "--only", "commands", "--", ZOT, "rpc", "--no-ext")
    done = conformance(*words)
    assert (done.returncode, done.stdout) == (0, "")
    done = conformance("--json", "--only", "abort_idle", "--", ZOT, "rpc", "--no-ext")
    ids = {json.loads(line)["id"] for line in done.stdout.splitlines()}
    assert {"abort_idle.success", "fields.done"} <= ids


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no command"),
        (("--what", "--", "zot"), 2, "unknown flag '--what'"),
        (("--only", "nonsense", "--", "zot"), 2, "no scenario 'nonsense'"),
        (("--seconds", "soon", "--", "zot"), 2, "--seconds needs a positive number"),
        (("--", "/no/such/command"), 1, "there is no command '/no/such/command'"),
    ],
)
def test_wrong_usage_is_explained(words, code, said):
    done = conformance(*words)
    assert done.returncode == code
    assert said in done.stderr


def test_help_and_list():
    assert "zot conformance -- zot rpc" in conformance("--help").stdout
    assert "abort_in_tool\n" in conformance("--list").stdout
