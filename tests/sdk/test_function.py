from dataclasses import dataclass, field
from typing import Annotated, Literal, Optional

import msgspec
import pydantic
import pytest

from zot.cancel import Cancel
from zot.core.check import problem
from zot.core.hook import ALLOW, Block, HookContext, ReplaceArgs
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import ToolError
from zot.provider.types import Text, ToolCall
from zot.sdk import guard, tool
from zot.sdk.function import read_docstring


def context(said=None):
    return ToolContext("call_1", Cancel(), (said if said is not None else []).append)


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


@tool
def everything(
    name: str,
    count: int = 1,
    ratio: float = 0.5,
    loud: bool = False,
    words: list[str] = ["a"],  # noqa: B006  what is tested
    prices: dict[str, float] = {},  # noqa: B006
    note: Optional[str] = None,  # noqa: UP045  the old spelling too
    more: str | None = None,
    unit: Literal["c", "f"] = "c",
    at: Annotated[str, "where it is"] = "here",
) -> str:
    """Do everything.

    It has a second paragraph.

    Args:
        name: who it is for
        count (int): how many, which takes
            two lines
    Returns:
        A text.
    """
    return f"{name} {count} {words} {unit}"


def test_the_docstring_is_the_description():
    assert everything.description.startswith("Do everything.\n\nIt has a second paragraph.")
    assert "who it is for" not in everything.description
    assert everything.name == "everything"


def test_the_annotations_are_the_schema():
    properties = everything.schema["properties"]
    assert everything.schema["type"] == "object"
    assert everything.schema["required"] == ["name"]
    assert properties["name"] == {"type": "string", "description": "who it is for"}
    assert properties["count"]["description"] == "how many, which takes two lines"
    assert (properties["count"]["type"], properties["count"]["default"]) == ("integer", 1)
    assert properties["ratio"]["type"] == "number"
    assert properties["loud"]["type"] == "boolean"
    assert properties["words"] == {"type": "array", "items": {"type": "string"}}
    assert properties["prices"]["additionalProperties"] == {"type": "number"}
    assert {"type": "null"} in properties["note"]["anyOf"]
    assert properties["unit"]["enum"] == ["c", "f"]
    assert properties["at"]["description"] == "where it is"


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        ({"name": "x"}, None),
        ({"name": "x", "note": None, "unit": "f", "words": []}, None),
        ({}, "missing"),
        ({"name": 7}, "string"),
        ({"name": "x", "unit": "k"}, "k"),
        ({"name": "x", "other": 1}, "other"),
    ],
)
def test_the_schema_is_what_the_agent_checks_arguments_with(args, wrong):
    found = problem(args, everything.schema)
    assert found is None if wrong is None else (found is not None), found


def test_a_call_fills_in_the_defaults():
    assert everything.run({"name": "x"}, context()) == "x 1 ['a'] c"


def test_a_default_that_is_changed_by_one_call_is_fresh_for_the_next():
    @tool
    def add(words: list[str] = ["a"]) -> int:  # noqa: B006  what is tested
        """Add."""
        words.append("b")
        return len(words)

    assert [add.run({}, context()) for _ in range(2)] == ["2", "2"]


def test_a_tool_is_still_the_function_it_was():
    assert everything("y", words=["b"]) == "y 1 ['b'] c"
    assert everything.__doc__.startswith("Do everything.")


def test_own_types_are_arguments_too():
    @tool(name="plot", description="Plot points.")
    def draw(points: list[Point]) -> float:
        return sum(point.x + point.y for point in points)

    assert draw.name == "plot"
    assert draw.description == "Plot points."
    assert draw.schema["$defs"]["Point"]["required"] == ["x"]
    assert draw.run({"points": [{"x": 1.5}, {"x": 1, "y": 1}]}, context()) == "3.5"
    with pytest.raises(ToolError, match="invalid arguments for 'plot'"):
        draw.run({"points": [{}]}, context())


def test_the_context_is_given_and_not_shown_to_the_model():
    @tool
    def slow(context: ToolContext, what: str) -> None:
        """Be slow."""
        context.progress(f"{what} {context.call_id}")

    said = []
    assert list(slow.schema["properties"]) == ["what"]
    assert slow.run({"what": "half of"}, context(said)) == "done"
    assert said == ["half of call_1"]


def test_output_is_text_blocks_or_json():
    @tool
    def give(kind: str) -> object:
        """Give something."""
        output = ToolOutput((Text("block"),))
        return {"text": "plain", "block": output, "json": {"a": [1]}}[kind]

    assert give.run({"kind": "text"}, context()) == "plain"
    assert give.run({"kind": "block"}, context()) == ToolOutput((Text("block"),))
    assert give.run({"kind": "json"}, context()) == '{"a":[1]}'


def without_docstring(a: str) -> str:
    return a


def without_types(a):
    """Words."""


def with_stars(*a: str) -> None:
    """Words."""


def with_strange_type(a: object, b: complex) -> None:
    """Words."""


def with_unknown_name(a: "NoSuchType") -> None:  # noqa: F821  what is tested
    """Words."""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (without_docstring, "needs a docstring"),
        (without_types, "'a' needs a type annotation"),
        (with_stars, "cannot be described"),
        (with_strange_type, "has no JSON form"),
        (with_unknown_name, "cannot be resolved"),
    ],
)
def test_what_cannot_be_a_tool_says_why(function, said):
    with pytest.raises(TypeError, match=said):
        tool(function)


def test_docstrings_without_sections_are_descriptions():
    assert read_docstring("One line.") == ("One line.", {})
    assert read_docstring("") == ("", {})


# --- guards ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (None, ALLOW),
        (True, ALLOW),
        ("because", Block("because")),
        (False, Block("the call of 'bash' was refused")),
        ({"command": "ls"}, ReplaceArgs({"command": "ls"})),
        (Block("as it is"), Block("as it is")),
    ],
)
def test_what_a_guard_answers_is_a_verdict(answer, verdict):
    hook = guard(lambda call: answer)
    call = ToolCall("1", "bash", {"command": "rm"})
    assert hook.before_tool(call, HookContext(Cancel(), print)) == verdict


def test_a_guard_that_answers_nonsense_raises_and_so_blocks():
    with pytest.raises(TypeError, match="a guard answered 7"):
        guard(lambda call: 7).before_tool(ToolCall("1", "a", {}), HookContext(Cancel(), print))


# --- models and dataclasses ------------------------------------------------------------------


class Street(pydantic.BaseModel):
    name: str
    number: int = pydantic.Field(gt=0)


class Address(pydantic.BaseModel):
    street: Street
    city: str = "Berlin"


@dataclass
class Parcel:
    weight: float
    labels: list[str] = field(default_factory=list)


@tool
def send(to: Address, parcel: Parcel, copies: list[Street] = [], back: Address | None = None):  # noqa: B006
    """Send a parcel."""
    assert isinstance(to, Address)
    return {"to": to, "parcel": parcel, "copies": copies, "back": back}


def test_models_and_dataclasses_are_arguments_and_results():
    street = {"name": "Main", "number": 3}
    args = {"to": {"street": street}, "parcel": {"weight": 2.5}, "copies": [street]}
    assert problem(args, send.schema) is None
    assert msgspec.json.decode(send.run(args, context())) == {
        "to": {"street": street, "city": "Berlin"},
        "parcel": {"weight": 2.5, "labels": []},
        "copies": [street],
        "back": None,
    }


def test_the_schema_of_a_model_is_its_own():
    assert set(send.schema["$defs"]) == {"Street", "Parcel"}
    wrong = {"to": {"street": {"name": "Main"}}, "parcel": {"weight": 1}}
    assert "number" in problem(wrong, send.schema)


def test_arguments_that_only_the_model_refuses_are_an_error_for_the_llm():
    args = {"to": {"street": {"name": "Main", "number": 0}}, "parcel": {"weight": 1}}
    with pytest.raises(ToolError, match="greater than 0"):
        send.run(args, context())


def test_a_model_alone_is_a_result():
    @tool
    def where() -> Street:
        """Where."""
        return Street(name="Main", number=1)

    assert msgspec.json.decode(where.run({}, context())) == {"name": "Main", "number": 1}


def test_a_type_without_json_form_is_named():
    class Odd: ...

    def take(odd: Odd) -> str:
        """Take."""
        return ""

    take.__annotations__["odd"] = Odd
    with pytest.raises(TypeError, match="'Odd' has no JSON form: use str, .* pydantic model"):
        tool(take)


def test_a_result_without_json_form_is_named():
    @tool
    def odd() -> object:
        """Odd."""
        return object()

    with pytest.raises(ToolError, match="has no JSON form: <object"):
        odd.run({}, context())


def test_two_models_of_one_name_are_refused():
    class Box(pydantic.BaseModel):
        street: pydantic.create_model("Street", colour=(str, ...))

    def both(a: Address, b: Box) -> str:
        """Both."""
        return ""

    both.__annotations__.update(a=Address, b=Box)
    with pytest.raises(TypeError, match="two models .* 'Street'"):
        tool(both)
