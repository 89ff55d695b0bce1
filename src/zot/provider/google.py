"""Google Gemini `streamGenerateContent`: requests to JSON, stream events to blocks. No I/O."""

import re
from typing import assert_never

import msgspec
from msgspec import Raw, Struct

from zot.errors import BadResponse, Refused
from zot.provider import assemble, turns, types
from zot.provider.failure import one_line
from zot.provider.providers import Quirks, word_for_level
from zot.text import encode_json

API = "google"
BUDGETS = dict(zip(types.LEVELS[1:], (1_024, 2_048, 8_192, 16_384, 24_576, 24_576), strict=True))
# The JSON Schema keywords that function declarations accept.
SCHEMA_WORDS = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems"),
        *("properties", "required", "minimum", "maximum", "minLength", "maxLength", "pattern"),
        *("example", "anyOf", "propertyOrdering", "items"),
    }
)
FORMATS = {"enum", "date-time", "int32", "int64", "float", "double"}
# Every other reason is a filter's: SAFETY, RECITATION, MODEL_ARMOR and others that Google adds.
ENDS = frozenset({"STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED"})
BROKEN = frozenset(
    {
        *("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER"),
        *("MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"),
    }
)
# Google's documented value for calls of other models: newer models refuse an unsigned first call.
NO_SIGNATURE = "skip_thought_signature_validator"
DEPTH = 32


# --- requests --------------------------------------------------------------------------------


def body(
    request: types.Request, quirks: Quirks, encoded: turns.EncodedTurns
) -> dict[str, types.Json]:
    encoded.update(request, quirks, ENCODER)
    body: dict[str, types.Json] = {"contents": contents(encoded.turns)}
    if request.system.strip():
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = encoded.part("tools", request.tools, lambda: encode_tools(request))
        mode = {"auto": "AUTO", "none": "NONE", "required": "ANY"}[request.tool_choice]
        body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
    settings: dict[str, types.Json] = {}
    if request.max_output:
        settings["maxOutputTokens"] = min(request.max_output, request.model.max_output)
    if request.model.reasoning and (wanted := thinking(request, quirks)):
        settings["thinkingConfig"] = wanted
    if request.schema is not None and not request.tools:  # refused together with functions
        settings["responseMimeType"] = "application/json"
        settings["responseJsonSchema"] = request.schema
    if settings:
        body["generationConfig"] = settings
    return body


def thinking(request: types.Request, quirks: Quirks) -> dict[str, types.Json]:
    """Return the thinking options: a level if the catalog lists levels, else a budget."""
    if quirks.levels is not None:
        word = word_for_level(request.reasoning, quirks.levels)
        if word is None:
            return {}  # cannot be turned off: the server's default is the lowest
        return {"includeThoughts": True, "thinkingLevel": word.lower()}
    if request.reasoning == "off":
        # Larger models refuse zero.
        return {} if "pro" in request.model.id else {"thinkingBudget": 0}
    return {"includeThoughts": True, "thinkingBudget": BUDGETS[request.reasoning]}


def clean_schema(schema: types.Json, depth: int = 0) -> dict[str, types.Json]:
    """Reduce a schema to the keywords that the server accepts; below DEPTH levels to a string."""
    if not isinstance(schema, dict) or depth > DEPTH:
        return {"type": "string"}
    out: dict[str, types.Json] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            out[key] = {name: clean_schema(item, depth + 1) for name, item in value.items()}
        elif key == "items":
            out[key] = clean_schema(value, depth + 1)
        elif key in ("anyOf", "oneOf") and isinstance(value, list):
            out["anyOf"] = [clean_schema(item, depth + 1) for item in value]
        elif key == "const":
            out["enum"] = [str(value)]
            out.setdefault("type", "string")
        elif key == "enum" and isinstance(value, list):
            out[key] = [str(item) for item in value]
        elif key == "format" and value not in FORMATS:
            continue
        elif key in SCHEMA_WORDS:
            out[key] = value
    return nullable(out)


def nullable(schema: dict[str, types.Json]) -> dict[str, types.Json]:
    """Replace a list of types by one nullable type, and add a type to every bare schema."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [item for item in kind if item != "null"]
        schema["type"] = kinds[0] if kinds else "string"
        if "null" in kind:
            schema["nullable"] = True
    elif kind is None and "anyOf" not in schema:
        schema["type"] = "object" if "properties" in schema else "string"
    if schema.get("type") == "array" and "items" not in schema:
        schema["items"] = {"type": "string"}
    if "enum" in schema:
        schema["type"] = "string"
    if isinstance(schema.get("required"), list):
        known = schema.get("properties") or {}
        schema["required"] = [name for name in schema["required"] if name in known]
        if not schema["required"]:
            del schema["required"]
    return schema


def encode_tools(request: types.Request) -> list[dict[str, types.Json]]:
    declared = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": clean_schema(turns.object_schema(tool.schema)),
        }
        for tool in request.tools
    ]
    return [{"functionDeclarations": declared}]


def contents(conversation: list[turns.EncodedTurn]) -> list[dict[str, types.Json]]:
    """Return the turns with alternating roles: what one side says twice in a row is one turn."""
    contents: list[dict[str, types.Json]] = []
    for encoded in conversation:
        role = "model" if encoded.role == "assistant" else "user"
        if not contents or contents[-1]["role"] != role:
            contents.append({"role": role, "parts": []})
        contents[-1]["parts"].append(Raw(encoded.data))
    return contents


def encode_said(block: types.Text | types.Image) -> dict[str, types.Json]:
    if isinstance(block, types.Text):
        return {"text": block.text}
    return {"inlineData": {"mimeType": block.mime_type, "data": turns.base64_of(block)}}


def encode_user(blocks: tuple[types.Text | types.Image, ...]) -> list[types.Json]:
    return list(map(encode_said, blocks))


def encode_model(turn: turns.ModelTurn, quirks: Quirks) -> list[types.Json]:
    parts: list[types.Json] = []
    for block in turn.blocks:
        match block:
            case types.Text():
                parts.append({"text": block.text})
            case types.ToolCall():
                call: dict[str, types.Json] = {
                    "name": block.name,
                    "args": turns.args_of(block),
                }
                parts.append({"functionCall": call, **signed(block, turn)})
            case types.Reasoning():
                if block.api == API and (signature := signed(block, turn)):
                    add_thought(parts, block, signature)
            case _:
                assert_never(block)
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None and quirks.levels is not None:
        first.setdefault("thoughtSignature", NO_SIGNATURE)
    return parts


def add_thought(
    parts: list[types.Json], block: types.Reasoning, signature: dict[str, types.Json]
) -> None:
    if not (block.opaque or {}).get("of_text"):
        parts.append({"text": block.text, "thought": True, **signature})
    elif parts and parts[-1].keys() == {"text"}:
        parts[-1].update(signature)
    else:
        parts.append({"text": "", **signature})


def signed(block: types.ToolCall | types.Reasoning, turn: turns.ModelTurn) -> dict[str, types.Json]:
    """Return the signature that the server requires back with its own calls and thoughts."""
    signature = (block.opaque or {}).get("thoughtSignature")
    return {"thoughtSignature": signature} if signature and turn.same_provider else {}


def encode_results(results: tuple[types.ToolResult, ...], quirks: Quirks) -> list[types.Json]:
    parts: list[types.Json] = []
    images: list[types.Image] = []
    for result in results:
        key = "error" if result.is_error else "output"
        response = {"name": result.name, "response": {key: turns.result_text(result)}}
        parts.append({"functionResponse": response})
        images += turns.images_of(result)
    return parts + [encode_said(image) for image in images]


ENCODER = turns.Encoder(encode_user, encode_model, encode_results)


# --- responses -------------------------------------------------------------------------------


class GoogleArg(Struct):
    """A piece of one argument, from a server that streams them."""

    jsonPath: str = ""
    stringValue: str | None = None
    numberValue: int | float | None = None
    boolValue: bool | None = None

    @property
    def value(self) -> types.Json:
        values = (self.stringValue, self.numberValue, self.boolValue)
        return next((value for value in values if value is not None), None)


class GoogleCall(Struct):
    name: str = ""
    args: dict[str, types.Json] | None = None
    id: str | None = None
    partialArgs: list[GoogleArg] | None = None
    willContinue: bool = False


class GooglePart(Struct):
    text: str | None = None
    thought: bool = False
    thoughtSignature: str | None = None
    functionCall: GoogleCall | None = None


class GoogleContent(Struct):
    parts: list[GooglePart] | None = None


class GoogleCandidate(Struct):
    content: GoogleContent | None = None
    finishReason: str | None = None
    finishMessage: str | None = None
    groundingMetadata: dict[str, types.Json] | None = None


class GoogleEvent(Struct):
    candidates: list[GoogleCandidate] | None = None
    usageMetadata: assemble.Counts = None
    promptFeedback: dict[str, types.Json] | None = None
    error: assemble.ServerError | None = None


_EVENT = msgspec.json.Decoder(GoogleEvent)


class GoogleReader(assemble.AnswerReader):
    """Reads one answer. The stream has no end event: the finish reason ends it."""

    api = API

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._stop = ""
        self._explained = ""
        self._blocked = ""
        self._call: assemble.Part | None = None
        """The call whose arguments arrive in pieces."""
        self._args: dict[str, types.Json] = {}

    @property
    def complete(self) -> bool:
        return bool(self._stop)

    def read(self, data: bytes) -> None:
        event = assemble.decode(_EVENT, data, self.out.provider)
        if event.error is not None:
            error, word = event.error, event.error.status or ""
            status = error.code if isinstance(error.code, int) else None
            raise self.out.failed(error.message or word, word, status)
        self._usage(event.usageMetadata)
        if event.promptFeedback and (reason := event.promptFeedback.get("blockReason")):
            self._blocked = str(reason)
        if not event.candidates:
            return
        candidate = event.candidates[0]
        if candidate.content is not None:
            for part in candidate.content.parts or []:
                self._part(part)
        if candidate.groundingMetadata:
            self.out.add_to_text("grounding", candidate.groundingMetadata)
        if candidate.finishReason:
            self._end_call()
            self._stop = candidate.finishReason
            self._explained = candidate.finishMessage or ""

    def finish(self) -> types.Finished:
        name = self.out.provider
        if self._blocked:
            raise Refused(f"{name}: the prompt was blocked: {self._blocked}")
        if not self._stop:
            raise self.out.cut()
        if self._stop in BROKEN:
            error = BadResponse(f"{name}: the model broke off: {self._why()}")
            error.retryable = True
            raise error
        if self._stop not in ENDS:
            raise Refused(f"{name}: the answer was stopped: {self._why()}")
        stop: assemble.StopWord = "length" if self._stop == "MAX_TOKENS" else "end"
        return self.out.finished(stop)

    def _why(self) -> str:
        return one_line(f"{self._stop} {self._explained}", 500)

    def _part(self, part: GooglePart) -> None:
        if part.functionCall is not None:
            self._function(part.functionCall, part.thoughtSignature)
        elif part.thought:
            self.out.reasoning(part.text or "")
            if part.thoughtSignature:
                self.out.keep_with_reasoning({"thoughtSignature": part.thoughtSignature})
        else:
            self.out.text(part.text or "")
            if part.thoughtSignature:
                # A text has no field for it: it is stored as an empty thought after the text.
                opaque = {"thoughtSignature": part.thoughtSignature, "of_text": True}
                self.out.keep_with_reasoning(opaque, fresh=True)

    def _function(self, seen: GoogleCall, signature: str | None) -> None:
        """Process a call, whole or in pieces: name, then arguments, then a piece with neither."""
        if seen.name:
            self._end_call()
            self._call = self.out.open_call(seen.id or "", seen.name)
            self._args = {}
        if self._call is None:
            return
        self._args.update(seen.args or {})
        for piece in seen.partialArgs or []:
            put(self._args, piece.jsonPath, piece.value)
        if signature:
            self._call.opaque = {"thoughtSignature": signature}
        if not seen.willContinue:
            self._end_call()

    def _end_call(self) -> None:
        if self._call is not None:
            self.out.args(self._call, encode_json(self._args).decode())
            self.out.close_call(self._call)
            self._call = None

    def _usage(self, seen: assemble.Counts) -> None:
        if seen is None:
            return
        prompt = assemble.counted(seen, "promptTokenCount") or 0
        thoughts = assemble.counted(seen, "thoughtsTokenCount")
        output = (assemble.counted(seen, "candidatesTokenCount") or 0) + (thoughts or 0)
        prompt += assemble.counted(seen, "toolUsePromptTokenCount") or 0
        self.out.count(
            prompt, output, assemble.counted(seen, "cachedContentTokenCount"), reasoning=thoughts
        )
        self.out.bill(None, TRAFFIC.get(str(seen.get("trafficType")), ""))


TRAFFIC = {"ON_DEMAND_PRIORITY": "priority", "ON_DEMAND_FLEX": "flex"}
"""Ways to serve a request that change its price."""
PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")


def put(args: dict[str, types.Json], path: str, value: types.Json) -> None:
    """Set the value at a path like `$.files[0].name`; further pieces of a text are appended."""
    steps: list[str | int] = [
        int(index) if index else name or quoted_name
        for name, index, quoted_name in PATH_STEP.findall(path)
    ]
    if not 0 < len(steps) <= DEPTH:
        return
    place: types.Json = args
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(step, int):
            if not isinstance(place, list) or step > len(place):
                return  # an invalid path: past the end, or inside a text
            if step == len(place):
                place.append(None)
            old = place[step]
        else:
            if not isinstance(place, dict):
                return
            old = place.get(step)
        if following is None:
            place[step] = old + value if isinstance(old, str) and isinstance(value, str) else value
        elif old is None:
            place[step] = [] if isinstance(following, int) else {}
        place = place[step]


WIRE = assemble.Wire("/v1beta/models/{}:streamGenerateContent?alt=sse", body, ENCODER, GoogleReader)
