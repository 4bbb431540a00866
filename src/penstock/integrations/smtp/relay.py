"""A relay: where it is, how the connection is protected, what it allows; and a client's limits."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from penstock.base.errors import InvalidInput

# none: never encrypt. opportunistic: STARTTLS if it is offered, any certificate. starttls and tls:
# always encrypt, and verify the certificate for the host's name.
TlsPolicy = Literal["none", "opportunistic", "starttls", "tls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayAddress:
    """One relay. Two that differ in any field have separate connections."""

    name: str
    host: str
    port: int
    tls: TlsPolicy = "opportunistic"
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    connections_max: int = 10
    # Providers close a connection after some hundred messages, some in the middle of the next.
    messages_per_connection_max: int = 100
    # Postfix closes after 300 s and many providers after 60 s; the client closes first.
    idle_time: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        """Refuse what could send a password in clear without being asked to."""
        if self.username is not None and self.tls == "opportunistic":
            reason = "an account needs starttls or tls; none sends its password in clear"
            raise InvalidInput("tls", reason)
        if self.connections_max < 1:
            raise InvalidInput("connections_max", "must be at least 1")
        if self.messages_per_connection_max < 1:
            raise InvalidInput("messages_per_connection_max", "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """The limits of a client, for every relay."""

    # For the connection, and again for the banner. A relay that needs longer is overloaded.
    connect: timedelta = timedelta(seconds=15)
    # For each of EHLO, STARTTLS and AUTH.
    command: timedelta = timedelta(seconds=30)
    # An idle connection of this age is asked whether it still works before it gets a message. For
    # a younger one the question would cost a round trip for each message of a steady stream.
    check_after: timedelta = timedelta(seconds=1)
