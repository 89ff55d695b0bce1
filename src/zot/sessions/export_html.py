"""Renders a session as one self-contained HTML page: no script, no file, no network.

Everything from the session is escaped; the page's content security policy also forbids the browser
to load anything, in case of a mistake here. Loaded only to write a page: the libraries are large.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence, Set
from html import escape
from typing import assert_never

import msgspec
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from zot.core.session import Session, SessionInfo
from zot.provider import types
from zot.sessions.files import Loaded

POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Image types that run no code; an SVG could contain a script."""
OPEN_LINES = 20
"""Maximum lines of a tool's output that is shown expanded; longer output is collapsed."""

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --ink: #1c1e21; --dim: #667; --line: #d8dce2;
  --user: #eef4ff; --code: #f5f6f8; --bad: #b3261e; --link: #0b57d0;
  --add: #e3f6e6; --del: #fde8e8; }
@media (prefers-color-scheme: dark) { :root { --bg: #15171a; --ink: #e3e6ea; --dim: #99a;
  --line: #34383f; --user: #1c2740; --code: #1e2126; --bad: #ff8a80; --link: #8ab4f8;
  --add: #16351d; --del: #42191b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 2rem 1rem 4rem; background: var(--bg);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: .8rem; margin: 0 0 .4rem; color: var(--dim); font-weight: 600; }
h2 small { font-weight: 400; }
h3, h4, h5, h6 { margin: 1.1rem 0 .4rem; line-height: 1.3; } h3 { font-size: 1.2rem; }
h4 { font-size: 1.05rem; } h5, h6 { font-size: 1rem; } h2 + * { margin-top: 0; }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; margin: 0 0 2rem; color: var(--dim); }
dl div { display: flex; gap: .4rem; } dd { margin: 0; color: var(--ink); }
section { padding: .8rem 1rem; margin: 0 0 1rem; border-radius: .5rem; }
section.user { background: var(--user); }
section.assistant, section.tool { border: 1px solid var(--line); }
p { margin: 0 0 .7rem; white-space: pre-wrap; } p:last-child { margin-bottom: 0; }
ul, ol { margin: 0 0 .7rem; padding-left: 1.5rem; } li p { margin-bottom: .3rem; }
blockquote { margin: 0 0 .7rem; padding-left: .9rem; border-left: 3px solid var(--line);
  color: var(--dim); }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: 0 0 .7rem; }
th, td { border: 1px solid var(--line); padding: .25rem .6rem; text-align: left; }
hr { border: 0; border-top: 1px solid var(--line); margin: 1rem 0; } a { color: var(--link); }
pre { background: var(--code); padding: .7rem .9rem; border-radius: .4rem; overflow-x: auto;
  margin: .4rem 0; white-space: pre-wrap; }
pre, code { font: .85rem/1.5 ui-monospace, monospace; }
code { background: var(--code); padding: .1rem .25rem; border-radius: .2rem; }
pre code { padding: 0; background: none; }
details { margin: .4rem 0; } summary { cursor: pointer; }
summary .name { font-weight: 600; } summary .hint { color: var(--dim); font-size: .85rem; }
.thinking { color: var(--dim); font-style: italic; } .failed { color: var(--bad); }
.diff span { display: block; min-height: 1.5em; } .diff .add { background: var(--add); }
.diff .del { background: var(--del); }
img { display: block; max-width: 100%; height: auto; border-radius: .3rem; }
footer { color: var(--dim); font-size: .85rem; }
@media print { details > * { display: block; } section { break-inside: avoid; } }
"""


def to_html(loaded: Loaded, summary: SessionInfo) -> str:
    """Render the current branch of a session."""
    messages = Session(entries=loaded.entries.values()).messages()
    blocks = [block for message in messages for block in message.content]
    results = {block.call_id: block for block in blocks if isinstance(block, types.ToolResult)}
    called = {block.id for block in blocks if isinstance(block, types.ToolCall)}
    title = summary.title or summary.first_text or "Session"
    body = "\n".join(filter(None, (_message(message, results, called) for message in messages)))
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}{colours()}</style></head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{_facts(summary)}\n<main>\n{body}\n</main>\n"
        "<footer>Exported by zot</footer>\n</body></html>\n"
    )


def _facts(summary: SessionInfo) -> str:
    facts = (
        ("Started", _minute(summary.started)),
        ("Model", f"{summary.provider}/{summary.model}".strip("/")),
        ("Messages", str(summary.messages)),
        ("Cost", f"${summary.cost:.4f}"),
    )
    rows = (f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts if text)
    return f"<dl>{''.join(rows)}</dl>"


def _minute(time: str) -> str:
    """Format a UTC time for readers; leave any other text as it is."""
    return f"{time[:10]} {time[11:16]} UTC" if time.endswith("Z") and len(time) > 16 else time


def _message(
    message: types.Message, results: Mapping[str, types.ToolResult], called: Set[str]
) -> str:
    # Results are shown with their calls; a result without a call, in its place.
    blocks = (
        block
        for block in message.content
        if not (isinstance(block, types.ToolResult) and block.call_id in called)
    )
    shown = "\n".join(_block(block, results) for block in blocks)
    head = {"user": "You", "assistant": "Assistant", "tool": "Tool"}[message.role]
    about = _origin(message.origin) if message.origin else ""
    failed = message.origin.error if message.origin else None
    if failed:
        shown += f'<p class="failed">Failed: {escape(failed)}</p>'
    if not shown:
        return ""
    return f'<section class="{message.role}"><h2>{head}{about}</h2>\n{shown}</section>'


def _origin(origin: types.Origin) -> str:
    tokens = f"{origin.usage.total} tokens" if origin.usage.total else ""
    cost = f"${origin.usage.cost.total:.4f}" if origin.usage.cost.total else ""
    stop = origin.stop if origin.stop in ("aborted", "length") else ""
    words = " · ".join(word for word in (origin.model, tokens, cost, stop) if word)
    return f" <small>{escape(words)}</small>" if words else ""


def _block(block: types.Block, results: Mapping[str, types.ToolResult]) -> str:
    match block:
        case types.Text(text):
            return prose(text)
        case types.Image():
            return _image(block)
        case types.ToolCall():
            return _call(block, results.get(block.id))
        case types.ToolResult():
            return _result(block)
        case types.Reasoning(text):
            if not text.strip():
                return ""
            return (
                '<details class="thinking"><summary><span class="hint">Thinking</span></summary>'
                f"<p>{escape(text)}</p></details>"
            )
        case _:
            assert_never(block)


def _call(call: types.ToolCall, result: types.ToolResult | None) -> str:
    args = call.raw
    if call.args is not None:
        args = msgspec.json.format(msgspec.json.encode(call.args), indent=2).decode()
    hint = _hint(call.args or {})
    failed = " failed" if result is not None and result.is_error else ""
    shown = _result(result) if result else '<p class="failed">No result was recorded.</p>'
    if not _diff_of(result):  # a diff shows the arguments more clearly
        shown = f"<pre><code>{coloured(args, 'json')}</code></pre>\n{shown}"
    opened = " open" if result is not None and _lines(result) <= OPEN_LINES else ""
    return (
        f'<details{opened}><summary><span class="name{failed}">{escape(call.name)}</span> '
        f'<span class="hint">{escape(hint)}</span></summary>\n{shown}</details>'
    )


def _result(result: types.ToolResult) -> str:
    if diff := _diff_of(result):
        return _diff(diff)
    parts = []
    for part in result.content:
        if isinstance(part, types.Image):
            parts.append(_image(part))
        elif part.text:
            mark = ' class="failed"' if result.is_error else ""
            parts.append(f"<pre{mark}><code>{escape(part.text)}</code></pre>")
    return "\n".join(parts)


def _diff_of(result: types.ToolResult | None) -> str:
    diff = (result.details or {}).get("diff") if result else None
    return diff if isinstance(diff, str) and diff.strip() else ""


def _diff(diff: str) -> str:
    rows = []
    for line in diff.splitlines():
        kind = {"+": "add", "-": "del"}.get(line.lstrip()[:1], "")
        rows.append(f'<span class="{kind}">{escape(line)}</span>')
    return f'<pre class="diff"><code>{"".join(rows)}</code></pre>'


def _image(image: types.Image) -> str:
    if image.mime_type not in IMAGES or not image.data:
        return f"<p>[image, {escape(image.mime_type)}, {len(image.data)} bytes]</p>"
    data = binascii.b2a_base64(image.data, newline=False).decode()
    return f'<img alt="image" src="data:{image.mime_type};base64,{data}">'


def _hint(args: Mapping[str, object]) -> str:
    """Return the most informative argument of a call."""
    for key in ("command", "path", "pattern", "query", "url", "name"):
        if isinstance(text := args.get(key), str) and text:
            return " ".join(text.split())[:100]
    return ""


def _lines(result: types.ToolResult) -> int:
    return sum(part.text.count("\n") + 1 for part in result.content if isinstance(part, types.Text))


# --- Markdown and code as HTML ----------------------------------------------------------------
#
# The text may be hostile: HTML in it stays text, links lead only to the web, and nothing makes a
# browser load anything.

SCHEMES = ("https://", "http://", "mailto:")
MAX_MARKDOWN = 50_000
"""Maximum characters; longer text is a paste, and is shown without formatting."""
MAX_COLOURED = 10_000
"""Maximum characters of a highlighted code block; some lexers take quadratic time."""
_TITLE_LEVELS = 2
"""Heading levels used by the page itself: session title and speaker."""


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return url.lower().startswith(SCHEMES)


def prose(text: str) -> str:
    """Render Markdown as HTML."""
    if len(text) > MAX_MARKDOWN:
        return f"<pre><code>{escape(text)}</code></pre>"
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + _TITLE_LEVELS, 6)}"
    rendered: str = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return rendered.rstrip("\n")


def coloured(code: str, language: str) -> str:
    """Render code as HTML, highlighted if the language is known."""
    if len(code) <= MAX_COLOURED and language:
        try:
            lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
        except ClassNotFound:
            pass
        else:
            return highlight(code, lexer, _PLAIN_SPANS)
    return escape(code)


def colours() -> str:
    """Return the style sheet of `coloured`, for a light and a dark page."""
    bright, dark = (
        "\n".join(HtmlFormatter(style=name).get_token_style_defs("pre code"))  # type: ignore[no-untyped-call]  # the stub forgot it
        for name in ("xcode", "github-dark")
    )
    return (
        f"@media (prefers-color-scheme: light) {{\n{bright}\n}}\n"
        f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    )


def _fence(
    _: RendererHTML, tokens: Sequence[Token], index: int, __: OptionsDict, ___: EnvType
) -> str:
    language = tokens[index].info.split(maxsplit=1)[:1]
    code = coloured(tokens[index].content.rstrip("\n"), "".join(language))
    return f"<pre><code>{code}</code></pre>\n"


def _link(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return renderer.renderToken(tokens, index, options, env)


def _make_markdown() -> MarkdownIt:
    markdown = _Markdown("js-default", {"html": False, "linkify": False})
    markdown.disable("image")  # an image becomes a link: the page fetches nothing
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("code_block", _fence)
    markdown.add_render_rule("link_open", _link)
    return markdown


_MARKDOWN = _make_markdown()
_PLAIN_SPANS = HtmlFormatter(nowrap=True)
