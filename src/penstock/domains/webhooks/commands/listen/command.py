"""The command `listen`: its options, how it responds, and when it ends."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console

from penstock.base.aio import alongside
from penstock.base.errors import MissingExtra
from penstock.console.database import data_dir_option
from penstock.console.exits import Exit
from penstock.console.output import json_option, print_json
from penstock.console.process import StopSignal, check_host, run_until_stopped
from penstock.domains.webhooks.commands.listen.received import Received
from penstock.domains.webhooks.commands.listen.temporary_subscription import TemporarySubscriptions
from penstock.domains.webhooks.commands.listen.view import (
    VERIFIED,
    Verifier,
    as_record,
    read_key,
    show,
)
from penstock.domains.webhooks.commands.subscription.typed_options import (
    in_typed_words,
    parse_types,
    read_secret_word,
    tenant_option,
    utf8,
)
from penstock.domains.webhooks.secret import PROFILES, Profile, make_secret
from penstock.domains.webhooks.subscription import NewSubscription

UNPRINTED_MAX = 1_000  # Requests answered and not printed yet; further ones get BUSY.
FAILURE = 500  # The response to the first requests with --fail-first.
BUSY = 503

# `receiving` of server.py, which is imported when the command runs.
Receiving = Callable[..., AbstractAsyncContextManager[str]]


@dataclass(slots=True, kw_only=True)
class Responder:
    """Chooses the status of each response, and queues requests for printing."""

    status: int
    fail_first: int
    answered: int = 0
    unprinted: asyncio.Queue[tuple[Received, int]] = field(
        default_factory=lambda: asyncio.Queue[tuple[Received, int]](UNPRINTED_MAX)
    )

    def answer(self, request: Received) -> int:
        """Return the status for a request."""
        if self.unprinted.full():
            return BUSY
        self.answered += 1
        status = FAILURE if self.answered <= self.fail_first else self.status
        self.unprinted.put_nowait((request, status))
        return status


@dataclass(slots=True, kw_only=True)
class Printer:
    """Prints requests, up to `count` of them, and notes whether all were verified."""

    verifier: Verifier
    count: int | None
    as_json: bool
    console: Console
    printed: int = 0
    is_all_verified: bool = True

    def print(self, request: Received, status: int) -> None:
        """Print one request that was answered with `status`."""
        checked = self.verifier.check(request, status)
        self.printed += 1
        self.is_all_verified &= checked.verdict == VERIFIED
        if self.as_json:
            print_json(as_record(checked))
        else:
            show(checked, self.console)

    @property
    def is_done(self) -> bool:
        """Whether `count` requests have been printed."""
        return self.count is not None and self.printed >= self.count


def listen_command(temporary: TemporarySubscriptions) -> click.Command:
    """Return the command; it finds `temporary` as the context's object."""
    command = copy(listen)
    command.context_settings = {"obj": temporary}
    return command


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
    help="Secret to verify requests with, or - for standard input; may be given again.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default="standard",
    show_default=True,
    help="Which headers and signatures to expect.",
)
@click.option(
    "--status",
    type=click.IntRange(200, 599),
    default=200,
    show_default=True,
    help="Status to answer with.",
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
    help="Exit after N requests; with code 1 if a secret is given and one is not verified.",
)
@click.option(
    "--subscribe",
    "event_types",
    multiple=True,
    metavar="EVENT_TYPES",
    callback=utf8,
    help="Subscribe to events such as order.* while this runs; may be given again.",
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
    """Receive webhooks on this machine, verify them and print them, until Ctrl-C.

    Needs the extra `api`, and a database only with --subscribe. The secret may also be in
    PENSTOCK_LISTEN_SECRET. With --json the first line has the `url`, and each further line a
    request with its `verdict`.

    With --subscribe it creates a subscription to itself, with its own secret, and deletes it at
    the end. PENSTOCK_EGRESS_ALLOW must then allow this address, here and where the worker runs.
    """
    receiving = _load_server()
    temporary: TemporarySubscriptions = click.get_current_context().obj
    check_host(host)
    texts = [text for word in secrets if (text := read_secret_word(word))]
    types = parse_types(event_types)
    if types and not texts:
        texts = [make_secret()]
    with in_typed_words():
        verifier = Verifier(profile=profile, secrets=[read_key(text, profile) for text in texts])
    printer = Printer(verifier=verifier, count=count, as_json=as_json, console=Console())

    async def run(stop: StopSignal) -> None:
        responder = Responder(status=status, fail_first=fail_first)
        async with receiving(responder.answer, host=host, port=port) as url:
            new = NewSubscription(
                url=url,
                event_types=types,
                tenant=tenant,
                profile=profile,
                secret=texts[0] if texts else None,
                description="penstock listen",
            )
            subscription = temporary.subscribed(new, data_dir) if types else nullcontext()
            async with subscription as subscription_id:
                stop.started()
                _announce(url, subscription_id, types, printer=printer)
                await _print_until_asked(responder, printer, stop)

    run_until_stopped(run, needs_reader=True)
    if count is not None and texts and not printer.is_all_verified:
        sys.exit(Exit.FAILED)


def _load_server() -> Receiving:
    try:
        from penstock.domains.webhooks.commands.listen.server import receiving  # noqa: PLC0415  Needs an extra.
    except ModuleNotFoundError as missing:
        raise MissingExtra("api", "penstock listen") from missing
    return receiving


async def _print_until_asked(responder: Responder, printer: Printer, stop: StopSignal) -> None:
    async def print_all() -> None:
        while not printer.is_done:
            printer.print(*await responder.unprinted.get())
        stop.asked.set()

    async with alongside(print_all()):
        await stop.asked.wait()
    while not (responder.unprinted.empty() or printer.is_done):
        printer.print(*responder.unprinted.get_nowait())


def _announce(url: str, subscription_id: str | None, types: list[str], *, printer: Printer) -> None:
    if printer.as_json:
        print_json({"url": url, "subscription_id": subscription_id})
        return
    click.echo(f"penstock listens on {url}")
    if subscription_id is not None:
        click.echo(f"  {', '.join(types)} come here by subscription {subscription_id}")
    if not printer.verifier.secrets:
        click.echo("  hint: give --secret to verify requests")
