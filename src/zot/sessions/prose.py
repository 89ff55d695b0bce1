"""Renders text of a person or a model as HTML: Markdown, and highlighted code.

The text may be hostile: HTML in it stays text, links lead only to the web, and nothing makes a
browser load anything. Loaded only to write a page, because the libraries are large.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

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
