"""LaTeX formulas as readable text: `\\frac{a}{b} \\leq x^2` becomes `a/b ≤ x²`. Unknown commands
keep their name. A rule for markdown-it finds formulas in a text, between `$`, `$$`, `\\(` or `\\[`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.rules_inline import StateInline

MAX_FORMULA = 2_000
TOKEN = "math"
_PAIRS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))


def _words(text: str) -> list[str]:
    return text.split()


_GREEK = dict(
    zip(
        _words(
            "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi "
            "pi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi "
            "Sigma Upsilon Phi Psi Omega"
        ),
        "αβγδεεζηθικλμνξπρστυφφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        strict=True,
    )
)
_SIGNS = dict(
    zip(
        _words(
            "leq le geq ge neq ne approx equiv sim cong propto times cdot div pm mp ast star circ "
            "infty partial nabla sum prod int oint forall exists in notin ni subset subseteq "
            "supset supseteq cup cap emptyset varnothing to rightarrow leftarrow leftrightarrow "
            "Rightarrow implies Leftarrow iff Leftrightarrow mapsto land wedge lor vee neg lnot "
            "oplus otimes perp parallel angle ldots dots cdots vdots langle rangle lfloor rfloor "
            "lceil rceil mid ell hbar Re Im aleph prime dagger degree bullet ll gg"
        ),
        "≤≤≥≥≠≠≈≡∼≅∝×·÷±∓∗⋆∘∞∂∇∑∏∫∮∀∃∈∉∋⊂⊆⊃⊇∪∩∅∅→→←↔⇒⇒⇐⇔⇔↦∧∧∨∨¬¬⊕⊗⊥∥∠………⋮⟨⟩⌊⌋⌈⌉|ℓℏℜℑℵ′†°•≪≫",
        strict=True,
    )
)
_LETTERS = {"R": "ℝ", "N": "ℕ", "Z": "ℤ", "Q": "ℚ", "C": "ℂ", "P": "ℙ", "E": "𝔼"}
_HIGH = dict(zip("0123456789+-=()nixyabcdekmoptT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱˣʸᵃᵇᶜᵈᵉᵏᵐᵒᵖᵗᵀ", strict=True))
_LOW = dict(zip("0123456789+-=()aeijkmnoprstx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢⱼₖₘₙₒₚᵣₛₜₓ", strict=True))
_DROPPED = frozenset(
    _words("left right big Big bigg Bigg displaystyle textstyle limits nolimits quad qquad")
)
_PLAIN = frozenset(
    _words(
        "text mathrm mathbf mathit mathsf mathcal boldsymbol operatorname textbf textit vec hat "
        "bar tilde overline underline"
    )
)
"""Commands of which only the argument is shown."""
_PART = re.compile(r"\\([A-Za-z]+|.)|([{}^_&~])|(\s+)|(.)", re.DOTALL)


def formula_text(source: str) -> str:
    """Return the formula as one line of text."""
    reader = _Reader(source[:MAX_FORMULA])
    return " ".join(reader.group(closed=False).split())


class _Reader:
    def __init__(self, source: str) -> None:
        self._parts = list(_PART.finditer(source))
        self._at = 0

    def group(self, *, closed: bool = True) -> str:
        """Read up to the closing brace, or to the end."""
        out: list[str] = []
        while self._at < len(self._parts):
            if closed and self._parts[self._at][2] == "}":
                self._at += 1
                break
            out.append(self._one())
        return "".join(out)

    def _one(self) -> str:
        part = self._parts[self._at]
        self._at += 1
        command, sign, blank, letter = part.groups()
        if command is not None:
            return self._command(command)
        if sign == "{":
            return self.group()
        if sign in ("^", "_"):
            return self._script(_HIGH if sign == "^" else _LOW, sign)
        return " " if blank or sign in ("&", "~") else letter or ""

    def _argument(self) -> str:
        while self._at < len(self._parts) and self._parts[self._at][3] is not None:
            self._at += 1
        return self._one() if self._at < len(self._parts) else ""

    def _command(self, name: str) -> str:
        if name in _GREEK or name in _SIGNS:
            return _GREEK.get(name) or _SIGNS[name]
        if name in ("frac", "dfrac", "tfrac"):
            return f"{_bracketed(self._argument())}/{_bracketed(self._argument())}"
        if name == "sqrt":
            return f"√{_bracketed(self._argument())}"
        if name == "mathbb":
            letters = self._argument()
            return "".join(_LETTERS.get(letter, letter) for letter in letters)
        if name in _PLAIN:
            return self._argument()
        if name in ("begin", "end"):
            self._argument()
            return " "
        if name in _DROPPED or name in ",;:! \\":
            return " "
        return f"{name} " if name.isalpha() else name

    def _script(self, letters: dict[str, str], sign: str) -> str:
        text = self._argument().strip()
        if text and all(letter in letters for letter in text):
            return "".join(letters[letter] for letter in text)
        return f"{sign}{text}" if len(text) == 1 else f"{sign}({text})"


def _bracketed(text: str) -> str:
    text = text.strip()
    return text if len(text) == 1 or text.isalnum() else f"({text})"


def math_rule(state: StateInline, silent: bool) -> bool:
    """Find a formula at this place; a rule of markdown-it's inline parser."""
    source, start = state.src, state.pos
    if source[start] not in "$\\":
        return False
    for begin, end in _PAIRS:
        if source.startswith(begin, start):
            close = source.find(end, start + len(begin), start + MAX_FORMULA)
            content = source[start + len(begin) : close] if close > 0 else ""
            if not _is_formula(content, begin, source[close + len(end) : close + len(end) + 1]):
                return False
            if not silent:
                state.push(TOKEN, "", 0).content = content
            state.pos = close + len(end)
            return True
    return False


def _is_formula(content: str, begin: str, following: str) -> bool:
    """Whether this is a formula and not, for example, two prices."""
    if not content.strip():
        return False
    if begin != "$":
        return True
    return not (content[0].isspace() or content[-1].isspace() or following.isdigit())
