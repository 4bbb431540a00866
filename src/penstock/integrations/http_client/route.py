"""What a request looks like on the wire: the part that never changes is encoded once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from penstock.integrations.http_client.target import Target

# They decide where a message begins and ends and where it goes; whoever could set them could
# smuggle a second request.
OURS = frozenset(
    {
        "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_WHOLE_LINES = re.compile(
    rf"(?:(?!(?i:{'|'.join(sorted(OURS))}):){_TOKEN.pattern}+: [\x20-\x7e]*+\r\n)*+".encode()
)

# Pairs of name and value, or whole lines that the caller has made of parts that it has checked.
Headers = bytes | Sequence[tuple[str, str]]


@dataclass(eq=False)
class BadHeader(ValueError):
    """A header cannot be sent. Its value is not told: it may be a secret."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"header {self.name!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Route:
    """A target and the beginning of each request to it; its headers may hold secrets."""

    target: Target
    origin: str
    head: bytes = field(repr=False)


def prepare_route(target: Target, headers: Sequence[tuple[str, str]] = ()) -> Route:
    """Check and encode what all requests to `target` have in common. Raises BadHeader.

    We add Host, Accept-Encoding and Content-Length ourselves; they are refused in `headers`.
    """
    head = (
        b"POST %b HTTP/1.1\r\nHost: %b\r\nAccept-Encoding: identity\r\n%b"
        % (target.path_and_query, target.host_header.encode(), _lines(headers).encode())
    )  # fmt: skip
    return Route(target, target.origin, head)


def encode_request(route: Route, headers: Headers, body: bytes) -> bytes:
    """Return a whole request, to be sent in one piece. Raises BadHeader."""
    if isinstance(headers, bytes):
        # One that was put in where a value was meant cannot be told from the others, but none
        # can end the head or say where the body ends. This takes a microsecond.
        if not _WHOLE_LINES.fullmatch(headers):
            raise BadHeader("", "these are not whole lines, or one of them is the client's own")
        lines = headers
    else:
        lines = _lines(headers).encode()
    return b"%bContent-Length: %d\r\n\r\n%b" % (route.head + lines, len(body), body)


def _lines(headers: Sequence[tuple[str, str]]) -> str:
    lines = ""
    for name, value in headers:
        # Printable ASCII has no CR, LF or NUL. These two calls cost less than a regex.
        if not (value.isascii() and value.isprintable()):
            raise BadHeader(name, "its value has a character that is not printable ASCII")
        lines += f"{_checked_name(name)}: {value}\r\n"
    return lines


@lru_cache(maxsize=1_024)  # Callers use the same few names for every request.
def _checked_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise BadHeader(name, "this is not a header's name")
    if name.lower() in OURS:
        raise BadHeader(name, "this one is set by the client itself")
    return name
