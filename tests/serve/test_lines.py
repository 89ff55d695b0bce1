"""What stdin may hold: every line gets exactly one answer, and no line ends the process."""

import json

import pytest
from support.rpc import Zot, texts, types

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def zot(tmp_path_factory):
    turns = [{"text": "ok", "repeat": True}]
    with Zot(tmp_path_factory.mktemp("lines"), turns, features=["codes"]) as process:
        yield process


@pytest.fixture(autouse=True)
def nothing_broke(zot):
    yield
    zot.invariants()


BAD_JSON = {
    "cut": b'{"id":"1","type":',
    "word": b"hello",
    "trailing garbage": b'{"id":"1","type":"ping"} x',
    "two objects": b'{"id":"1","type":"ping"}{"id":"2","type":"ping"}',
    "single quotes": b"{'id':'1','type':'ping'}",
    "trailing comma": b'{"id":"1","type":"ping",}',
    "comment": b'{"id":"1","type":"ping"} // hi',
    "comment inside": b'{"id":"1",/* */"type":"ping"}',
    "unquoted key": b'{id:"1","type":"ping"}',
    "nan": b'{"id":"1","type":"ping","x":NaN}',
    "infinity": b'{"id":"1","type":"ping","x":-Infinity}',
    "hex number": b'{"id":"1","type":"ping","x":0x10}',
    "leading zero": b'{"id":"1","type":"ping","x":01}',
    "plus sign": b'{"id":"1","type":"ping","x":+1}',
    "half a number": b'{"id":"1","type":"ping","x":1.}',
    "bad escape": b'{"id":"1","type":"ping","x":"\\q"}',
    "raw tab in a string": b'{"id":"1","type":"ping","x":"\t"}',
    "raw nul in a string": b'{"id":"1","type":"ping","x":"\0"}',
    "nul bytes": b"\0\0\0",
    "only a bom later": b'\xef\xbb\xbf{"id":"1","type":"ping"}',
    "utf-16 le": '{"id":"1","type":"ping"}'.encode("utf-16-le"),
    "utf-16 with bom": '{"id":"1","type":"ping"}'.encode("utf-16"),
    "utf-32": '{"id":"1","type":"ping"}'.encode("utf-32"),
    "invalid utf-8": b'{"id":"1","type":"ping","x":"\xff"}',
    "invalid utf-8 in the id": b'{"id":"\xc3\x28","type":"ping"}',
    "overlong utf-8": b'{"id":"1","type":"ping","x":"\xc0\xaf"}',
    "surrogate in utf-8": b'{"id":"1","type":"ping","x":"\xed\xa0\xbd"}',
    "utf-8 above the last character": b'{"id":"1","type":"ping","x":"\xf5\x80\x80\x80"}',
    "array": b"[]",
    "array of commands": b'[{"id":"1","type":"ping"}]',
    "null": b"null",
    "number": b"7",
    "string": b'"ping"',
    "true": b"true",
    "nested brackets": b"[" * 100_000,
    "deep object": b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
    "deep array in an unknown field": b'{"id":"1","type":"ping","x":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "one level too deep": b'{"id":"1","type":"ping","x":' + b"[" * 500 + b"]" * 500 + b"}",
    "http": b"GET / HTTP/1.1\r",
    "binary": bytes(range(11, 256)),
}


@pytest.mark.parametrize("line", BAD_JSON.values(), ids=BAD_JSON)
def test_what_is_no_json_object_is_refused_without_an_id(zot, line):
    answer = zot.last_answer_to(line + b"\n")
    assert answer["success"] is False
    assert answer["code"] == "parse_error"
    assert answer["error"].startswith("parse_error: ")
    assert answer["command"] == ""
    assert "id" not in answer


BAD_FIELDS = {
    "no type": (b'{"id":"1"}', "1", "", "unknown_command"),
    "empty object": (b"{}", None, "", "unknown_command"),
    "type in another case": (b'{"id":"1","TYPE":"ping"}', "1", "", "unknown_command"),
    "id in another case": (b'{"ID":"1","type":"nope"}', None, "nope", "unknown_command"),
    "unknown": (b'{"id":"1","type":"fly"}', "1", "fly", "unknown_command"),
    "empty type": (b'{"id":"1","type":""}', "1", "", "unknown_command"),
    "type with a space": (b'{"id":"1","type":" ping"}', "1", " ping", "unknown_command"),
    "type in capitals": (b'{"id":"1","type":"PING"}', "1", "PING", "unknown_command"),
    "an event as a command": (b'{"id":"1","type":"done"}', "1", "done", "unknown_command"),
    "a response as a command": (
        b'{"id":"1","type":"response","success":true}',
        "1",
        "response",
        "unknown_command",
    ),
    "null type": (b'{"id":"1","type":null}', "1", "", "invalid_params"),
    "number type": (b'{"id":1,"type":5}', 1, "", "invalid_params"),
    "list type": (b'{"id":1,"type":["ping"]}', 1, "", "invalid_params"),
    "two types": (b'{"id":1,"type":"ping","type":"abort"}', 1, "abort", "invalid_params"),
    "list id": (b'{"id":["1"],"type":"ping"}', None, "", "invalid_params"),
    "object id": (b'{"id":{},"type":"ping"}', None, "", "invalid_params"),
    "true id": (b'{"id":true,"type":"ping"}', None, "", "invalid_params"),
    "half a character in the id": (b'{"id":"\\ud83d","type":"ping"}', None, "", "invalid_params"),
    "the other half": (b'{"id":"x\\ude00y","type":"ping"}', None, "", "invalid_params"),
    "an id of 100 kB": (
        b'{"id":"' + b"x" * 100_000 + b'","type":"ping"}',
        None,
        "",
        "id_too_long",
    ),
    "an id of 5000 digits": (b'{"id":' + b"9" * 5000 + b',"type":"ping"}', None, "", "id_too_long"),
    "a number of 5000 digits": (
        b'{"id":"1","type":"ping","x":' + b"9" * 5000 + b"}",
        "1",
        "ping",
        "invalid_params",
    ),
}


@pytest.mark.parametrize(("line", "id", "command", "code"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_bad_envelope_is_refused_with_the_id_it_had(zot, line, id, command, code):
    answer = zot.last_answer_to(line + b"\n")
    assert answer["success"] is False
    assert answer["code"] == code
    assert answer["command"] == command
    assert answer.get("id") == id
    assert len(json.dumps(answer)) < 1000


GOOD_PINGS = {
    "plain": b'{"id":"1","type":"ping"}\n',
    "crlf": b'{"id":"1","type":"ping"}\r\n',
    "blanks around": b' \t {"id":"1","type":"ping"} \t \r\n',
    "blanks inside": b'{ "id" : "1" , "type" : "ping" }\n',
    "blank lines before": b'\n\r\n \n\t\n{"id":"1","type":"ping"}\n',
    "escaped letters": b'{"\\u0069d":"1","\\u0074ype":"pin\\u0067"}\n',
    "unknown fields": b'{"id":"1","type":"ping","x":[1,{"y":null}],"z":1e300}\n',
    "type last": b'{"id":"1","more":1,"type":"ping"}\n',
    "nested but not too deep": b'{"id":"1","type":"ping","x":' + b"[" * 499 + b"]" * 499 + b"}\n",
    "brackets in a string": b'{"id":"1","type":"ping","x":"' + b"[{" * 5000 + b'\\""}\n',
    "many, side by side": b'{"id":"1","type":"ping","x":[' + b"[{}]," * 5000 + b"1]}\n",
    "half a character in an unknown field": b'{"id":"1","type":"ping","x":"\\ud83d"}\n',
    "a number too large for a float": b'{"id":"1","type":"ping","x":1e999}\n',
    "same key twice": b'{"id":"0","id":"1","type":"ping"}\n',
    "100 000 keys": b'{"id":"1","type":"ping"'
    + b"".join(b',"k%d":%d' % (n, n) for n in range(100_000))
    + b"}\n",
    "a string of digits": b'{"id":"1","type":"ping","x":"' + b"9" * 5000 + b'"}\n',
}


@pytest.mark.parametrize("data", GOOD_PINGS.values(), ids=GOOD_PINGS)
def test_lines_that_look_odd_and_are_fine(zot, data):
    answer = zot.last_answer_to(data)
    assert answer == {
        "type": "response",
        "id": "1",
        "command": "ping",
        "success": True,
        "data": {"pong": True},
    }


IDS = {
    "string": b'"abc"',
    "zero": b"0",
    "negative": b"-7",
    "float": b"1.50",
    "exponent": b"1E+2",
    "large": b"123456789012345678901234567890",
    "escapes": b'"a\\"b\\\\c\\/\\n\\u0041"',
    "nul": b'"a\\u0000b"',
    "emoji as a pair": b'"\\ud83d\\ude00"',
    "emoji": '"😀 é"'.encode(),
    "looks like json": b'"{\\"type\\":\\"done\\"}"',
    "256 bytes": b'"' + b"x" * 254 + b'"',
}


@pytest.mark.parametrize("id", IDS.values(), ids=IDS)
def test_an_id_comes_back_byte_for_byte(zot, id):
    answer = zot.last_answer_to(b'{"id":' + id + b',"type":"ping"}\n')
    assert answer["success"] is True
    line = zot.raw.splitlines()[-1]
    assert b'"id":' + id in line


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085"])
def test_line_marks_in_an_id_come_back_escaped(zot, mark):
    answer = zot.ask("ping", id=f"a{mark}b")
    assert answer["id"] == f"a{mark}b"


@pytest.mark.parametrize("id", [b'""', b"null", None])
def test_without_an_id_the_answer_has_none(zot, id):
    field = b"" if id is None else b'"id":' + id + b","
    answer = zot.last_answer_to(b"{" + field + b'"type":"ping"}\n')
    assert answer["success"] is True
    assert "id" not in answer


def test_every_kind_of_line_mark_inside_a_message_is_kept(zot):
    marks = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\rj\nk"
    frames = zot.prompt(marks)
    said = next(frame for frame in frames if frame["type"] == "user_message")
    assert said["content"] == [{"type": "text", "text": marks}]


def test_half_a_character_in_a_message_becomes_a_replacement_character(zot):
    zot.write(b'{"id":"half","type":"prompt","message":"a\\ud83d b\\ude00 c\\\\ud83d"}\n')
    said = zot.until("user_message")[-1]
    assert said["content"][0]["text"] == "a\ufffd b\ufffd c\\ud83d"
    zot.until("done")


def test_a_nul_in_a_message_is_accepted(zot):
    said = zot.prompt("a\0b")
    assert {"type": "text", "text": "a\0b"} in said[1]["content"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_how_the_bytes_arrive_does_not_matter(zot, size):
    data = '{"id":"pieces é 😀","type":"ping"}\n'.encode()
    for start in range(0, len(data), size):
        zot.write(data[start : start + size])
    assert zot.answer("pieces é 😀")["success"] is True
    zot.frames[-1]["id"] = "seen"  # so that the next round waits for its own


def test_many_commands_in_one_write_are_answered_in_order(zot):
    before = len(zot.answers())
    zot.write(b"".join(b'{"id":%d,"type":"ping"}\n' % n for n in range(2000)))
    zot.wait(lambda: len(zot.answers()) == before + 2000)
    assert [frame["id"] for frame in zot.answers()[before:]] == list(range(2000))


def test_a_line_over_the_limit_is_skipped_and_said_so(zot):
    long = b'{"id":"long","type":"prompt","message":"' + b"x" * (17 * MEGABYTE) + b'"}\n'
    answer = zot.last_answer_to(long)
    assert answer["success"] is False
    assert answer["code"] == "line_too_long"
    assert str(16 * MEGABYTE) in answer["error"]


def test_a_line_just_under_the_limit_is_taken(zot):
    head, tail = b'{"id":"full","type":"ping","x":"', b'"}'
    line = head + b"x" * (16 * MEGABYTE - len(head) - len(tail)) + tail
    assert len(line) == 16 * MEGABYTE
    assert zot.last_answer_to(line + b"\n")["success"] is True
    assert zot.last_answer_to(line[:-2] + b'x"}\n')["code"] == "line_too_long"


def test_a_long_line_of_blanks_is_no_command(zot):
    before = len(zot.answers())
    zot.write(b" " * (2 * MEGABYTE) + b"\n")
    assert zot.data("ping") == {"pong": True}
    assert len(zot.answers()) == before + 1


def test_a_command_after_an_answer_and_during_a_run_is_answered(zot):
    frames = zot.prompt("hello")
    assert types(frames)[0] == "response"
    assert texts(frames) == "ok"
