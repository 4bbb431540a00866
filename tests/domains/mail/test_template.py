"""Templates: what they may do, what they may not, and how a mistake is named."""

from pathlib import Path
from typing import Any

import jinja2
import pytest

from penstock.base.errors import InvalidInput
from penstock.domains.mail.template import (
    COMPILED_MAX,
    OUTPUT_LENGTH_MAX,
    SOURCE_LENGTH_MAX,
    Template,
    TemplateRenderer,
    languages_to_try,
    normalise_language,
)
from penstock.domains.mail.template_sandbox import (
    MADE_LENGTH_MAX,
    MEASURED_MAX,
    RANGE_MAX,
    STEPS_MAX,
    WIDTH_MAX,
)


@pytest.fixture(scope="module")
def renderer() -> TemplateRenderer:
    return TemplateRenderer()


def a_template(**changes: Any) -> Template:
    given: dict[str, Any] = {
        "name": "welcome",
        "language": "en",
        "version": 1,
        "subject": "Welcome",
        "text": "Hello",
        "html": None,
    }
    return Template(**(given | changes))


def render_text(source: str, **variables: object) -> str:
    rendered = TemplateRenderer().render(a_template(text=source), variables)
    assert rendered.text is not None
    return rendered.text


def render_html(source: str, **variables: object) -> str:
    rendered = TemplateRenderer().render(a_template(html=source), variables)
    assert rendered.html is not None
    return rendered.html


def refusal(source: str, **variables: object) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        render_text(source, **variables)
    return refused.value


def test_all_parts_are_rendered_with_the_same_variables(renderer: TemplateRenderer) -> None:
    template = a_template(
        subject="Order {{ order.id }}\n", text="Dear {{ name }}", html="<p>Dear {{ name }}</p>"
    )

    rendered = renderer.render(template, {"name": "Ada & Eve", "order": {"id": 4711}})

    assert rendered.subject == "Order 4711"
    assert rendered.text == "Dear Ada & Eve"
    assert rendered.html == "<p>Dear Ada &amp; Eve</p>"


def test_html_escapes_what_variables_contain() -> None:
    """A name must not become a script or a link in somebody's mail."""
    attack = "<script>alert('x')</script>"

    assert "<script>" not in render_html("<p title='{{ name }}'>{{ name }}</p>", name=attack)
    assert render_text("{{ name }}", name=attack) == attack


def test_loops_conditions_and_macros_work() -> None:
    source = (
        "{% macro row(item) %}{{ item.name }}: {{ item.price * item.count }};{% endmacro %}"
        "{% for item in items if item.count %}{{ loop.index }}/{{ loop.length }} {{ row(item) }}"
        "{% else %}nothing{% endfor %}"
    )
    items = [{"name": "tea", "price": 3, "count": 2}, {"name": "rice", "price": 5, "count": 0}]

    assert render_text(source, items=items) == "1/1 tea: 6;"
    assert render_text(source, items=[]) == "nothing"


# ------------------------------------------------------------------------------ missing variables


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ surname }}", "surname"),
        ("{{ user.surname }}", "surname"),
        ("{{ user['surname'] }}", "surname"),
        ("{% if surname %}x{% endif %}", "surname"),
        ("{% for x in surname %}x{% endfor %}", "surname"),
        ("{{ surname.first }}", "surname"),
        ("{{ surname | upper }}", "surname"),
        ("{{ surname() }}", "surname"),
    ],
)
def test_a_missing_variable_is_named(source: str, name: str) -> None:
    """An empty place in a mail is noticed by the recipient, and by nobody else."""
    refused = refusal(source, user={"name": "Ada"})

    assert refused.field == "variables"
    assert f"'{name}'" in refused.reason


@pytest.mark.parametrize("part", ["subject", "text", "html"])
def test_a_missing_variable_names_the_part(part: str) -> None:
    with pytest.raises(InvalidInput, match=f"{part} needs it"):
        TemplateRenderer().render(a_template(**{part: "{{ missing }}"}), {})


def test_a_default_takes_the_place_of_a_missing_variable() -> None:
    assert render_text("{{ name | default('you') }}") == "you"
    assert render_text("{% if name is defined %}{{ name }}{% endif %}") == ""


# -------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("line one\n{% if %}", "line 2"),
        ("{{ name", "line 1"),
        ("{% unknown %}", "line 1"),
        ("{{ name | no_such_filter }}", "no_such_filter"),
        ("{% for a in b recursive %}{% endfor %}", "recursive"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "too many blocks"),
        ("{{ " + "(" * 2_000 + ")" * 2_000 + " }}", ""),
        ("x" * (SOURCE_LENGTH_MAX + 1), "characters"),
    ],
)
@pytest.mark.parametrize("part", ["subject", "text", "html"])
def test_a_source_that_does_not_compile_is_refused(part: str, source: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        TemplateRenderer().check(a_template(**{part: source}))

    assert refused.value.field == part
    assert reason in refused.value.reason


def test_a_template_needs_text_or_html() -> None:
    with pytest.raises(InvalidInput, match="text"):
        TemplateRenderer().check(a_template(text=None))


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ 1 + 'a' }}",
        "{{ [1, 2][0:'x'] }}",
        "{{ '{0.x}'.format(1) }}",
        "{{ '%d' % 'x' }}",
        "{{ none() }}",
        "{{ 10.0 ** 60 ** 60 }}",
    ],
)
def test_an_expression_that_fails_is_refused(source: str) -> None:
    assert refusal(source).field in ("text", "variables")


def test_every_error_of_jinja2_is_translated() -> None:
    errors = [
        each
        for each in vars(jinja2.exceptions).values()
        if isinstance(each, type) and issubclass(each, Exception)
    ]

    assert len(errors) >= 9
    assert all(issubclass(each, jinja2.TemplateError) for each in errors)


# ------------------------------------------------------------------------------------ the sandbox


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'] }}",
        "{{ ''|attr('__class__') }}",
        "{{ range.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ items.append(1) }}",
        "{{ data.clear() }}",
        "{% set x = items.pop() %}",
        "{{ lipsum() }}",
    ],
)
def test_a_template_reaches_only_its_values(source: str) -> None:
    items, data = [1], {"a": 1}

    refusal(source, items=items, data=data)

    assert (items, data) == ([1], {"a": 1})


@pytest.mark.parametrize(
    "source",
    [
        "{% include '/etc/passwd' %}",
        "{% include 'a' ignore missing %}",
        "{% extends 'base' %}",
        "{% import 'a' as a %}",
        "{% from 'a' import b %}",
    ],
)
def test_a_template_uses_no_other_one(source: str) -> None:
    assert "another" in refusal(source).reason


# ---------------------------------------------------------------------------------------- limits

TURNS = "{% for a in range(9000) %}{% for b in range(9000) %}{% endfor %}{% endfor %}"
DOUBLING = (
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{% for a in range(9000) %}" + "x" * 1_000 + "{% endfor %}", str(OUTPUT_LENGTH_MAX)),
        ("{{ range(99999999999) | list }}", str(RANGE_MAX)),
        (TURNS, str(STEPS_MAX)),
        (DOUBLING, str(STEPS_MAX)),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ 'x' * 999999999 }}", "too long"),
        ("{{ 999999999 * 'x' }}", "too long"),
        ("{{ [1] * 999999999 }}", "too long"),
        ("{{ 9 ** 999999999 }}", "power"),
        ("{{ 9 ** 64 ** 64 ** 64 }}", "too large"),
        ("{% set a = 9 ** 60 %}{{ a * a * a * a }}", "too large"),
    ],
)
def test_a_runaway_template_is_stopped(source: str, reason: str) -> None:
    """A mistake in a template must not take the process that accepts mails with it."""
    refused = refusal(source)

    assert refused.field == "text"
    assert reason in refused.reason


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("x | center(10**9)", "center"),
        ("x | center(width=10**9)", "center"),
        ("x | indent(10**9, first=true)", "indent"),
        ("[1] | batch(10**9, 'x') | list", "batch"),
        ("[1] | slice(10**9) | list", "slice"),
        ("1.5 | round(10**9, 'ceil')", "round"),
        ("[1] | tojson(indent=10**9)", "tojson"),
        ("[x] | map('center', 10**9) | list", "center"),
        ("x.center(10**9)", "center"),
        ("x.ljust(10**9)", "ljust"),
        ("x.rjust(10**9)", "rjust"),
        ("x.zfill(10**9)", "zfill"),
        ("x['zfill'](10**9)", "zfill"),
        ("'\t'.expandtabs(10**9)", "expandtabs"),
        ("(1).to_bytes(10**9, 'big')", "to_bytes"),
        ("'%1000000000d' | format(1)", "format"),
        ("'%*d' | format(10**9, 1)", "format"),
        ("'%.1000000000f' % 1", "format"),
        ("'{:1000000000d}'.format(1)", "format"),
        ("'{:{w}d}'.format(1, w=10**9)", "format"),
        ("'{a:01000000000d}'.format_map({'a': 1})", "format"),
    ],
)
def test_a_width_above_the_limit_is_refused_with_its_filter(expression: str, name: str) -> None:
    """Padding to 10^9 characters takes the memory of the process, or its time."""
    refused = refusal(f"{{{{ {expression} }}}}", x="Ada")

    assert refused.field == "text"
    assert f"{name} with a " in refused.reason


LONG = "{% set a = 'x' * 1000000 %}"


@pytest.mark.parametrize(
    "source",
    [
        LONG + "{{ a | replace('x', a) }}",
        LONG + "{{ a.replace('x', a) }}",
        LONG + "{{ range(9000) | join(a) }}",
        LONG + "{{ range(9000) | map('string') | join(a) }}",
        LONG + "{{ a.join(range(9000) | map('string')) }}",
        LONG + "{{ a.translate({120: a}) }}",
        LONG + "{{ '%s' * 1000 % ([a] * 1000) }}",
        LONG + "{{ ('%s' * 1000) | format(*([a] * 1000)) }}",
        LONG + "{{ ('{0}' * 1000).format(a) }}",
        LONG + "{% set b = a ~ a %}" + "{% set b = b ~ b %}" * 30 + "{{ b | length }}",
        LONG + "{% set b = a + a %}" + "{% set b = b + b %}" * 30 + "{{ b | length }}",
        LONG + "{{ (" + "a ~ " * 1_000 + "a) | length }}",
        LONG + "{% set b %}" + "{{ a }}" * 1_000 + "{% endset %}{{ b | length }}",
        LONG + "{% macro m() %}" + "{{ a }}" * 1_000 + "{% endmacro %}{{ m() | length }}",
        LONG + "{{ range(9000) | map('replace', 0, a) | list | length }}",
        LONG + "{% set n = namespace(l=[]) %}{% for i in range(9000) %}"
        "{% set b %}{{ a }}{{ i }}{% endset %}{% set n.l = n.l + [b] %}{% endfor %}",
        "{% set b = [1] %}" + "{% set b = [b, b] %}" * 40 + "{{ b }}",
        "{% set b = [1] %}" + "{% set b = {0: b, 1: b} %}" * 40 + "{{ b }}",
        "{% set b = [1] %}" + "{% set b = dict(x=b, y=b) %}" * 40 + "{{ b }}",
        "{% set b = [1] %}" + "{% set b = (b, b) %}" * 40 + "{{ b == b }}",
    ],
)
def test_a_text_that_grows_on_the_way_is_refused(source: str) -> None:
    """What is cut at the end must not have taken the memory of the process before."""
    refused = refusal(source)

    assert refused.field == "text"
    limits = (str(MADE_LENGTH_MAX), str(MEASURED_MAX), "too long")
    assert any(limit in refused.reason for limit in limits)


def test_a_namespace_shows_nothing_of_its_values() -> None:
    """Namespaces that refer to each other would be a text without end."""
    source = "{% set n = namespace() %}" + "{% set n = namespace(a=n, b=n) %}" * 40 + "{{ n }}"

    assert render_text(source) == "<Namespace>"


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("'Ada' | center(9)", "   Ada   "),
        (f"('Ada' | center({WIDTH_MAX})) | length", str(WIDTH_MAX)),
        ("'a\nb' | indent(2, first=true)", "  a\n  b"),
        ("'%-6s|%06.2f' | format('Ada', 3.14159)", "Ada   |003.14"),
        ("'%s %s' % ('a', 'b')", "a b"),
        ("'100 %%' % ()", "100 %"),
        ("7 % 4", "3"),
        ("'{:>6}|{x:.2f}'.format('Ada', x=3.14159)", "   Ada|3.14"),
        ("[1, 2, 3] | batch(2, 'x') | list", "[[1, 2], [3, 'x']]"),
        ("[1, 2] | map('string') | join(', ')", "1, 2"),
        ("', '.join(['a', 'b'])", "a, b"),
        ("'a-b' | replace('-', '+')", "a+b"),
        ("'a-b'.replace('-', '+').upper()", "A+B"),
        ("'a' ~ 1 ~ 'b'", "a1b"),
        ("[1] + [2]", "[1, 2]"),
        ("1 + 2", "3"),
        ("3.14159 | round(2)", "3.14"),
        ("{'a': [1, (2, 3)]} | tojson", '{"a": [1, [2, 3]]}'),
    ],
)
def test_usual_padding_and_joining_works(expression: str, shown: str) -> None:
    assert render_text(f"{{{{ {expression} }}}}") == shown


def test_joined_texts_are_escaped_in_html() -> None:
    source = "{{ '<b>' ~ name ~ ('<i>' | safe) }}{% set x = name ~ '' %}{{ x }}"

    assert render_html(source, name="<a>") == "&lt;b&gt;&lt;a&gt;<i>&lt;a&gt;"


def test_many_small_renderings_share_no_budget() -> None:
    renderer = TemplateRenderer()
    template = a_template(text="{% for a in range(9000) %}x{% endfor %}")

    assert {len(renderer.render(template, {}).text or "") for _ in range(20)} == {9000}


# ------------------------------------------------------------------------------------- the cache


def test_a_new_version_is_another_template(renderer: TemplateRenderer) -> None:
    for version, language in ((1, "en"), (2, "en"), (1, "de")):
        text = f"{language} {version}"
        template = a_template(name="cached", text=text, version=version, language=language)

        assert renderer.render(template, {}).text == text


def test_the_cache_is_bounded() -> None:
    renderer = TemplateRenderer()
    for version in range(COMPILED_MAX + 10):
        renderer.render(a_template(version=version), {})

    assert len(renderer._compiled) == COMPILED_MAX


# ------------------------------------------------------------------------------------------- CSS


def test_css_is_inlined_and_rules_for_small_screens_stay() -> None:
    html = render_html(
        "<html><head><style>p { color: red } @media (max-width: 9px) { p { color: blue } }"
        "</style></head><body><p>{{ name }}</p></body></html>",
        name="<Ada>",
    )

    assert '<p style="color: red;">&lt;Ada&gt;</p>' in html
    assert "@media" in html


def test_html_without_css_stays_as_it_is() -> None:
    source = "<p>Hello<br>you</p>"

    assert render_html(source) == source


def test_no_stylesheet_is_loaded(tmp_path: Path) -> None:
    """A template must not make the server call others or read its files."""
    sheet = tmp_path / "sheet.css"
    sheet.write_text("p { color: green }", encoding="utf-8")

    for link in (sheet.as_uri(), str(sheet), "http://127.0.0.1:9/sheet.css"):
        html = render_html(
            f'<link rel="stylesheet" href="{link}"><style>b {{ color: red }}</style><p>x</p>'
        )

        assert "green" not in html


# ------------------------------------------------------------------------------------- languages


@pytest.mark.parametrize(
    ("language", "tried"),
    [
        ("de-AT", ("de-at", "de", "en")),
        ("de_AT", ("de-at", "de", "en")),
        ("zh-Hant-TW", ("zh-hant-tw", "zh-hant", "zh", "en")),
        ("en-GB", ("en-gb", "en")),
        ("en", ("en",)),
        (None, ("en",)),
    ],
)
def test_a_language_falls_back_to_a_wider_one_and_then_to_the_default(
    language: str | None, tried: tuple[str, ...]
) -> None:
    assert languages_to_try(language, default="en") == tried


@pytest.mark.parametrize("tag", ["", "d", "de-", "-de", "de AT", "de;q=1", "../de", "d" * 99])
def test_a_tag_that_is_no_language_is_refused(tag: str) -> None:
    with pytest.raises(InvalidInput, match="language"):
        normalise_language(tag)
