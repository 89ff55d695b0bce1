"""Every example of docs/extensions.md is run."""

import json
import re
from typing import get_args

import msgspec
import pytest
from support.docs import ROOT, Block, blocks, runnable
from support.extension import call, running_host, text_of

from zot.extensions import proto
from zot.extensions.manifest import Manifest

PAGE = "docs/extensions.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def section(block: Block) -> str:
    """The heading of the second level above a block."""
    above = TEXT.splitlines()[: block.line]
    return next(line for line in reversed(above) if line.startswith("## ")).removeprefix("## ")


JSON = [(section(block), block) for block in blocks(PAGE, "json")]
FROM = [block for heading, block in JSON if heading == "Extension to zot"]
TO = [block for heading, block in JSON if heading == "zot to extension"]


def line_of(block: Block) -> bytes:
    return json.dumps(json.loads(block.text)).encode()


def assert_nothing_was_ignored(block: Block, frame: msgspec.Struct) -> None:
    shown = json.loads(block.text)
    kept = json.loads(msgspec.json.encode(frame))
    assert shown.items() <= kept.items()


@pytest.mark.parametrize("block", FROM, ids=str)
def test_frames_of_extensions_are_read_as_shown(block):
    frame = proto.decode(line_of(block))
    assert not isinstance(frame, proto.Unknown)
    assert_nothing_was_ignored(block, frame)


@pytest.mark.parametrize("block", TO, ids=str)
def test_frames_of_zot_are_written_as_shown(block):
    assert_nothing_was_ignored(block, proto.decode_from_host(line_of(block)))


def test_every_frame_has_an_example():
    shown = {type(proto.decode(line_of(block))) for block in FROM}
    assert shown == set(get_args(proto.FromExtension))
    shown = {type(proto.decode_from_host(line_of(block))) for block in TO}
    assert shown == set(get_args(proto.ToExtension))


def test_every_event_interception_and_manifest_field_is_named():
    for name in (*proto.EVENTS, *proto.INTERCEPTS, *proto.CAPABILITIES):
        assert f'"{name}"' in TEXT or f"`{name}`" in TEXT, name
    for field in Manifest.__struct_fields__:
        assert re.search(rf"^\|.*`{field}`.*\|", TEXT, re.M), field


def test_the_quick_starts_run(tmp_path):
    sdk, plain, harness = runnable(PAGE, "python")
    manifest = next(block for heading, block in JSON if heading == "Quick start")
    folders = []
    for name, block in (("sdk", sdk), ("plain", plain)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "hello.py").write_text(block.text)
        (folder / "hello.py").chmod(0o755)
        fields = json.loads(manifest.text) | {"name": name}
        (folder / "extension.json").write_text(json.dumps(fields))
        folders.append(folder)
    with running_host(tmp_path, *folders) as (host, seen):
        assert host.run_command("hello", "Ada").text == "Greet Ada in one short sentence."
        assert host.run_command("hellopy", "").action == "prompt"
        assert text_of(call(host, "weather", {"city": "Ulm"})) == "Ulm: sunny"
        assert seen.events == []
    exec(compile(harness.text, str(harness), "exec"), {"__name__": "documentation"})


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (ROOT / "docs" / target).exists(), target
