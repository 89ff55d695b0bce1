import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.errors import BadResponse
from zot.provider.http import Splitter


def split(*chunks, **options):
    splitter = Splitter("test", **options)
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events + splitter.finish()


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"event: x\ndata: a\n\n", [b"a"]),
        (b"event:x\ndata: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\nevent: x\n\n", [b"a"]),
        (b"event:\ndata: a\n\n", [b"a"]),
        (b": comment\n\ndata: a\n\n", [b"a"]),
        (b": comment\ndata: a\n\n", [b"a"]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b"id: 7\nretry: 10\n\n", []),
        (b"event: x\n\n", []),
        (b"event: x\nid: 4\n\n", []),
        (b"data\n\ndata:\n\n", []),
        (b"data: \n\ndata:   \n\ndata: a\ndata:\n\n", [b"a\n"]),
        (b"nonsense\n\ndata: a\n\n", [b"a"]),
        (b"\n\n\n\n\ndata: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a", [b"a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\ndata: b\n\r\n", [b"a\nb"]),
        (b"data: \xff\xfe\n\n", [b"\xff\xfe"]),
        (b"event: \xff\ndata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: b\n", [b"a", b"b"]),
        (b"", []),
    ],
)
def test_bodies_become_events_however_they_are_cut(body, events):
    assert split(body) == events
    assert split(*(body[at : at + 1] for at in range(len(body)))) == events
    for at in range(len(body)):
        assert split(body[:at], body[at:]) == events


def test_an_event_over_the_limit_is_an_error():
    with pytest.raises(BadResponse, match="test: an event of more than 100 bytes"):
        split(b"data: ", *[b"x" * 10] * 20, max_event=100)


def test_many_large_events_within_the_limit_pass():
    body = b"data: " + b"x" * 90 + b"\n\n"
    assert len(split(*[body] * 20, max_event=100)) == 20


def test_a_large_event_in_small_pieces_takes_linear_time():
    pieces = [b"x" * 4096] * 4096
    assert len(split(b"data: ", *pieces, b"\n\n")[0]) == 16 * 1024 * 1024


lines = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)))


@given(
    st.lists(
        st.tuples(
            lines, st.lists(lines, min_size=1).filter(lambda d: "\n".join(d).encode().strip())
        )
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 400)),
)
@pytest.mark.slow
def test_what_was_encoded_is_what_comes_out(events, end, cuts):
    body = "".join(
        f"event: {name}{end}" + "".join(f"data: {line}{end}" for line in data) + end
        for name, data in events
    ).encode()
    places = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    chunks = [body[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert split(*chunks) == ["\n".join(data).encode() for _, data in events]


@given(st.lists(st.binary()))
def test_no_bytes_make_it_fail_and_cuts_do_not_matter(chunks):
    assert split(*chunks) == split(b"".join(chunks))
