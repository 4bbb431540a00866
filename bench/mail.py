"""The bars of mail: how fast one process sends, over how few connections, and a domain's limit.

Everybody sends to Postfix's smtp-sink, with 20 connections. smtp-source is measured with -d, which
keeps its connections as ours does: without it most of its time goes into connecting, which would
compare connections and not mails. That is printed beside, and so is a loop of aiosmtplib with 20
mails at once; the bar is the plain loop that people write.
"""

import asyncio
import contextlib
import json
from typing import Final

from bench.arrivals import busiest_second, mean_rate
from bench.dispatch import DispatchFailed, drain, prepared, working
from bench.environment import Unavailable
from bench.figures import (
    OTHERS,
    Measurement,
    Row,
    at_least,
    at_most,
    detail,
    limit_row,
    middle_turn,
    named,
    ratio_row,
)
from bench.killing import WORKERS, deliver_together
from bench.mailbox import mailbox
from bench.mailing import DOMAIN, guard, limit, queue, relay_to, signing
from bench.measure import Bench, Case, number, numbers
from bench.process import answer
from bench.redis import redis
from bench.registry import AIOSMTPLIB, POST_OFFICE, Subject, peer_subject
from bench.smtp_sink import HOST, Sink, send_from_source, smtp_sink
from bench.tried import Figures, tried
from penstock.domains.mail.lanes import LANE

AT_ONCE: Final = 20
SMALL: Final = 2_000
LARGE: Final = 100_000
MAILS_MAX: Final = 20_000
LARGE_SHARE: Final = 10  # Of large mails there are so many times fewer.
SEND_SECONDS_MAX: Final = 120.0
LOOP_SECONDS_MAX: Final = 4.0
RATE: Final = 20
RATE_SLACK_SECONDS: Final = 20.0  # To start the workers, on a busy machine.


async def small(bench: Bench) -> list[Row]:
    """Mails of 2 kB per second from one worker, against other senders to the same sink."""
    return await _against_all(bench, size=SMALL, mails=min(MAILS_MAX, bench.sizes.items // 40))


async def large(bench: Bench) -> list[Row]:
    """The same with mails of 100 kB."""
    mails = min(MAILS_MAX, bench.sizes.items // 40) // LARGE_SHARE
    return await _against_all(bench, size=LARGE, mails=mails)


async def rate(bench: Bench) -> list[Row]:
    """A domain's limit under several workers that share a Redis."""
    mails = int(RATE * bench.sizes.rate_seconds)

    async def run() -> Figures:
        async with (
            mailbox() as box,
            redis() as redis_url,
            prepared(bench, [], lane=LANE) as scene,
        ):
            await relay_to(scene, box.port, connections=AT_ONCE)
            await limit(scene, "domain", DOMAIN, per_second=RATE)
            await queue(scene, mails, size=SMALL)
            bench.report.doing(f"penstock: {RATE} per second, {WORKERS} workers", mails)
            with bench.watched() as others:
                await deliver_together(
                    scene,
                    box,
                    events=mails,
                    seconds_max=2 * mails / RATE + RATE_SLACK_SECONDS,
                    lane=LANE,
                    variables={"PENSTOCK_REDIS_URL": redis_url},
                )
        found = {"used": mean_rate(box.instants) / RATE, OTHERS: others.percent}
        return float(busiest_second(box.instants)), found

    what = f"most mails to a domain in any second, {WORKERS} workers on Redis"
    own = await tried(bench, run, what=what, unit="")
    return [
        limit_row(f"{what}, {mails} mails", own, bar=at_most(RATE + 1, f"≤ {RATE} + 1")),
        limit_row("share of the domain's limit used", detail(own, "used", ""), bar=at_least(0.95)),
    ]


CASES: Final[dict[str, Case]] = {"mail_small": small, "mail_large": large, "mail_rate": rate}


async def _against_all(bench: Bench, *, size: int, mails: int) -> list[Row]:
    """Measure everybody in turns, and hold ours against each."""
    bench.report.doing("mail: preparing the peers' environments")
    loop, office = [
        await asyncio.to_thread(peer_subject, peer) for peer in (AIOSMTPLIB, POST_OFFICE)
    ]
    own: list[Measurement] = []
    signed: list[Measurement] = []
    theirs: dict[str, list[Measurement]] = {}
    await bench.quiet()
    for _ in range(bench.sizes.rounds):
        own.append(await _send(bench, mails, size=size))
        signed.append(await _send(bench, mails, size=size, is_signed=True))
        for each in (
            await _loop(bench, loop, size=size, at_once=1),
            await _loop(bench, loop, size=size, at_once=AT_ONCE),
            await _source(bench, mails, size=size, keeps=True),
            await _source(bench, mails, size=size, keeps=False),
            await _office(bench, office, mails, size=size),
        ):
            theirs.setdefault(each.subject, []).append(each)
    name = f"mails of {size // 1_000} kB, {AT_ONCE} connections"
    bars = [at_least(5), None, at_least(0.4), None, at_least(10)]
    worst = min(own, key=lambda each: each.detail.get("per_connection", 0.0))
    return [
        *(
            [limit_row(name, _median(own), bar=at_least(1_000, "≥ 1,000/s"))]
            if size == SMALL
            else []
        ),
        *(
            ratio_row(name, *middle_turn(own, measured), bar=bar)
            for measured, bar in zip(theirs.values(), bars, strict=True)
        ),
        ratio_row(
            f"{name}, signed with DKIM (RSA 2048)",
            *middle_turn(signed, [named(each, "unsigned") for each in own]),
            bar=None,
        ),
        limit_row(
            f"{name}: mails per connection",
            detail(worst, "per_connection", ""),
            bar=at_least(50, "≥ 50"),
        ),
    ]


async def _send(bench: Bench, mails: int, *, size: int, is_signed: bool = False) -> Measurement:
    """Let one worker send all from a backlog, with all guards on."""

    async def run() -> Figures:
        async with contextlib.AsyncExitStack() as on:
            sink = await on.enter_async_context(smtp_sink())
            variables = on.enter_context(signing()) if is_signed else {}
            scene = await on.enter_async_context(prepared(bench, [], lane=LANE))
            await relay_to(scene, sink.port, connections=AT_ONCE)
            await guard(scene)
            await queue(scene, mails, size=size)
            await bench.server.rest(scene.database)
            bench.report.doing(f"penstock: send {mails:,} mails of {size:,} bytes")
            with bench.watched() as others:
                async with (
                    scene.pool.acquire() as db,
                    working(scene, lane=LANE, variables=variables),
                ):
                    seconds = await drain(db, events=mails, seconds_max=SEND_SECONDS_MAX)
            sessions, messages = sink.counted()
        if messages != mails:
            raise DispatchFailed(f"{mails:,} mails, but {messages:,} at the sink")
        return mails / seconds, {
            "per_connection": messages / max(1, sessions),
            OTHERS: others.percent,
        }

    what = f"mails of {size:,} bytes{', signed' * is_signed}"
    return await tried(bench, run, what=what, unit="/s")


async def _loop(bench: Bench, subject: Subject, *, size: int, at_once: int) -> Measurement:
    """Let aiosmtplib send with one connection per mail."""
    seconds = min(LOOP_SECONDS_MAX, bench.sizes.burst_seconds)

    async def run() -> Figures:
        async with smtp_sink() as sink:
            return await _answered(
                bench, subject, sink, size=size, at_once=at_once, seconds=seconds
            )

    how = "in a loop" if at_once == 1 else f"{at_once} at once"
    name = f"{subject.name}, one connection per mail, {how}"
    return await tried(bench, run, what=f"mails of {size:,} bytes", unit="/s", subject=name)


async def _source(bench: Bench, mails: int, *, size: int, keeps: bool) -> Measurement:
    async def run() -> Figures:
        async with smtp_sink() as sink:
            bench.report.doing(f"smtp-source: send {mails:,} mails")
            with bench.watched() as others:
                seconds = await send_from_source(
                    sink, mails=mails, size=size, at_once=AT_ONCE, keeps=keeps
                )
        return mails / seconds, {OTHERS: others.percent}

    name = f"smtp-source, {'connections kept (-d)' if keeps else 'one connection per mail'}"
    return await tried(bench, run, what=f"mails of {size:,} bytes", unit="/s", subject=name)


async def _office(bench: Bench, subject: Subject, mails: int, *, size: int) -> Measurement:
    """Let django-post_office send from its own queue on the same server."""
    few = min(subject.items_max, mails // 2)

    async def run() -> Figures:
        async with (
            smtp_sink() as sink,
            bench.server.database("bench_post_office") as database,
        ):
            value, found = await _answered(
                bench, subject, sink, size=size, mails=few, place=bench.server.place(database)
            )
        bench.report.say(
            f"  {subject.name}: BATCH_SIZE {found['batch_size']:g}, "
            f"THREADS_PER_PROCESS {found['threads']:g}, 1 process, {found['items']:g} mails"
        )
        if found["items"] != few:
            raise DispatchFailed(f"{few:,} mails, but {found['items']:g} sent")
        return value, found

    return await tried(bench, run, what=f"mails of {size:,} bytes", unit="/s", subject=subject.name)


async def _answered(bench: Bench, subject: Subject, sink: Sink, **asked: object) -> Figures:
    """Run a peer to its end; return its mails per second, and what else it says."""
    if subject.launch is None:
        raise Unavailable(subject.reason)
    bench.report.doing(f"{subject.name}: sends")
    place = {"host": HOST, "port": sink.port, **asked}
    with bench.watched() as others:
        said = await answer((*subject.launch.command, json.dumps(place)), subject.launch.variables)
    return number(said, "items") / number(said, "seconds"), {
        **numbers(said),
        OTHERS: others.percent,
    }


def _median(measured: list[Measurement]) -> Measurement:
    """Return the measurement in the middle; one that failed goes first."""
    ordered = sorted(measured, key=lambda each: -1.0 if each.value is None else each.value)
    return ordered[0] if ordered[0].value is None else ordered[(len(ordered) - 1) // 2]
