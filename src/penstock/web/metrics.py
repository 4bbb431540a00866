"""The metrics of the HTTP server."""

from penstock.base.meter import Counter

REFUSED = Counter(
    "http_requests_refused_total",
    "Requests that were refused before they were routed, by code, such as `headers-too-large`.",
    ("code",),
)

METRICS = (REFUSED,)
