"""What a receiver answered."""

from msgspec import Struct


class Response(Struct, frozen=True, kw_only=True):
    """A whole answer, unless `is_truncated`: then `body` is the part that we were ready to take."""

    status: int
    body: bytes
    is_truncated: bool
    # From the call until the last byte, with waiting, connecting and a second try.
    duration_seconds: float
    raw_headers: list[tuple[bytes, bytes]]

    def header(self, name: str) -> str | None:
        """Return the first header of this name, whatever its case, or None.

        They are kept as they came: of most responses nobody reads any.
        """
        wanted = name.lower().encode()
        for found, value in self.raw_headers:
            if found.lower() == wanted:
                return value.decode("latin-1")
        return None
