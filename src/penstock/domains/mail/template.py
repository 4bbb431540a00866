"""Templates of mails: Jinja2 in a sandbox, within limits, with the CSS of the HTML inlined.

This module and template_sandbox.py are the only ones that call Jinja2 and css-inline. Templates are
rows that never change: a new text is a new version.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import css_inline
import jinja2

from penstock.base.errors import InvalidInput
from penstock.domains.mail.one_line import replace_forbidden
from penstock.domains.mail.template_sandbox import OUTPUT_LENGTH_MAX, Sandbox, budgeted

SOURCE_LENGTH_MAX = 262_144  # Of one part; big HTML templates of newsletters have 100 kB.
COMPILED_MAX = 500  # Templates in memory, each some 50 kB when compiled.

_LANGUAGE = re.compile(r"[a-z]{2,8}(-[a-z0-9]{1,8}){0,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One version of a template in one language, as Jinja2 sources."""

    name: str
    language: str
    version: int
    subject: str
    text: str | None
    html: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The parts of a mail that come from a template."""

    subject: str
    text: str | None
    html: str | None


def normalise_language(tag: str, *, field: str = "language") -> str:
    """Return a language tag in the form of the rows: `de_AT` is `de-at`. Raises InvalidInput."""
    normal = tag.strip().replace("_", "-").lower()
    if not _LANGUAGE.fullmatch(normal):
        raise InvalidInput(field, "is not a language tag such as de or de-AT")
    return normal


def languages_to_try(language: str | None, *, default: str) -> tuple[str, ...]:
    """Return the languages in which to look for a template, the best first: de-at, de, en."""
    tried: dict[str, None] = {}
    tag = "" if language is None else normalise_language(language)
    while tag:
        tried[tag] = None
        tag = tag.rpartition("-")[0]
    tried[normalise_language(default)] = None
    return tuple(tried)


class TemplateRenderer:
    """Renders templates, and keeps the compiled ones by name, language and version."""

    __slots__ = ("_compiled", "_escaping", "_inliner", "_plain")

    def __init__(self) -> None:
        self._plain = Sandbox(autoescape=False)
        self._escaping = Sandbox(autoescape=True)
        self._inliner = css_inline.CSSInliner(
            load_remote_stylesheets=False,  # Neither the network nor a file is read.
            keep_at_rules=True,  # Rules for small screens cannot be inlined.
        )
        self._compiled: OrderedDict[tuple[str, str, int], _Compiled] = OrderedDict()

    def check(self, template: Template) -> None:
        """Raise InvalidInput, with the part and the line, for sources that do not compile."""
        self._compile(template)

    def render(self, template: Template, variables: Mapping[str, object]) -> Rendered:
        """Fill in a template; raises InvalidInput, which names a variable that is missing."""
        compiled = self._find(template)
        html = None
        if compiled.html is not None:
            html = self._inline(_render("html", compiled.html, variables))
        return Rendered(
            subject=_render("subject", compiled.subject, variables).strip(),
            text=None if compiled.text is None else _render("text", compiled.text, variables),
            html=html,
        )

    def _find(self, template: Template) -> "_Compiled":
        key = (template.name, template.language, template.version)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(template)
            if len(self._compiled) > COMPILED_MAX:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(key)
        return compiled

    def _compile(self, template: Template) -> "_Compiled":
        if template.text is None and template.html is None:
            raise InvalidInput("text", "is missing, and there is no html")
        return _Compiled(
            subject=_compile("subject", template.subject, self._plain),
            text=None if template.text is None else _compile("text", template.text, self._plain),
            html=None if template.html is None else _compile("html", template.html, self._escaping),
        )

    def _inline(self, html: str) -> str:
        if "<style" not in html.lower():
            return html  # css-inline would only write the same document in another form.
        try:
            return self._inliner.inline(html)
        except css_inline.InlineError as refused:
            raise InvalidInput("html", f"has CSS that cannot be inlined: {refused}") from refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    subject: jinja2.Template
    text: jinja2.Template | None
    html: jinja2.Template | None


# ------------------------------------------------------------------------------ compile and render


def _compile(part: str, source: str, sandbox: Sandbox) -> jinja2.Template:
    if len(source) > SOURCE_LENGTH_MAX:
        raise InvalidInput(part, f"is over {SOURCE_LENGTH_MAX} characters")
    try:
        return sandbox.compile_bounded(source)
    except jinja2.TemplateSyntaxError as refused:
        reason = replace_forbidden(refused.message or "is not a template")
        raise InvalidInput(part, f"line {refused.lineno}: {reason}") from refused
    except (SyntaxError, RecursionError) as refused:
        # Jinja2 compiles to Python, which allows 20 blocks in each other.
        raise InvalidInput(part, "has too many blocks in each other") from refused


def _render(part: str, template: jinja2.Template, variables: Mapping[str, object]) -> str:
    pieces: list[str] = []
    length = 0
    try:
        with budgeted():
            for piece in template.generate(variables):
                length += len(piece)
                if length > OUTPUT_LENGTH_MAX:
                    raise InvalidInput(part, f"becomes longer than {OUTPUT_LENGTH_MAX} characters")
                pieces.append(piece)
    except jinja2.UndefinedError as refused:
        reason = replace_forbidden(str(refused))
        raise InvalidInput("variables", f"{reason}, and {part} needs it") from refused
    except _FAILURES as refused:
        raise InvalidInput(part, replace_forbidden(f"cannot be rendered: {refused}")) from refused
    return "".join(pieces)


# What an expression of a template can raise, besides the errors of Jinja2 itself.
_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
