"""Reports of the simulator about payments that it settled or returned later.

They are signed as `POST /outbox/results` expects it of every rail.
"""

import hmac
import time
from hashlib import sha256
from http.client import HTTPConnection
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from penstock.domains.outbox.rails.simulator.entry import Entry

TIMEOUT_SECONDS = 10


class ReportTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a report goes: a URL on loopback, and the result secret of the rail."""

    url: Annotated[str, Meta(pattern=r"^http://127\.0\.0\.1:[0-9]+/")]
    secret: str
    rail_type: str = "simulator"


def send_report(report: ReportTarget, entry: Entry) -> int:
    """Send a report about a payment and return the status of the answer. Blocks."""
    body = msgspec.json.encode(
        {
            "rail_type": report.rail_type,
            "outbox_id": entry.outbox_id,
            "amount": entry.amount,
            "currency": entry.currency,
            "reference": entry.reference,
            "status": entry.code.lower(),
            "code": entry.code,
        }
    )
    headers = {
        "Content-Type": "application/json",
        "Penstock-Signature": sign(report.secret, body, at=int(time.time())),
    }
    place = urlsplit(report.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", place.path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def sign(secret: str, body: bytes, *, at: int) -> str:
    """Return the signature of a report made `at` so many seconds after 1970."""
    digest = hmac.new(secret.encode(), b"%d." % at + body, sha256).hexdigest()
    return f"t={at},v1={digest}"
