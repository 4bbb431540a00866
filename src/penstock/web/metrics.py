"""The metrics of the HTTP server."""

from penstock.base.meter import Counter

REFUSED = Counter(
    "http_requests_refused_total",
    "Requests that were refused before they were routed, by code, such as `headers-too-large`.",
    ("code",),
)
EXPIRED = Counter(
    "http_connections_expired_total",
    "Connections that were closed because the client took too long, by what was awaited: "
    "`first_byte`, `unread`, `unsent` or `close`. Idle ones are not counted; a head that is too "
    "slow is a refused request.",
    ("phase",),
)
ACCEPT_FAILURES = Counter(
    "http_accept_failures_total",
    "Times a connection could not be accepted, mostly because no file descriptor was left.",
)
TURNED_AWAY = Counter(
    "http_connections_refused_total",
    "Connections that were answered with 503, because there were as many as may be.",
)

METRICS = (REFUSED, EXPIRED, ACCEPT_FAILURES, TURNED_AWAY)
