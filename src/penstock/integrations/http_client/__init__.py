"""POST to URLs that strangers chose: fast, within a deadline, and never to where it must not go.

The address that is checked is the address that is connected to. HTTP/1.1 only; no redirects, no
cookies, no proxies, no decompression.
"""

from penstock.integrations.http_client.client import Client, Stats
from penstock.integrations.http_client.egress import Egress, EgressRefused
from penstock.integrations.http_client.failure import FailureKind
from penstock.integrations.http_client.limits import Limits
from penstock.integrations.http_client.response import Response
from penstock.integrations.http_client.route import BadHeader, Route, prepare_route
from penstock.integrations.http_client.target import BadTarget, Target, parse_target

__all__ = [
    "BadHeader",
    "BadTarget",
    "Client",
    "Egress",
    "EgressRefused",
    "FailureKind",
    "Limits",
    "Response",
    "Route",
    "Stats",
    "Target",
    "parse_target",
    "prepare_route",
]
