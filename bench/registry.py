"""Who takes part: the peers with their sizes, and our side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench import ours
from bench.environment import (
    Launch,
    Unavailable,
    aiohttp_peer,
    aiosmtplib_peer,
    httpcore_peer,
    node_peer,
    oban_peer,
    post_office_peer,
    python_peer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer. Slow ones get fewer items, so that each measurement takes well under a minute."""

    name: str
    prepare: Callable[[], Launch]
    items_max: int
    has_key: bool = True


PEERS: Final = (
    Peer(name="graphile-worker", prepare=node_peer("graphile.mjs"), items_max=1_000_000),
    Peer(name="pg-boss", prepare=node_peer("pgboss.mjs"), items_max=1_000_000),
    Peer(name="pgqueuer", prepare=python_peer("bench.peers.pgqueuer"), items_max=1_000_000),
    Peer(name="oban", prepare=oban_peer("bench.peers.oban"), items_max=20_000, has_key=False),
    Peer(name="procrastinate", prepare=python_peer("bench.peers.procrastinate"), items_max=3_000),
)
# No queues, so they are prepared only when webhooks are measured.
AIOHTTP: Final = Peer(
    name="aiohttp alone", prepare=aiohttp_peer("bench.peers.aiohttp"), items_max=0, has_key=False
)
HTTPCORE: Final = Peer(
    name="httpcore, pinned address",
    prepare=httpcore_peer("bench.peers.httpcore"),
    items_max=0,
    has_key=False,
)
HTTPCORE_UNPOOLED: Final = Peer(
    name="httpcore, pinned, without its pool",
    prepare=httpcore_peer("bench.peers.httpcore_unpooled"),
    items_max=0,
    has_key=False,
)
# Prepared only when mail is measured.
AIOSMTPLIB: Final = Peer(
    name="aiosmtplib",
    prepare=aiosmtplib_peer("bench.peers.aiosmtplib"),
    items_max=0,
    has_key=False,
)
POST_OFFICE: Final = Peer(
    name="django-post_office",
    prepare=post_office_peer("bench.peers.post_office"),
    items_max=2_000,
    has_key=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something that can be measured, or the reason why it cannot."""

    name: str
    launch: Launch | None
    items_max: int
    has_key: bool = True
    reason: str = ""


def peer_subject(peer: Peer) -> Subject:
    """Prepare a peer's environment; this may install packages."""
    launch, reason = None, ""
    try:
        launch = peer.prepare()
    except Unavailable as exc:
        reason = str(exc)
    return Subject(
        name=peer.name,
        launch=launch,
        items_max=peer.items_max,
        has_key=peer.has_key,
        reason=reason,
    )


def our_subject() -> Subject:
    """Return our side."""
    return Subject(name="penstock", launch=ours.LAUNCH, items_max=10_000_000)
