"""The bars of mail: how fast one process sends, over how few connections, and a domain's limit.

Everybody sends the same mails to Postfix's smtp-sink, with 20 connections; ours runs mail alone,
with every guard on. Printed beside: ours with DKIM, and ours with webhooks, which record an event
for each recipient. On a busy machine the CPU time per mail says more than the rates.

The loop of aiosmtplib is the plain one that people write, with a connection for each mail; 20 of
them at once are printed beside. smtp-source is held against ours as it comes, with a connection
for each mail. With -d it keeps its connections, as ours does, but it builds, stores and decides
nothing: it writes the same bytes again and again. That is the limit of the sink.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Final

import psutil

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
from bench.machine import process_seconds
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
# Of those that are measured beside ours, in their order; None is only shown.
BARS: Final = (at_least(5), None, at_least(0.4), None, at_least(10))
DOMAINS: Final = "PENSTOCK_DOMAINS"
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
    loop = await asyncio.to_thread(peer_subject, AIOSMTPLIB)
    office = await asyncio.to_thread(peer_subject, POST_OFFICE)
    own: list[Measurement] = []
    variants: list[list[Measurement]] = [[], []]
    theirs: list[list[Measurement]] = [[], [], [], [], []]
    await bench.quiet()
    for _ in range(bench.sizes.rounds):
        own.append(await _send(bench, mails, size=size))
        with signing() as key:
            variants[0].append(await _send(bench, mails, size=size, how="DKIM", variables=key))
        both = {DOMAINS: "mail,webhooks"}
        variants[1].append(await _send(bench, mails, size=size, how="webhooks", variables=both))
        theirs[0].append(await _loop(bench, loop, size=size, at_once=1))
        theirs[1].append(await _loop(bench, loop, size=size, at_once=AT_ONCE))
        theirs[2].append(await _source(bench, mails, size=size, keeps=False))
        theirs[3].append(await _source(bench, mails, size=size, keeps=True))
        theirs[4].append(await _post_office(bench, office, mails, size=size))
    name = f"mails of {size // 1_000} kB, {AT_ONCE} connections"
    worst = min(own, key=lambda each: each.detail.get("per_connection", 0.0))
    rows = [
        ratio_row(name, *middle_turn(own, measured), bar=bar)
        for measured, bar in zip(theirs, BARS, strict=True)
    ]
    rows += [
        ratio_row(
            f"{name}, {variant[0].subject}",
            *middle_turn(variant, [named(each, "ours without") for each in own]),
            bar=None,
        )
        for variant in variants
    ]
    rows += [
        ratio_row(
            f"{name}: CPU time of the sender per mail",
            detail(own_turn, "cpu", "µs"),
            named(detail(their_turn, "cpu", "µs"), their_turn.subject),
            bar=None,
        )
        for own_turn, their_turn in (middle_turn(own, theirs[0]), middle_turn(own, theirs[4]))
    ]
    if size == LARGE:
        return rows  # Of a few hundred mails, 20 connections get fewer than the bar each.
    per_connection = detail(worst, "per_connection", "")
    return [
        limit_row(name, _median(own), bar=at_least(1_000, "≥ 1,000/s")),
        *rows,
        limit_row(f"{name}: mails per connection", per_connection, bar=at_least(50, "≥ 50")),
    ]


async def _send(
    bench: Bench,
    mails: int,
    *,
    size: int,
    how: str = "",
    variables: Mapping[str, str] | None = None,
) -> Measurement:
    """Let one worker send all from a backlog, with all guards on."""

    async def run() -> Figures:
        async with smtp_sink() as sink, prepared(bench, [], lane=LANE) as scene:
            await relay_to(scene, sink.port, connections=AT_ONCE)
            await guard(scene)
            await queue(scene, mails, size=size)
            await bench.server.rest(scene.database)
            bench.report.doing(f"penstock: send {mails:,} mails of {size:,} bytes")
            known = {DOMAINS: "mail", **(variables or {})}
            with bench.watched() as others:
                async with (
                    scene.pool.acquire() as db,
                    working(scene, lane=LANE, variables=known) as worker,
                ):
                    cpu_before = process_seconds(psutil.Process(worker.pid))
                    seconds = await drain(db, events=mails, seconds_max=SEND_SECONDS_MAX)
                    cpu = process_seconds(psutil.Process(worker.pid)) - cpu_before
            sessions, messages = sink.counted()
        if messages != mails:
            raise DispatchFailed(f"{mails:,} mails, but {messages:,} at the sink")
        return mails / seconds, {
            "per_connection": messages / max(1, sessions),
            "cpu": 1e6 * cpu / mails,
            OTHERS: others.percent,
        }

    name = f"penstock with {how}" if how else "penstock"
    return await tried(bench, run, what=f"mails of {size:,} bytes", unit="/s", subject=name)


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


async def _post_office(bench: Bench, subject: Subject, mails: int, *, size: int) -> Measurement:
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
        "cpu": 1e6 * number(said, "cpu_seconds") / number(said, "items"),
        OTHERS: others.percent,
    }


def _median(measured: list[Measurement]) -> Measurement:
    """Return the measurement in the middle; one that failed goes first."""
    ordered = sorted(measured, key=lambda each: -1.0 if each.value is None else each.value)
    return ordered[0] if ordered[0].value is None else ordered[(len(ordered) - 1) // 2]
