import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot.errors import ExtensionError
from zot.extensions.manifest import ExtensionPlaces, Manifest, discover, read


def put(folder, text=None, **fields):
    folder.mkdir(parents=True)
    data = text if text is not None else json.dumps(fields)
    (folder / "extension.json").write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def test_a_manifest_has_defaults_and_ignores_what_it_does_not_know(tmp_path):
    folder = put(tmp_path / "x", name="x", exec="./x", unknown={"a": 1}, version=None)
    assert read(folder).manifest == Manifest(name="x", exec="./x")
    assert read(folder).manifest.enabled


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ('{"exec": "./x"}', "missing required field `name`"),
        ('{"name": "x"}', "'exec' is missing"),
        ('{"name": "../x", "exec": "./x"}', "name '../x' must be"),
        ('{"name": "", "exec": "./x"}', "name '' must be"),
        ('{"name": "x", "exec": "./x", "args": "a"}', "Expected `array`"),
        ('{"name": "x", "exec": "./x", "enabled": "yes"}', "Expected `bool`"),
        ('{"name": "x", "exec": "a\\u0000b"}', "NUL"),
        ('{"name": "x", "skills": ["../other"]}', "outside of the extension's folder"),
        (b"\xff\xfe", "extension.json"),
        (b"[" * 100_000, "extension.json"),
        (b" " * (1024 * 1024 + 1), "larger than 1 MiB"),
    ],
)
def test_a_bad_manifest_names_the_file_and_the_reason(tmp_path, text, reason):
    folder = put(tmp_path / "x", text)
    with pytest.raises(ExtensionError, match="extension.json: ") as caught:
        read(folder)
    assert reason in str(caught.value)


def test_a_missing_manifest_is_named(tmp_path):
    with pytest.raises(ExtensionError, match="extension.json: No such file"):
        read(tmp_path)


def test_skills_can_do_without_a_program(tmp_path):
    folder = put(tmp_path / "x", name="x", skills=["skills/a"])
    assert read(folder).skill_paths() == [folder / "skills/a"]


def test_exec_is_relative_absolute_or_on_the_path(tmp_path):
    folder = put(tmp_path / "x", name="x", exec="./bin/x", args=["-v"])
    with pytest.raises(ExtensionError, match=r"exec './bin/x': no file"):
        read(folder).command()
    (folder / "bin").mkdir()
    (folder / "bin" / "x").touch()
    assert read(folder).command() == [str(folder / "bin" / "x"), "-v"]
    assert read(put(tmp_path / "y", name="y", exec="sh")).command()[0].endswith("/sh")
    assert read(put(tmp_path / "z", name="z", exec="/bin/sh")).command() == ["/bin/sh"]
    with pytest.raises(ExtensionError, match="is not on the PATH"):
        read(put(tmp_path / "w", name="w", exec="surely-not-there")).command()


def test_explicit_ones_come_first_then_the_projects_then_the_users(tmp_path):
    cwd, home = tmp_path / "work", tmp_path / "home"
    given = put(tmp_path / "given", name="a", exec="./x")
    put(cwd / ".zot/extensions/a", name="a", exec="./project")
    put(cwd / ".zot/extensions/b", name="b", exec="./project")
    put(home / "extensions/b", name="b2", exec="./same-folder-name")
    put(home / "extensions/c", name="c", exec="./x", enabled=False)
    put(home / "extensions/other", name="b", exec="./same-name")
    (home / "extensions/stray").mkdir()
    (home / "extensions/file").touch()
    found = discover(ExtensionPlaces(cwd, home, (given,)))
    assert [(each.name, each.scope) for each in found.extensions] == [
        ("a", "explicit"),
        ("b", "project"),
        ("c", "global"),
    ]
    assert found.problems == ()
    assert [
        each.name
        for each in discover(ExtensionPlaces(cwd, home, (given,), search=False)).extensions
    ] == ["a"]


def test_an_untrusted_project_cannot_take_a_guards_name(tmp_path):
    cwd, home = tmp_path / "work", tmp_path / "home"
    put(cwd / ".zot/extensions/guard", name="guard", exec="./evil")
    put(home / "extensions/guard", name="guard", exec="./mine")
    found = discover(ExtensionPlaces(cwd, home, trusted=False))
    assert [(each.name, each.scope) for each in found.extensions] == [("guard", "global")]
    (problem,) = found.problems
    assert "not trusted" in problem.message
    assert f"zot config trust {cwd}" in problem.message


def test_two_with_one_name_in_one_place_are_a_problem(tmp_path):
    home = tmp_path / "home"
    put(home / "extensions/a", name="same", exec="./x")
    put(home / "extensions/b", name="same", exec="./x")
    found = discover(ExtensionPlaces(tmp_path, home))
    assert len(found.extensions) == 1
    assert "the name 'same' is taken by" in found.problems[0].message


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_no_manifest_raises_anything_else(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("x")
    (folder / "extension.json").write_bytes(data)
    try:
        read(folder)
    except ExtensionError as error:
        assert "extension.json" in str(error)


def test_a_projects_manifest_is_a_file_of_the_project(tmp_path):
    cwd, home = tmp_path / "work", tmp_path / "home"
    elsewhere = put(tmp_path / "elsewhere", name="x", exec="./x")
    (cwd / ".zot/extensions/x").mkdir(parents=True)
    (cwd / ".zot/extensions/x/extension.json").symlink_to(elsewhere / "extension.json")
    (home / "extensions").mkdir(parents=True)
    (home / "extensions/y").symlink_to(elsewhere)
    found = discover(ExtensionPlaces(cwd, home))
    assert [(each.name, each.scope) for each in found.extensions] == [("x", "global")]
    assert "it is a link to a file elsewhere" in found.problems[0].message
