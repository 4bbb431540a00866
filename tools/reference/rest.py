"""docs/reference/rest.md: one table of endpoints per tag."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from penstock import Penstock
from penstock.api import endpoints
from penstock.base.log import get_logger
from penstock.base.meter import Meter
from penstock.base.settings import Settings
from penstock.base.vault import Vault
from penstock.compose.domains import BUILT_IN
from penstock.contract import Resources
from penstock.contract.http import Endpoint
from tools.reference.blocks import code, plain, table

UNTAGGED = "other"
HEADS = ("method", "path", "scope", "query", "status", "meaning")


def blocks(_page: str) -> dict[str, str]:
    """Return a table for each tag; endpoints of a domain have its name as their tag."""
    rows: dict[str, list[Sequence[str]]] = {}
    for each in all_endpoints():
        rows.setdefault(each.tag or UNTAGGED, []).append(_row(each))
    return {tag: table(HEADS, found) for tag, found in rows.items()}


def all_endpoints() -> list[Endpoint]:
    """Return the endpoints of the kernel and of all built-in domains, each with its tag."""
    return [*endpoints(Penstock()), *_domain_endpoints()]


def _domain_endpoints() -> Iterator[Endpoint]:
    # Without a pool the endpoints can be read, not called.
    resources = Resources(
        pool=cast("Any", None),
        settings=Settings(),
        vault=Vault(),
        log=get_logger(),
        meter=Meter(),
    )
    for domain in BUILT_IN:
        for each in domain.build(resources).endpoints:
            yield replace(each, tag=domain.name)


def _row(endpoint: Endpoint) -> Sequence[str]:
    return (
        endpoint.method,
        code(endpoint.path),
        endpoint.scope or "none",
        ", ".join(map(code, _query(endpoint))) or "none",
        ", ".join(map(str, endpoint.statuses)),
        plain(endpoint.summary),
    )


def _query(endpoint: Endpoint) -> list[str]:
    in_path = set(re.findall(r"{(\w+)}", endpoint.path))
    fields = msgspec.structs.fields(endpoint.parameters_type)
    return [each.encode_name for each in fields if each.encode_name not in in_path]
