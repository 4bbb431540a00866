"""A request that `penstock listen` has received."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A complete request. Header names are in lower case; repeated headers are joined."""

    received_at: datetime
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
