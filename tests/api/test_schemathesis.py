"""Requests that nobody would think of, made from the API's own description: none may be a 5xx.

Half of them keep to the description and half break it; some name things that there are.
"""

import json
import os
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, cast

import pytest
import requests
import schemathesis
from httpx import AsyncClient, InvalidURL
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.api import create_app
from penstock.postgres.embedded import Server
from penstock.web.openapi import describe_api
from tests.api.scene import all_endpoints, called, opened
from tests.database import copy_database

# The same requests each time, so that a build does not fail by chance. To search further, say how
# many; then they are new ones each time, and a failure prints how to repeat it.
EXAMPLES = os.environ.get("PENSTOCK_MODEL_EXAMPLES")
DATABASE = "api_schemathesis"
BASE_URL = "http://penstock.test"
SOON = (datetime.now(UTC) + timedelta(days=1)).isoformat()

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/x-ndjson")
def to_line(_context: object, value: object) -> bytes:
    """Return a stream of one line; the description says what a line is."""
    return json.dumps(value).encode() + b"\n"


def read_operations() -> dict[str, APIOperation[Any, Any, Any, Any]]:
    """Return all operations by name. The key is the client's part, so they say nothing of it."""
    document = json.loads(json.dumps(describe_api(all_endpoints())))
    document.pop("security", None)
    document["components"].pop("securitySchemes", None)
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    schema = schemathesis.openapi.from_dict(document)
    found = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    # What ends things comes last, so that they are there until then.
    return {
        each.label: each for each in sorted(found, key=lambda each: each.method.upper() == "DELETE")
    }


operations = read_operations()


@pytest.fixture(scope="module")
async def client(server: Server, template: str) -> AsyncGenerator[AsyncClient]:
    """A client that may do everything, on a database of its own."""
    dsn = await copy_database(server.dsn, template, DATABASE)
    async with (
        opened(dsn) as app,
        called(app, create_app(app)) as clients,
    ):
        yield clients.admin


class Known(NamedTuple):
    """What is there: parameters of paths by the path's first word, and fields by their name."""

    paths: Mapping[str, str]
    fields: Mapping[str, object]


@pytest.fixture(scope="module")
async def known(client: AsyncClient) -> Known:
    """One of each kind of thing."""
    hook = {"url": "https://example.com/", "event_types": ["*"]}
    made = (await client.post("/subscriptions", json=hook)).json()["subscription"]["id"]
    await client.post("/events", json={"type": "a", "data": 1, "id": "e1"})
    replay = await client.post("/replays", json={"subscription_id": made})
    item = await client.post("/items", json={"lane": "work", "payload": 1})
    return Known(
        {
            "subscriptions": made,
            "events": "e1",
            "replays": replay.json()["id"],
            "items": str(item.json()["id"]),
            "lanes": "work",
        },
        {
            **hook,
            "subscription_id": made,
            "type": "a",
            "lane": "work",
            "configName": "default",
            "name": "default",
            "filter": None,
            "requestedTime": SOON,
            "from": SOON,
        },
    )


@pytest.mark.parametrize("label", operations)
@given(data=st.data())
@settings(
    max_examples=int(EXAMPLES or 15),
    derandomize=EXAMPLES is None,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
async def test_whatever_is_asked_the_answer_is_as_described(
    client: AsyncClient, known: Known, *, label: str, data: st.DataObject
) -> None:
    case = data.draw(cases_of(label))
    if data.draw(st.booleans()):
        name_what_is_there(case, known)
    try:
        request = requests.Request(**case.as_transport_kwargs(base_url=BASE_URL)).prepare()
        response = await client.request(
            case.method,
            str(request.url),
            content=cast("bytes | str | None", request.body),
            headers={
                name: cast("str", value)
                for name, value in request.headers.items()
                if name.lower() in {"content-type", "idempotency-key"}
            },
        )
    except (requests.RequestException, InvalidURL, UnicodeError):
        return  # Nobody could send that.

    case.validate_response(response, checks=CHECKS)


def name_what_is_there(case: Case, known: Known) -> None:
    """Give a request a chance to get further than to a 404."""
    if case.path_parameters and (there := known.paths.get(case.path.split("/")[1])):
        case.path_parameters = dict.fromkeys(case.path_parameters, there)
    for part in (case.query, case.body):
        if isinstance(part, dict):
            part |= {name: known.fields[name] for name in part.keys() & known.fields.keys()}


@cache
def cases_of(label: str) -> st.SearchStrategy[Case]:
    """Return requests of one operation: such as keep to the description, and others."""
    operation = operations[label]
    cases = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    if operation.body or operation.query or operation.path_parameters:
        cases |= operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
    return cases


def test_every_operation_is_asked() -> None:
    described = describe_api(all_endpoints())["paths"]

    assert len(operations) == sum(len(methods) for methods in described.values())
