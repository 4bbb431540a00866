"""HTTP/1.1 client for URLs that users configure: GET and POST, egress rules, one deadline per call.

It connects to the address that was checked, never to a second lookup of the name. No redirects,
cookies, proxies or decompression. From Penstock it imports `base.clock`,
`base.errors` and `base.permits` only.
"""

from penstock.integrations.http_client.client import Client, Stats
from penstock.integrations.http_client.egress import Egress, EgressRefused
from penstock.integrations.http_client.errors import FailureKind
from penstock.integrations.http_client.pool import PoolLimits, process_limits
from penstock.integrations.http_client.request import Route, Target, parse_url, prepare_route
from penstock.integrations.http_client.response import Response

__all__ = [
    "Client",
    "Egress",
    "EgressRefused",
    "FailureKind",
    "PoolLimits",
    "Response",
    "Route",
    "Stats",
    "Target",
    "parse_url",
    "prepare_route",
    "process_limits",
]
