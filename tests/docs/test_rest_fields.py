"""The fields of request bodies are written by hand, and the page has all that the code decodes."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from penstock.contract.http import Endpoint
from tests.docs.pages import read
from tools.reference.rest import UNTAGGED, all_endpoints

CALENDAR = "docs/howto/slots.md"
# Sections that refer to another page for some fields.
ELSEWHERE = {
    "lanes": "docs/reference/lane-policy.md",
    "outbox": CALENDAR,
    "payments": CALENDAR,
    "slots": CALENDAR,
}


def test_the_fields_of_every_request_body_are_named_in_its_section() -> None:
    """A field that the reference does not name is used by nobody."""
    sections = sections_by_tag()
    missing: dict[str, set[str]] = {}

    for endpoint in all_endpoints():
        tag = endpoint.tag or UNTAGGED
        text = sections[tag] + (read(ELSEWHERE[tag]) if tag in ELSEWHERE else "")
        absent = {field for field in fields_of(endpoint) if not is_named(field, text)}
        if absent:
            missing[f"{endpoint.method} {endpoint.path}"] = absent

    assert missing == {}


def test_the_fields_of_bodies_are_found() -> None:
    """The rule above would hold for no fields: in a body, in a list of them, and in a stream."""
    found = {f"{each.method} {each.path}": fields_of(each) for each in all_endpoints()}

    assert found["POST /keys"] == {"name", "scopes"}
    assert {"opens", "timeZone"} <= found["POST /admin/rate-limit/config"]
    assert {"lane", "payload"} <= found["POST /items/batch"]
    assert "occurred_at" in found["POST /outbox/results"]
    assert sum(map(bool, found.values())) >= 30


def sections_by_tag() -> dict[str, str]:
    """Return the text of each section of the page, by the tag of its endpoints."""
    parts = re.split(r"^## ", read("docs/reference/rest.md"), flags=re.MULTILINE)
    found = [(re.search(r"<!-- generated: (\w+) -->", part), part) for part in parts]
    return {tag[1]: part for tag, part in found if tag is not None}


def is_named(field: str, text: str) -> bool:
    """Return whether a text has a field as code, or as a key of an example in JSON."""
    return f"`{field}`" in text or f'"{field}"' in text


def fields_of(endpoint: Endpoint) -> set[str]:
    """Return the names of all fields that an endpoint takes in a body, at any depth."""
    taken = [each for each, _ in endpoint.streams.values()]
    bodies = taken if endpoint.body_type is None else [endpoint.body_type, *taken]
    return {field for body in bodies for field in _walk(inspect.type_info(body))}


def _walk(info: Any) -> Iterator[str]:
    match info:
        case inspect.StructType():
            for each in info.fields:
                yield each.encode_name
                yield from _walk(each.type)
        case inspect.UnionType():
            for each in info.types:
                yield from _walk(each)
        case inspect.CollectionType():
            yield from _walk(info.item_type)
        case inspect.Metadata():
            yield from _walk(info.type)
        case _:
            pass
