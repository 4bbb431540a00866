"""Which events a subscription wants: in Python and, which is what counts, in PostgreSQL."""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.match import (
    CONDITIONS_MAX,
    check_pattern,
    check_type,
    compile_filter,
    decode_filter,
)
from penstock.postgres.embedded import Server
from penstock.postgres.pool import Connection, Pool, connect
from tests.domains.webhooks.match_oracle import matches, patterns_for

# The same examples each time, so that a build does not fail by chance. To search further, say how
# many; then they are new ones each time, and a failure prints how to repeat it.
EXAMPLES = os.environ.get("PENSTOCK_MODEL_EXAMPLES")
as_often_as_asked = settings(
    max_examples=int(EXAMPLES or 500),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
encode = msgspec.json.Encoder(decimal_format="number").encode


@pytest.fixture(scope="module")
async def postgres(server: Server) -> AsyncGenerator[Connection]:
    """A connection for predicates, which touch no table and need no database of their own."""
    connection = await connect(server.dsn)
    yield connection
    await connection.close()


# ----------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    "event_type",
    ["order", "order.paid", "Order_2.paid-EU", ".".join("abcdefghij"), "a" * 255, "-", "_"],
)
def test_a_type_is_words_joined_by_dots(event_type: str) -> None:
    check_type(event_type)
    check_pattern(event_type)


@pytest.mark.parametrize(
    "event_type",
    ["", ".", "order.", ".paid", "a..b", "a b", "ä", "a\n", "a" * 256, ".".join("abcdefghijk")],
)
def test_anything_else_is_neither_type_nor_pattern(event_type: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_type(event_type)
    with pytest.raises(InvalidInput):
        check_pattern(event_type)

    assert caught.value.field == "type"


@pytest.mark.parametrize("pattern", ["*", "order.*", ".".join("abcdefghi") + ".*"])
def test_a_wildcard_is_valid_at_the_end_of_a_pattern_and_not_in_a_type(pattern: str) -> None:
    check_pattern(pattern)

    with pytest.raises(InvalidInput):
        check_type(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["**", "*.paid", "a.*.b", "order*", "order.**", ".*", "*.*", ".".join("abcdefghij") + ".*"],
)
def test_a_wildcard_elsewhere_is_refused(pattern: str) -> None:
    """Also not where it could never match anything: nobody means that."""
    with pytest.raises(InvalidInput) as caught:
        check_pattern(pattern, "patterns[0]")

    assert caught.value.field == "patterns[0]"


def test_the_patterns_for_a_type_are_itself_its_beginnings_and_all() -> None:
    assert patterns_for("order") == ["order", "*"]
    assert patterns_for("order.paid.eu") == ["order.paid.eu", "order.paid.*", "order.*", "*"]


@pytest.mark.parametrize("event_type", ["order", "order.paid.eu", ".".join("abcdefghij"), "-._"])
async def test_the_database_looks_up_the_same_patterns(db: Pool, event_type: str) -> None:
    async with db.acquire() as connection:
        found = await connection.fetchval("SELECT penstock.webhook_patterns($1)", event_type)

    assert sorted(found) == sorted(patterns_for(event_type))


some_types = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=4).map(".".join)


@given(event_type=some_types, pattern=st.just("*") | some_types | some_types.map("{}.*".format))
def test_a_pattern_is_among_them_exactly_if_it_matches(event_type: str, pattern: str) -> None:
    is_match = pattern in ("*", event_type) or (
        pattern.endswith("*") and event_type.startswith(pattern.removesuffix("*"))
    )

    assert (pattern in patterns_for(event_type)) == is_match


# ----------------------------------------------------------------------- filters, case by case

DATA = decode_filter("""{
    "kind": "invoice", "amount": 100.0, "paid": true, "note": null, "tags": ["new", 7, null, [1]],
    "customer": {"country": "DE", "score": 12345678901234567890},
    "a.b": {"c": 1}, "any": 1, "x/y~z": 2, "~1": 4, "": 3, "lines": [{"sku": "s"}]
}""")

CASES: list[tuple[str, bool]] = [
    ("{}", True),
    # A value alone means equality; the type counts, and a number's digits do not.
    ('{"kind": "invoice"}', True),
    ('{"kind": "Invoice"}', False),
    ('{"amount": 100}', True),
    ('{"amount": 1e2}', True),
    ('{"amount": "100"}', False),
    ('{"amount": 100.0000000000000000000001}', False),
    ('{"paid": true}', True),
    ('{"paid": 1}', False),
    ('{"paid": "true"}', False),
    ('{"note": null}', True),
    ('{"kind": null}', False),
    ('{"missing": null}', False),
    ('{"tags": "new"}', False),
    ('{"customer": "DE"}', False),
    # Paths lead through objects only.
    ('{"customer.country": "DE"}', True),
    ('{"customer.country.name": "DE"}', False),
    ('{"lines.sku": "s"}', False),
    ('{"tags.0": "new"}', False),
    ('{"/customer/country": "DE"}', True),
    ('{"/a.b/c": 1}', True),
    ('{"a.b.c": 1}', False),
    ('{"/any": 1}', True),
    ('{"/x~1y~0z": 2}', True),
    ('{"/~01": 4}', True),
    ('{"/": 3}', True),
    # Large numbers keep their digits.
    ('{"customer.score": 12345678901234567890}', True),
    ('{"customer.score": 12345678901234567891}', False),
    ('{"customer.score": {"lt": 12345678901234567891}}', True),
    # Order, among numbers and among texts.
    ('{"amount": {"gte": 100, "lt": 100.5}}', True),
    ('{"amount": {"gt": 100}}', False),
    ('{"amount": {"lte": -5}}', False),
    ('{"amount": {"gt": "1"}}', False),
    ('{"kind": {"gt": "invoic", "lt": "invoicf"}}', True),
    ('{"note": {"lte": 0}}', False),
    ('{"tags": {"gt": 0}}', False),
    # Sets.
    ('{"customer.country": {"in": ["AT", "DE"]}}', True),
    ('{"customer.country": {"in": [1, null]}}', False),
    ('{"note": {"in": [1, null]}}', True),
    ('{"customer.country": {"nin": ["AT", "DE"]}}', False),
    ('{"missing": {"nin": ["AT"]}}', True),
    # What is not equal may be of another type, or missing.
    ('{"kind": {"ne": "invoice"}}', False),
    ('{"kind": {"ne": "order"}}', True),
    ('{"kind": {"ne": 1}}', True),
    ('{"missing": {"ne": "order"}}', True),
    ('{"customer": {"ne": "order"}}', True),
    ('{"note": {"ne": null}}', False),
    # Presence: null is a value.
    ('{"note": {"exists": true}}', True),
    ('{"missing": {"exists": true}}', False),
    ('{"missing": {"exists": false}}', True),
    ('{"customer": {"exists": true}}', True),
    ('{"kind.x": {"exists": false}}', True),
    # Beginnings of texts.
    ('{"kind": {"starts_with": "inv"}}', True),
    ('{"kind": {"starts_with": "nv"}}', False),
    ('{"kind": {"starts_with": ""}}', True),
    ('{"amount": {"starts_with": "1"}}', False),
    ('{"tags": {"starts_with": "n"}}', False),
    # Elements of arrays.
    ('{"tags": {"contains": "new"}}', True),
    ('{"tags": {"contains": 7.0}}', True),
    ('{"tags": {"contains": null}}', True),
    ('{"tags": {"contains": 1}}', False),
    ('{"kind": {"contains": "inv"}}', False),
    ('{"kind": {"contains": "invoice"}}', False),
    # Together. What is unknown to the database is false here, and its opposite true.
    ('{"any": [{"kind": "order"}, {"amount": 100}]}', True),
    ('{"any": [{"kind": "order"}, {"missing": 1}]}', False),
    ('{"all": [{"kind": "invoice"}, {"amount": 100}]}', True),
    ('{"all": [{"kind": "invoice"}, {"missing": 1}]}', False),
    ('{"not": {"missing": 1}}', True),
    ('{"not": {"amount": {"gt": "text"}}}', True),
    ('{"not": {"not": {"missing": {"gt": 1}}}}', False),
    ('{"not": {"kind": "invoice", "amount": 1}}', True),
    ('{"kind": "invoice", "not": {"amount": 100}}', False),
]


@pytest.mark.parametrize(("text", "is_match"), CASES, ids=[text for text, _ in CASES])
async def test_a_filter_lets_pass(postgres: Connection, text: str, is_match: bool) -> None:
    given_filter = decode_filter(text)

    assert matches(given_filter, DATA) == is_match
    assert await in_database(postgres, compile_filter(given_filter), encode(DATA)) == is_match


@pytest.mark.parametrize("data", ["[]", "1", '"kind"', "null", '[{"kind": "invoice"}]'])
async def test_data_that_is_no_object_has_no_fields(postgres: Connection, data: str) -> None:
    for text, is_match in [('{"kind": "invoice"}', False), ('{"kind": {"exists": false}}', True)]:
        given_filter = decode_filter(text)

        assert matches(given_filter, decode_filter(data)) == is_match
        assert await in_database(postgres, compile_filter(given_filter), data.encode()) == is_match


async def in_database(db: Connection, path: str, data: bytes) -> bool:
    """Run a predicate in both ways; a null from either would be a third answer."""
    operator = await db.fetchval(
        "SELECT $1::text::jsonb @@ $2::text::jsonpath", data.decode(), path
    )
    function = await db.fetchval(
        "SELECT jsonb_path_match($1::text::jsonb, $2::text::jsonpath)", data.decode(), path
    )
    assert operator is function
    assert isinstance(operator, bool)
    return operator


# ------------------------------------------------------------- filters, against the database

NAMES = ["a", "b", "any", "x.y", "/", ""]
NUMBERS = [
    *("0", "-0", "0.0", "0E-10", "1", "1.0", "-1", "0.1", "0.10", "-1.5", "1e2", "100", "1E-7"),
    *("12345678901234567890", "12345678901234567891", "9007199254740993", "9007199254740992.0"),
    *("1e400", "1e-400"),
]
numbers = st.sampled_from(NUMBERS).map(Decimal) | st.decimals(-10, 10, allow_nan=False, places=2)
texts = st.sampled_from(
    ["", "a", "ab", "b", "1", "true", "null", "é", "e\u0301", "\uffee", "😀", '"', "\\", "\n\x7f"]
) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
scalars = st.none() | st.booleans() | numbers | texts
some_data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=12,
)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)


def pointer(path: list[str]) -> str:
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def key_of(path: list[str]) -> str:
    """Write a path with dots where that is possible."""
    is_plain = all(name and "." not in name and "/" not in name for name in path)
    return ".".join(path) if is_plain and path != ["any"] else pointer(path)


tests = scalars | st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "eq": scalars,
            "ne": scalars,
            "gt": numbers | texts,
            "gte": numbers | texts,
            "lt": numbers | texts,
            "lte": numbers | texts,
            "in": st.lists(scalars, min_size=1, max_size=3),
            "nin": st.lists(scalars, min_size=1, max_size=3),
            "exists": st.booleans(),
            "starts_with": texts,
            "contains": scalars,
        },
    ).map(lambda operators: dict(list(operators.items())[:2]) or {"exists": True}),
    st.dictionaries(st.sampled_from(["eq", "gt", "lte"]), texts, min_size=1, max_size=1),
)
fields = st.dictionaries(paths.map(key_of), tests, min_size=1, max_size=2)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    return st.one_of(
        st.fixed_dictionaries({"any": some}),
        st.fixed_dictionaries({"all": some}),
        st.fixed_dictionaries({"not": inner}),
        st.tuples(fields, st.fixed_dictionaries({"not": inner})).map(lambda two: two[0] | two[1]),
    )


def levels(count: int) -> st.SearchStrategy[Any]:
    return fields if count == 1 else fields | nested(levels(count - 1))


some_filters = levels(4)


@contextmanager
def asking(dsn: str) -> Generator[Any]:
    """Give a function that runs a predicate over JSON in the database."""
    with asyncio.Runner() as runner:
        db = runner.run(connect(dsn))
        yield lambda path, data: runner.run(in_database(db, path, data))
        runner.run(db.close())


@pytest.mark.timeout(600 if EXAMPLES is None else 86_400)
def test_the_database_decides_as_python_does(server: Server) -> None:
    with asking(server.dsn) as ask:

        @as_often_as_asked
        @given(given_filter=some_filters, data=some_data)
        def compare(given_filter: Any, data: Any) -> None:
            assert ask(compile_filter(given_filter), encode(data)) == matches(given_filter, data)

        compare()


@pytest.mark.timeout(600 if EXAMPLES is None else 86_400)
def test_one_condition_decides_alike_for_data_that_has_its_field(server: Server) -> None:
    """Random data seldom has the field; here it always does, so that the operators are met."""
    with asking(server.dsn) as ask:

        @as_often_as_asked
        @given(path=paths, test=tests, value=scalars | st.lists(scalars, max_size=3))
        def compare(path: list[str], test: Any, value: Any) -> None:
            given_filter = {pointer(path): test}
            data = value
            for name in reversed(path):
                data = {name: data}
            assert ask(compile_filter(given_filter), encode(data)) == matches(given_filter, data)

        compare()


all_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ESCAPE = '") || exists($) || exists($ ? (@ == "'


@pytest.mark.timeout(600 if EXAMPLES is None else 86_400)
def test_no_text_ends_the_literal_that_contains_it(server: Server) -> None:
    """A subscriber writes filters; what they write must stay a value, as a name and as a text."""
    with asking(server.dsn) as ask:

        @as_often_as_asked
        @given(name=all_texts, text=all_texts)
        @example(ESCAPE, ESCAPE)
        @example("\\", '\\"')
        @example("'; DROP TABLE item; --", "$1 %s {} \\u0000")
        def compare(name: str, text: str) -> None:
            path = compile_filter({pointer([name]): {"in": [text], "starts_with": text}})

            assert ask(path, encode({name: text}))
            assert not ask(path, encode({name: f"x{text}"}))
            assert not ask(path, encode({f"{name}x": text}))
            assert path.isascii()

        compare()


# --------------------------------------------------------------------------- what is refused


def nest(depth: int) -> dict[str, object]:
    inner: dict[str, object] = {"a": 1}
    for _ in range(depth - 1):
        inner = {"not": inner}
    return inner


def conditions(count: int) -> dict[str, object]:
    return {"any": [{"a": {"gt": number, "lt": number + 1}} for number in range(count // 2)]}


@pytest.mark.parametrize(
    ("given_filter", "field", "reason"),
    [
        ([], "filter", "must be an object"),
        ("kind", "filter", "must be an object"),
        (None, "filter", "must be an object"),
        ({"any": {}}, "filter.any", "must be a list of filters, and not empty"),
        ({"any": []}, "filter.any", "must be a list of filters, and not empty"),
        ({"all": [{"a": 1}, 1]}, "filter.all[1]", "must be an object"),
        ({"all": [{}]}, "filter.all[0]", "must not be empty"),
        ({"not": {}}, "filter.not", "must not be empty"),
        ({"not": [{"a": 1}]}, "filter.not", "must be an object"),
        ({"not": {"any": [{"a": {"gt": None}}]}}, "filter.not.any[0].a.gt", "must be a number or"),
        ({"": 1}, "filter.", "has an empty part"),
        ({"a..b": 1}, "filter.a..b", "has an empty part"),
        ({"/a~2": 1}, "filter./a~2", "has a ~ that is not ~0 or ~1"),
        ({"a\0": 1}, "filter.a\0", "holds a NUL character"),
        ({".".join("a" * 65): 1}, f"filter.{'.'.join('a' * 65):.60}", "has more than 64 parts"),
        ({"a": []}, "filter.a", "is a list"),
        ({"a": {}}, "filter.a", "must not be empty"),
        ({"a": {"b": 1}}, "filter.a.b", "is not an operator"),
        ({"a": {"$gt": 1}}, "filter.a.$gt", "is not an operator"),
        ({"a": {"gt": True}}, "filter.a.gt", "must be a number or a text"),
        ({"a": {"eq": {}}}, "filter.a.eq", "must be a text, a number, true, false or null"),
        ({"a": {"contains": [1]}}, "filter.a.contains", "must be a text, a number"),
        ({"a": {"in": []}}, "filter.a.in", "must be a list of 1 to 100 values"),
        ({"a": {"in": "ab"}}, "filter.a.in", "must be a list of 1 to 100 values"),
        ({"a": {"in": [0] * 101}}, "filter.a.in", "must be a list of 1 to 100 values"),
        ({"a": {"nin": [1, []]}}, "filter.a.nin[1]", "must be a text, a number"),
        ({"a": {"exists": 1}}, "filter.a.exists", "must be true or false"),
        ({"a": {"starts_with": 1}}, "filter.a.starts_with", "must be a text"),
        ({"a": {"starts_with": "\0"}}, "filter.a.starts_with", "holds a NUL character"),
        ({"a": "x\0"}, "filter.a", "holds a NUL character"),
        ({"a": float("nan")}, "filter.a", "is no finite number"),
        ({"a": Decimal("Infinity")}, "filter.a", "is no finite number"),
        ({"a": Decimal("1e1000")}, "filter.a", "is a number of more than 1,000 digits"),
        ({"a": Decimal("1e-1000")}, "filter.a", "is a number of more than 1,000 digits"),
        ({"a": 10**1000}, "filter.a", "is a number of more than 1,000 digits"),
        ({"a": "\ud800"}, "filter", "is not JSON"),
        ({"a": object}, "filter", "is not JSON"),
        ({"a": "x" * 8200}, "filter", "has more than 8,192 bytes"),
        (nest(6), "filter.not.not.not.not.not", "is nested deeper than 5 filters"),
        (conditions(CONDITIONS_MAX + 2), "filter", "has more than 50 conditions"),
    ],
    ids=lambda given: f"{given!a:.40}",
)
def test_a_wrong_filter_is_refused_with_the_place_and_the_reason(
    given_filter: object, field: str, reason: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        compile_filter(given_filter)

    assert caught.value.field == field
    assert caught.value.reason.startswith(reason)


def test_a_refused_filter_is_refused_by_python_too() -> None:
    with pytest.raises(InvalidInput):
        matches({"a": {"b": 1}}, {})


async def test_the_largest_filters_run(postgres: Connection) -> None:
    """The limits are ours; the database must not have narrower ones."""
    deep_path = ".".join("a" * 64)
    largest: list[object] = [
        nest(5),
        conditions(CONDITIONS_MAX),
        {"a": {"in": list(range(100)), "nin": [f"text {number}" for number in range(100)]}},
        {deep_path: Decimal("-1e999")},
        {"a": Decimal("9" * 1000)},
        {"a": "x" * 8000},
    ]

    for given_filter in largest:
        expected = matches(given_filter, {"a": 1})
        assert await in_database(postgres, compile_filter(given_filter), b'{"a": 1}') == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{'a': 1}", '{"a": NaN}', '{"a": Infinity}', '{"a": 1e99999999999999999999}'),
        "[" * 100_000,
    ],
    ids=lambda text: f"{text:.30}",
)
def test_what_is_not_json_is_no_filter(text: str) -> None:
    with pytest.raises(InvalidInput):
        decode_filter(text)


def test_a_duplicate_key_is_refused() -> None:
    """The first would be dropped without a word, and more events sent than were asked for."""
    with pytest.raises(InvalidInput, match="same key twice"):
        decode_filter('{"amount": {"gt": 1}, "amount": {"lt": 5}}')


def test_floats_are_compared_by_the_digits_that_people_see() -> None:
    """A caller that decoded with floats gets what it wrote, not the nearest binary fraction."""
    assert matches({"a": 0.1}, {"a": Decimal("0.1")})
    assert matches({"a": Decimal("0.1")}, {"a": 0.1})
    assert compile_filter({"a": 0.1}) == compile_filter({"a": Decimal("0.1")})
