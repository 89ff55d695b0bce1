from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot import jsonrpc
from zot.jsonrpc import (
    RpcAnswer,
    RpcFault,
    RpcGarbage,
    RpcId,
    RpcNotification,
    RpcPeer,
    RpcRequest,
    fault_line,
    notification_line,
    read_message,
    request_line,
    result_line,
)

TEXTS = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=5,
)
FEW = settings(max_examples=50)
IDS = st.none() | st.integers() | TEXTS


@FEW
@given(IDS, TEXTS, JSON)
def test_what_is_written_is_read_back(id: RpcId, method: str, value: Any) -> None:
    request = read_message(request_line(id, method, value))
    assert isinstance(request, RpcRequest)
    assert (request.id, request.method) == (id, method)
    assert msgspec.json.decode(request.params) == value

    notification = read_message(notification_line(method, value))
    assert isinstance(notification, RpcNotification)
    assert msgspec.json.decode(notification.params) == value

    answer = read_message(result_line(id, value))
    assert isinstance(answer, RpcAnswer)
    assert answer.id == id
    assert msgspec.json.decode(answer.result) == value

    failed = read_message(fault_line(id, RpcFault(-1, method, value)))
    assert failed == RpcAnswer(id, fault=RpcFault(-1, method, value))


@FEW
@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_message_or_garbage(line: bytes) -> None:
    message = read_message(line)
    if isinstance(message, RpcGarbage):
        assert message.fault.code in (jsonrpc.PARSE_ERROR, jsonrpc.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", jsonrpc.PARSE_ERROR),
        (b"\xff", jsonrpc.PARSE_ERROR),
        (b'{"params":' + b"[" * 100_000, jsonrpc.PARSE_ERROR),
        (b"[]", jsonrpc.INVALID_REQUEST),
        (b"null", jsonrpc.INVALID_REQUEST),
        (b'{"id":1}', jsonrpc.INVALID_REQUEST),
        (b'{"id":{},"method":"x"}', jsonrpc.INVALID_REQUEST),
        (b'{"id":1,"method":2}', jsonrpc.INVALID_REQUEST),
        (b'{"id":' + b"9" * 5000 + b',"method":"x"}', jsonrpc.INVALID_REQUEST),
    ],
)
def test_garbage_says_why(line: bytes, code: int) -> None:
    message = read_message(line)
    assert isinstance(message, RpcGarbage)
    assert message.fault.code == code


def test_a_null_id_is_a_request_and_a_missing_one_a_notification() -> None:
    assert read_message(b'{"id":null,"method":"x"}') == RpcRequest(None, "x")
    assert read_message(b'{"method":"x"}') == RpcNotification("x")


def test_a_fault_without_id_is_an_answer() -> None:
    assert read_message(b'{"error":{"code":-1}}') == RpcAnswer(None, fault=RpcFault(-1))


def test_half_a_character_reaches_no_line() -> None:
    assert b"\xef\xbf\xbd" in notification_line("x", {"text": "\ud83d"})


def test_every_request_is_settled_once() -> None:
    requests = RpcPeer(lambda line: None, None, "cancelled")
    answers: list[RpcAnswer] = []
    first, second, third = (requests.open(answers.append) for _ in range(3))
    assert requests.settle(RpcAnswer(first))
    assert not requests.settle(RpcAnswer(first))
    assert requests.drop(second)
    assert not requests.drop(second)
    assert not requests.settle(RpcAnswer(second))
    requests.close(RpcFault(-1, "gone"))
    fourth = requests.open(answers.append)
    assert [answer.id for answer in answers] == [first, third, fourth]
    gone = RpcFault(-1, "gone")
    assert [answer.fault for answer in answers] == [None, gone, gone]
