"""The OpenAPI document of a table of endpoints, from the types that their handlers take."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from penstock.contract.http import Endpoint
from penstock.web.problem import MEDIA_TYPE, Problem

UNTAGGED = "service"  # The group of endpoints without a tag: health, metrics, these documents.

Json = dict[str, Any]

_PATH_NAMES = re.compile(r"{(\w+)}")


def describe_api(endpoints: Iterable[Endpoint]) -> Json:
    """Return the document, as JSON values."""
    table = tuple(endpoints)
    types = [kind for each in table for kind in (each.body_type, each.answer_type) if kind]
    types += [kind for each in table for pair in each.streams.values() for kind in pair]
    schemas, components = _schemas([*types, Problem])
    paths: dict[str, Json] = {}
    for each in table:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": "A durable, rate-exact dispatch queue on PostgreSQL.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(types: list[Any]) -> tuple[dict[Any, Json], Json]:
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    return dict(zip(types, schemas, strict=True)), dict(components)


def _operation(endpoint: Endpoint, schemas: dict[Any, Json]) -> Json:
    operation: Json = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.tag or UNTAGGED],
        # In 3.1 the list of a bearer scheme names the roles that are needed.
        "security": [] if endpoint.scope is None else [{"key": [endpoint.scope]}],
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint, schemas),
    }
    content = {
        media_type: {"schema": schemas[taken]}
        for media_type, (taken, _) in endpoint.streams.items()
    }
    if endpoint.body_type is not None:
        content = {"application/json": {"schema": schemas[endpoint.body_type]}}
    if content:
        operation["requestBody"] = {"required": not endpoint.body_is_optional, "content": content}
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", endpoint.path)
    return "_".join([endpoint.method.lower(), *words])


def _parameters(endpoint: Endpoint) -> list[Json]:
    """Describe path and query, whose fields are those of one struct, and named headers."""
    in_path = set(_PATH_NAMES.findall(endpoint.path))
    described: list[Json] = []
    for field in msgspec.structs.fields(endpoint.parameters_type):
        is_in_path = field.encode_name in in_path
        described.append(
            {
                "name": field.encode_name,
                "in": "path" if is_in_path else "query",
                "required": field.required,
                "schema": msgspec.json.schema(field.type),
            }
        )
        in_path.discard(field.encode_name)
    assert not in_path, f"{endpoint.path} has parameters that its handler does not take"
    return described + [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
        for name in endpoint.takes_headers
    ]


def _responses(endpoint: Endpoint, schemas: dict[Any, Json]) -> Json:
    responses: Json = {}
    for status in endpoint.statuses:
        response: Json = {"description": HTTPStatus(status).phrase}
        if endpoint.answer_type is not None:
            response["content"] = {endpoint.media_type: {"schema": schemas[endpoint.answer_type]}}
        elif endpoint.streams:
            response["content"] = {
                media_type: {"schema": schemas[given]}
                for media_type, (_, given) in endpoint.streams.items()
            }
        elif status == 200:
            schema = {} if endpoint.media_type.endswith("json") else {"type": "string"}
            response["content"] = {endpoint.media_type: {"schema": schema}}
        responses[str(status)] = response
    responses["default"] = {
        "description": "What went wrong",
        "content": {MEDIA_TYPE: {"schema": schemas[Problem]}},
    }
    return responses
