"""The API describes itself, from the same table that makes its routes."""

import json
import re
from collections.abc import Iterator
from typing import Any

from httpx import AsyncClient

from penstock import Penstock
from penstock.api import endpoints


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object within a JSON value."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


async def test_every_route_is_described_and_nothing_else(
    admin: AsyncClient, penstock: Penstock
) -> None:
    document = (await admin.get("/openapi.json")).json()

    described = {
        (path, method.upper())
        for path, operations in document["paths"].items()
        for method in operations
    }
    listed = {(each.path, each.method) for each in endpoints(penstock)}
    assert described == listed
    assert len(described) > 25


async def test_the_document_holds_together(shared_admin: AsyncClient) -> None:
    """What a generator of clients stumbles over: dangling references, ids that are not unique."""
    document = (await shared_admin.get("/openapi.json")).json()

    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    for found in walk(document):
        if isinstance(reference := found.get("$ref"), str):
            assert reference.removeprefix("#/components/schemas/") in schemas
    operations = [each for path in document["paths"].values() for each in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            in_path = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", path))
            assert all(each["required"] for each in operation["parameters"] if each["in"] == "path")
            assert "default" in operation["responses"]


async def test_the_types_say_what_is_refused(shared_admin: AsyncClient) -> None:
    document = (await shared_admin.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]

    assert schemas["NewItem"]["required"] == ["lane", "payload"]
    assert schemas["NewItem"]["additionalProperties"] is False
    assert schemas["LaneChange"]["properties"]["lease"] == {"type": "string", "format": "duration"}
    batch = document["paths"]["/items/batch"]["post"]["requestBody"]
    assert batch["content"]["application/json"]["schema"]["maxItems"] == 1_000
    accept = document["paths"]["/items"]["post"]
    assert accept["security"] == [{"key": ["produce"]}]
    assert {each["name"] for each in accept["parameters"]} == {"Idempotency-Key"}
    assert document["paths"]["/health"]["get"]["security"] == []


async def test_the_docs_page_needs_nothing_from_elsewhere(shared_admin: AsyncClient) -> None:
    """It is read on machines without a way out, and it must not tell others who reads it."""
    response = await shared_admin.get("/docs")

    assert response.headers["content-type"].startswith("text/html")
    assert "//" not in re.sub(r"<!--.*?-->", "", response.text)
    assert "<script" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    paths = json.loads((await shared_admin.get("/openapi.json")).text)["paths"]
    for path in paths:
        assert f"<code>{path}</code>" in response.text


async def test_the_docs_page_links_only_to_types_that_it_shows(shared_admin: AsyncClient) -> None:
    text = (await shared_admin.get("/docs")).text

    linked = set(re.findall(r'href="#(\w+)"', text))
    shown = set(re.findall(r'id="(\w+)"', text))
    assert linked
    assert linked <= shown


async def test_the_bare_address_leads_to_the_docs(shared_admin: AsyncClient) -> None:
    response = await shared_admin.get("/")

    assert response.status_code == 307
    assert response.headers["location"] == "/docs"
