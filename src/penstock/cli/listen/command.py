"""The verb `listen`: its options, what it answers, and that it ends when enough has come."""

import asyncio
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from penstock.base.aio import alongside
from penstock.cli.exits import Exit
from penstock.cli.lifetime import Stop, check_host, run_until_stopped
from penstock.cli.listen.own import subscribed
from penstock.cli.listen.server import Received, receiving
from penstock.cli.listen.view import VERIFIED, Judge, as_record, read_key, show
from penstock.cli.output import json_option, print_json
from penstock.cli.place import data_dir_option
from penstock.cli.subscription.words import (
    in_typed_words,
    parse_types,
    read_secret_word,
    tenant_option,
    utf8,
)
from penstock.domains.webhooks.secret import PROFILES, Profile, make_secret
from penstock.domains.webhooks.subscription import NewSubscription

WAITING_MAX = 1_000  # Requests answered and not printed yet; who comes then has to come again.
FAILURE = 500  # What the first ones are answered with if they are to fail.
BUSY = 503


@dataclass(slots=True, kw_only=True)
class Desk:
    """Answers requests as the options say, and keeps them until they are printed."""

    status: int
    fail_first: int
    answered: int = 0
    waiting: asyncio.Queue[tuple[Received, int]] = field(
        default_factory=lambda: asyncio.Queue[tuple[Received, int]](WAITING_MAX)
    )

    def answer(self, request: Received) -> int:
        """Return the status for a request."""
        if self.waiting.full():
            return BUSY
        self.answered += 1
        status = FAILURE if self.answered <= self.fail_first else self.status
        self.waiting.put_nowait((request, status))
        return status


@dataclass(slots=True, kw_only=True)
class Printer:
    """Prints requests one after another, up to `count` of them, and remembers how they were."""

    judge: Judge
    count: int | None
    as_json: bool
    console: Console
    printed: int = 0
    is_all_verified: bool = True

    def print(self, request: Received, status: int) -> None:
        """Print one request that was answered with `status`."""
        seen = self.judge.judge(request, status)
        self.printed += 1
        self.is_all_verified &= seen.verdict == VERIFIED
        if self.as_json:
            print_json(as_record(seen))
        else:
            show(seen, self.console)

    @property
    def is_done(self) -> bool:
        """Whether all have come that were waited for."""
        return self.count is not None and self.printed >= self.count


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Port to listen on, 0 for any.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    envvar="PENSTOCK_LISTEN_SECRET",
    show_envvar=True,
    callback=utf8,
    help="What requests are verified with, or - for standard input; may be given again.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="standard",
    show_default=True,
    help="Whose headers and signatures to expect.",
)
@click.option(
    "--status",
    type=click.IntRange(200, 599),
    default=200,
    show_default=True,
    help="What to answer.",
)
@click.option(
    "--fail-first",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Answer the first N requests with 500, to see retries.",
)
@click.option(
    "--count",
    type=click.IntRange(1),
    metavar="N",
    help="End after N requests; with 1 if there is a secret and one of them is not verified.",
)
@click.option(
    "--subscribe",
    "event_types",
    multiple=True,
    metavar="EVENT_TYPES",
    callback=utf8,
    help="Have events such as order.* sent here while this runs; may be given again.",
)
@tenant_option
@data_dir_option
@json_option
def listen(  # noqa: PLR0913  One parameter per option.
    *,
    host: str,
    port: int,
    secrets: tuple[str, ...],
    profile: Profile,
    status: int,
    fail_first: int,
    count: int | None,
    event_types: tuple[str, ...],
    tenant: str,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """Receive webhooks on this machine, verify them and show them.

    With --subscribe it makes a subscription to itself, with a secret of its own, and deletes it at
    the end. PENSTOCK_EGRESS_ALLOW must then allow this address, here and where the worker runs.
    """
    check_host(host)
    texts = [text for word in secrets if (text := read_secret_word(word))]
    types = parse_types(event_types)
    if types and not texts:
        texts = [make_secret()]
    with in_typed_words():
        judge = Judge(profile=profile, secrets=[read_key(text, profile) for text in texts])
    printer = Printer(judge=judge, count=count, as_json=as_json, console=Console())

    async def run(stop: Stop) -> None:
        desk = Desk(status=status, fail_first=fail_first)
        async with receiving(desk.answer, host=host, port=port) as url:
            new = NewSubscription(
                url=url,
                event_types=types,
                tenant=tenant,
                profile=profile,
                secret=texts[0] if texts else None,
                description="penstock listen",
            )
            async with subscribed(new, data_dir) if types else nullcontext() as subscription_id:
                stop.started()
                _announce(url, subscription_id, types, printer=printer)
                await _print_until_asked(desk, printer, stop)

    run_until_stopped(run)
    if count is not None and texts and not printer.is_all_verified:
        sys.exit(Exit.FAILED)


async def _print_until_asked(desk: Desk, printer: Printer, stop: Stop) -> None:
    async def print_all() -> None:
        while not printer.is_done:
            printer.print(*await desk.waiting.get())
        stop.asked.set()

    async with alongside(print_all()):
        await stop.asked.wait()
    while not (desk.waiting.empty() or printer.is_done):
        printer.print(*desk.waiting.get_nowait())


def _announce(url: str, subscription_id: str | None, types: list[str], *, printer: Printer) -> None:
    if printer.as_json:
        print_json({"url": url, "subscription_id": subscription_id})
        return
    click.echo(f"penstock listens on {url}")
    if subscription_id is not None:
        click.echo(f"  {', '.join(types)} come here by subscription {subscription_id}")
    if not printer.judge.secrets:
        click.echo("  hint: give --secret, and what comes is verified")
