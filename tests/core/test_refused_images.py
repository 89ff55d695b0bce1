"""An image that the provider refuses does not stay in the way of every later request."""

import pytest
from support.session import Recorder, of

from zot.core import events
from zot.core.image import LEFT_OUT
from zot.errors import ContextTooLong, Overloaded, Rejected
from zot.provider.failure import ImageRefused, class_for_status
from zot.provider.scripted import ScriptedProvider
from zot.provider.types import Image

PNG = b"\x89PNG\r\n\x1a\n"
SMALL, LARGE = Image("image/png", PNG), Image("image/png", PNG + b"large" * 100)


class Picky(ScriptedProvider):
    """Refuses every request with a large image."""

    def stream(self, request, cancel):
        seen = [b for m in request.messages for b in m.content if isinstance(b, Image)]
        if any(len(image.data) > 100 for image in seen):
            self.requests.append(request)
            raise ImageRefused("picky: http 400: image exceeds 5 MB maximum", status=400)
        yield from super().stream(request, cancel)


def sent(request):
    return [
        block if isinstance(block, Image) else block.text
        for message in request.messages
        if message.role == "user"
        for block in message.content
    ]


def test_a_refused_image_becomes_a_note_and_the_run_goes_on():
    it = Recorder([], provider=Picky([{"text": "ok", "repeat": True}]))
    told, run = it.prompt("one", images=(SMALL,))
    assert (run.stop, of(told, events.ErrorRaised)) == ("end", [])
    told, run = it.prompt("two", images=(LARGE,))
    assert run.stop == "end"
    (error,) = of(told, events.ErrorRaised)
    assert "going on without the image" in error.message
    assert sent(it.requests[-1]) == ["one", SMALL, "two", LEFT_OUT]
    told, run = it.prompt("three")
    assert (run.stop, of(told, events.ErrorRaised)) == ("end", [])
    assert sent(it.requests[-1]) == ["one", SMALL, "two", LEFT_OUT, "three"]
    assert LARGE in it.session.messages()[2].content


def test_images_from_before_are_given_up_when_there_are_no_new_ones():
    it = Recorder([{"text": "ok", "repeat": True}])
    it.prompt("one", images=(LARGE,))
    it.agent.provider = Picky([{"text": "ok", "repeat": True}])
    told, run = it.prompt("two")
    assert run.stop == "end"
    assert len(of(told, events.ErrorRaised)) == 1


class Hopeless(ScriptedProvider):
    def stream(self, request, cancel):
        raise ImageRefused("hopeless: image size", status=400)
        yield


def test_a_provider_that_always_says_so_ends_the_run_with_its_error():
    it = Recorder([], provider=Hopeless([]))
    told, run = it.prompt("one", images=(SMALL, LARGE))
    assert run.stop == "error"
    assert len(of(told, events.ErrorRaised)) == 2


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum", ImageRefused),
        (
            400,
            "At least one of the image dimensions exceed max allowed size",
            ImageRefused,
        ),
        (413, "the image is too large", ImageRefused),
        (413, "request entity too large", ContextTooLong),
        (400, "prompt is too long: 210000 tokens > 200000 maximum, with 3 images", ContextTooLong),
        (400, "this model does not take image input", Rejected),
        (500, "image size", Overloaded),
    ],
)
def test_only_an_error_about_an_images_size_is_one(status, text, kind):
    assert class_for_status(status, text) is kind
