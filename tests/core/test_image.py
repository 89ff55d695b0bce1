"""One check of images, for whatever brings them in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.core.image import IMAGE_TYPES, check_messages, checked_image, checked_images, image_type
from zot.errors import CommandError
from zot.provider.types import Image, Message, Text, ToolResult

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBP",
}


@pytest.mark.parametrize("kind", IMAGE_TYPES)
def test_an_image_is_what_its_first_bytes_say(kind):
    data = HEADS[kind] + b"more"
    assert image_type(data) == kind
    assert checked_images([Image(kind, data)]) == [Image(kind, data)]


@given(st.sampled_from(IMAGE_TYPES) | st.text(), st.binary() | st.sampled_from([*HEADS.values()]))
def test_no_other_bytes_pass_for_an_image(kind, data):
    try:
        image = checked_image(kind, data, "it")
    except CommandError as error:
        assert image_type(data) != kind
        assert str(error).startswith("it.")
    else:
        assert image_type(data) == kind == image.mime_type


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (Image("image/png", b"not a png"), "is no image that models take, not image/png"),
        (Image("image/png", HEADS["image/gif"]), "looks like image/gif, not image/png"),
        (Image("image/svg+xml", b"<svg/>"), "must be one of image/png"),
        (Image("image/png", b""), "is empty"),
    ],
)
def test_what_is_no_image_is_refused_wherever_it_stands(image, words):
    with pytest.raises(CommandError, match=r"images\[0\].*" + words):
        checked_images([image])
    said = Message("user", (Text("look"), image), 1.0)
    got = Message("tool", (ToolResult("1", (image,)),), 1.0)
    for message in (said, got):
        with pytest.raises(CommandError, match=r"messages\[0\].*" + words):
            check_messages([message])
