"""msgspec as the `zot` command loads it: without what zot does not need, and whole all the same."""

import subprocess
import sys

import pytest
from support.environment import uncovered

from zot.lean import TRIED

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] not in TRIED, reason="with this Python msgspec is loaded as usual"
)
# Each stands for what a program may do after msgspec was loaded in the quick way.
CHECK = """
import sys
from zot import lean
{before}
lean.load_msgspec()
import msgspec
kept_out = {{"re", "enum", "uuid", "decimal", "textwrap", "platform", lean.SCHEMA}}
kept_out |= {{"contextlib", "operator"}}
kept_out |= {{"msgspec." + name for name in lean.SELDOM}}
left = kept_out & set(sys.modules)
assert {expected}, left
import datetime, decimal, enum, re, textwrap, typing, uuid
class Row(msgspec.Struct):
    '''A row.'''
    day: datetime.date
    count: int = 0
    next: "Row | None" = None
    word: typing.Annotated[str, msgspec.Meta(pattern="^a")] = "a"
row = msgspec.json.decode(b'{{"day":"2026-01-02"}}', type=Row)
assert row.day == datetime.date(2026, 1, 2) and isinstance(row.day, datetime.date)
assert msgspec.json.encode(row).startswith(b'{{"day":"2026-01-02","count":0,"next":null')
assert typing.Pattern[str].__origin__ is re.Pattern and typing.ForwardRef("int")
import contextlib, operator
assert typing.ContextManager[int].__origin__ is contextlib.AbstractContextManager
assert typing.AsyncContextManager is typing.AsyncContextManager
assert typing.AsyncContextManager[int].__origin__ is contextlib.AbstractAsyncContextManager
assert isinstance(contextlib.nullcontext(), typing.ContextManager)
assert not hasattr(typing, "Nothing") and operator.__file__
try:
    msgspec.json.decode(b'{{"day":"2026-01-02","word":"b"}}', type=Row)
except msgspec.ValidationError:
    pass
else:
    raise AssertionError("a wrong word was taken")
(schema,), parts = msgspec.json.schema_components([Row])
assert parts["Row"]["description"] == "A row."
assert parts["Row"]["properties"]["day"] == {{"type": "string", "format": "date"}}
assert msgspec.json.schema(int) == {{"type": "integer"}}
assert isinstance(msgspec.inspect.type_info(int), msgspec.inspect.IntType)
assert msgspec.toml.decode(b"a = 1") == {{"a": 1}} and msgspec.yaml.encode
assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=Row) == row
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.warn("told")
assert [str(warning.message) for warning in caught] == ["told"]
assert decimal.Decimal("1.5") + 1 == decimal.Decimal("2.5") and uuid.uuid4().version == 4
assert textwrap.dedent(" x") == "x"
"""


HTTP = """
import sys
from zot import lean
lean.lighten()
import httptools
left_out = "httptools.parser.url_parser", "httptools.parser.protocol"
assert all(isinstance(sys.modules[name], lean.LaterModule) for name in left_out)
assert httptools.HttpResponseParser and issubclass(httptools.HttpParserUpgrade, Exception)
assert httptools.parse_url(b"http://host:80/path").host == b"host"
from httptools.parser import url_parser
assert httptools.parser.url_parser.URL is sys.modules[left_out[0]].URL
assert not isinstance(sys.modules[left_out[0]], lean.LaterModule)
"""


def passes(before="", expected="left == set()"):
    check(CHECK.format(before=before, expected=expected))


def check(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=uncovered()
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_all_of_it_works_and_what_was_left_out_is_there_when_it_is_wanted():
    passes()


FEWER = """
plain = lean._stand_ins
def fewer():
    stand_ins = plain()
    del vars(stand_ins["uuid"])["SafeUUID"], vars(stand_ins["decimal"])["Decimal"]
    return stand_ins
lean._stand_ins = fewer
"""


def test_a_module_of_which_msgspec_wants_more_is_loaded_after_all():
    passes(FEWER, "{'uuid', 'decimal'} <= left")


def test_modules_that_are_there_already_are_not_replaced():
    passes("import uuid, decimal", "{'uuid', 'decimal'} <= left")


def test_httptools_is_loaded_without_its_parser_of_urls_which_is_there_when_it_is_wanted():
    check(HTTP)
