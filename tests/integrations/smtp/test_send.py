"""Transactions against a server that misbehaves: each recipient's reply, and what is unknown."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from penstock.base.errors import InvalidInput
from penstock.integrations.smtp import Client, RelayAddress, SendFailed
from tests.integrations.smtp.scene import MESSAGE, SENDER, relay_of, send
from tests.smtp_server import SmtpServer, Step, serving

PIPELINED = pytest.mark.parametrize(
    "without", [set[str](), {"PIPELINING"}], ids=["pipelined", "single"]
)


@PIPELINED
async def test_a_message_arrives_as_it_was_given(client: Client, without: set[str]) -> None:
    message = b"Subject: x\r\n\r\n.hidden\r\n..two\r\nend without a line end\r\n.\r\nlast"
    async with serving(SmtpServer(without=without)) as server:
        sent = await send(client, server, "a@example.net", "b@example.net", message=message)

    received = server.messages[0]
    assert [(reply.phase, reply.code, reply.enhanced) for reply in sent.replies] == [
        ("dot", 250, "2.0.0"),
        ("dot", 250, "2.0.0"),
    ]
    assert received.content == message + b"\r\n"
    assert received.sender == SENDER
    assert received.recipients == ("a@example.net", "b@example.net")
    assert received.options == (f"SIZE={len(message)}",)


async def test_bare_line_ends_cannot_smuggle_in_a_second_message(client: Client) -> None:
    """A server that takes LF for a line end would see the dot and then more commands."""
    message = b"Subject: x\r\n\r\nbody\n.\nMAIL FROM:<evil@example.com>\r.\r\nrest\r\n"
    async with serving(SmtpServer()) as server:
        await send(client, server, message=message)
        await send(client, server)

    assert len(server.messages) == 2
    assert server.messages[0].content == (
        b"Subject: x\r\n\r\nbody\r\n.\r\nMAIL FROM:<evil@example.com>\r\n.\r\nrest\r\n"
    )


@PIPELINED
async def test_one_refused_recipient_does_not_fail_the_rest(
    client: Client, without: set[str]
) -> None:
    async with serving(SmtpServer(without=without)) as server:
        server.on("RCPT", "550 5.1.1 no such user", argument="bad@")
        sent = await send(client, server, "a@example.net", "bad@example.net", "c@example.net")

    assert [(reply.phase, reply.code) for reply in sent.replies] == [
        ("dot", 250),
        ("rcpt", 550),
        ("dot", 250),
    ]
    assert sent.replies[1].enhanced == "5.1.1"
    assert sent.replies[1].text == "no such user"
    assert server.messages[0].recipients == ("a@example.net", "c@example.net")


@PIPELINED
async def test_refused_recipients_send_nothing_and_leave_the_connection_usable(
    client: Client, without: set[str]
) -> None:
    async with serving(SmtpServer(without=without)) as server:
        server.on("RCPT", "550 5.7.1 no", times=2)
        refused = await send(client, server, "a@example.net", "b@example.net")
        accepted = await send(client, server, "c@example.net")

    assert [reply.code for reply in refused.replies] == [550, 550]
    assert [reply.code for reply in accepted.replies] == [250]
    assert [message.recipients for message in server.messages] == [("c@example.net",)]
    assert server.connections_total == 1


async def test_each_recipient_over_the_maximum_has_its_own_reply(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("RCPT", "452 4.5.3 too many recipients", argument="late", times=9)
        sent = await send(client, server, "a@example.net", "late1@example.net", "late2@example.net")

    assert [(reply.code, reply.enhanced) for reply in sent.replies] == [
        (250, "2.0.0"),
        (452, "4.5.3"),
        (452, "4.5.3"),
    ]


@PIPELINED
async def test_a_refused_sender_fails_the_transaction(client: Client, without: set[str]) -> None:
    async with serving(SmtpServer(without=without)) as server:
        server.on("MAIL", "550 5.1.8 sender")
        failed = await failure(client, server)
        again = await send(client, server)

    assert (failed.phase, failed.kind, failed.is_unknown) == ("mail", "refused", False)
    assert failed.reply is not None
    assert failed.reply.code == 550
    assert again.replies[0].code == 250
    assert server.connections_total == 1


@pytest.mark.parametrize("step", ["DATA", "DOT"])
async def test_a_refused_message_is_the_reply_of_every_accepted_recipient(
    client: Client, step: Step
) -> None:
    async with serving(SmtpServer()) as server:
        server.on("RCPT", "550 5.1.1 no", argument="bad@")
        server.on(step, "554 5.6.0 content")
        sent = await send(client, server, "a@example.net", "bad@example.net")
        again = await send(client, server)

    assert [(reply.phase, reply.code) for reply in sent.replies] == [
        (step.lower(), 554),
        ("rcpt", 550),
    ]
    assert again.replies[0].code == 250


@pytest.mark.parametrize("step", ["MAIL", "RCPT", "DATA"])
async def test_421_in_the_middle_ends_the_connection_and_is_not_unknown(
    client: Client, step: Step
) -> None:
    async with serving(SmtpServer()) as server:
        server.on(step, "421 4.3.2 shutting down", drop=True)
        if step == "MAIL":
            failed = await failure(client, server)
            assert failed.reply is not None
            assert failed.reply.code == 421
        elif step == "RCPT":
            sent = await send(client, server)
            assert (sent.replies[0].phase, sent.replies[0].code) == ("rcpt", 421)
        else:
            sent = await send(client, server)
            assert (sent.replies[0].phase, sent.replies[0].code) == ("data", 421)
        again = await send(client, server)

    assert again.replies[0].code == 250
    assert server.connections_total == 2
    assert len(server.messages) == 1


async def test_421_to_one_of_several_recipients_is_the_reason_of_the_failure(
    client: Client,
) -> None:
    """Its enhanced code says whether the relay is to be slowed down."""
    async with serving(SmtpServer()) as server:
        server.on("RCPT", "421 4.7.0 slow down", drop=True, argument="two@")
        failed = await failure(
            client, server, "one@example.net", "two@example.net", "c@example.net"
        )

    assert (failed.phase, failed.kind, failed.is_unknown) == ("rcpt", "refused", False)
    assert failed.reply is not None
    assert failed.reply.enhanced == "4.7.0"
    assert [reply and reply.code for reply in failed.replies] == [None, 421, None]


async def test_421_after_the_dot_is_a_known_refusal(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("DOT", "421 4.3.0 not queued", drop=True)
        sent = await send(client, server)

    assert (sent.replies[0].phase, sent.replies[0].code) == ("dot", 421)


async def test_a_connection_lost_after_the_dot_is_unknown(client: Client) -> None:
    """The server has the message; whether it keeps it, nobody knows."""
    async with serving(SmtpServer()) as server:
        server.on("RCPT", "550 5.1.1 no", argument="bad@")
        server.on("DOT", drop=True)
        failed = await failure(client, server, "a@example.net", "bad@example.net")

    assert (failed.phase, failed.kind, failed.is_unknown) == ("dot", "closed", True)
    assert [reply and reply.code for reply in failed.replies] == [None, 550]
    assert len(server.messages) == 1


async def test_a_garbled_reply_to_the_dot_is_unknown(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("DOT", "hello")
        failed = await failure(client, server)

    assert (failed.phase, failed.kind, failed.is_unknown) == ("dot", "malformed", True)


async def test_a_hanging_reply_to_the_dot_is_unknown_after_the_timeout(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("DOT", hang=True)
        failed = await failure(client, server, timeout=0.2)

    assert (failed.phase, failed.kind, failed.is_unknown) == ("dot", "timeout", True)


@pytest.mark.parametrize("step", ["MAIL", "RCPT", "DATA"])
async def test_a_connection_lost_before_the_dot_is_not_unknown(client: Client, step: Step) -> None:
    async with serving(SmtpServer()) as server:
        server.on(step, drop=True)
        failed = await failure(client, server)

    assert (failed.phase, failed.kind, failed.is_unknown) == (step.lower(), "closed", False)
    assert server.messages == []


async def test_a_message_that_has_not_left_this_process_is_not_unknown(client: Client) -> None:
    """A server that stops reading has not seen the final dot."""
    async with stopping_at_data(b"354 go\r\n") as relay:
        failed = await large_failure(client, relay)

    assert (failed.phase, failed.kind, failed.is_unknown) == ("dot", "timeout", False)


async def test_a_refusal_in_the_middle_of_a_message_ends_the_connection(client: Client) -> None:
    """The rest of the message must never be read as commands."""
    async with stopping_at_data(b"354 go\r\n", b"552 5.3.4 no\r\n") as relay:
        sent = await client.send(
            relay, sender=SENDER, recipients=["a@example.net"], message=LARGE, timeout=5
        )

        assert (sent.replies[0].phase, sent.replies[0].code) == ("dot", 552)
        assert client.stats().open_count == 0


async def test_an_acceptance_in_the_middle_of_a_message_is_ignored(client: Client) -> None:
    async with stopping_at_data(b"354 go\r\n", b"250 ok\r\n") as relay:
        failed = await large_failure(client, relay)

    assert (failed.kind, failed.is_unknown) == ("malformed", False)


async def test_more_replies_than_commands_send_no_message(client: Client) -> None:
    async with stopping_at_data(b"250 ok\r\n354 go\r\n") as relay:
        failed = await large_failure(client, relay)

    assert (failed.phase, failed.is_unknown) == ("data", False)


async def test_features_that_are_not_offered_are_typed_failures(client: Client) -> None:
    async with serving(SmtpServer(without={"SMTPUTF8", "8BITMIME"}, size_max=500)) as server:
        large = await failure(client, server, message=b"x" * 501)
        eight_bit = await failure(client, server, message="ä".encode())
        utf8 = await failure(client, server, "ä@example.net", smtputf8=True)

    assert [(each.phase, each.kind) for each in (large, eight_bit, utf8)] == [
        ("mail", "too_large"),
        ("mail", "eight_bit"),
        ("mail", "smtputf8"),
    ]
    assert server.steps["MAIL"] == 0


async def test_an_international_address_and_body_are_declared(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        await send(client, server, "jürgen@example.net", message="ä".encode(), smtputf8=True)

    assert server.messages[0].recipients == ("jürgen@example.net",)
    assert set(server.messages[0].options) >= {"BODY=8BITMIME", "SMTPUTF8"}


@pytest.mark.parametrize(
    ("sender", "recipient"),
    [
        ("a@example.com", "x@example.net>\r\nDATA"),
        ("a@example.com\r\nRCPT TO:<b@example.com>", "x@example.net"),
        ("a@example.com", "ä@example.net"),
        ("a@example.com", ""),
    ],
)
async def test_an_address_that_would_break_the_protocol_is_refused(
    client: Client, sender: str, recipient: str
) -> None:
    async with serving(SmtpServer()) as server:
        with pytest.raises(InvalidInput):
            await client.send(
                relay_of(server),
                sender=sender,
                recipients=[recipient],
                message=MESSAGE,
                timeout=5,
            )

    assert server.connections_total == 0


async def test_a_failure_and_a_relay_show_no_addresses_and_no_credentials(client: Client) -> None:
    async with serving(SmtpServer()) as server:
        server.on("MAIL", "550 5.1.8 <secret@example.com> refused")
        failed = await failure(client, server)
        relay = relay_of(server, tls="none", username="user", password="word")

    assert "secret" not in str(failed)
    assert "user" not in repr(relay)
    assert "word" not in repr(relay)


async def failure(
    client: Client,
    server: SmtpServer,
    *recipients: str,
    message: bytes = MESSAGE,
    smtputf8: bool = False,
    timeout: float = 5,
) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await send(client, server, *recipients, message=message, smtputf8=smtputf8, timeout=timeout)
    return caught.value


LARGE = b"x" * 78 * 1024 * 256  # More than all buffers between two sockets.


async def large_failure(client: Client, relay: RelayAddress) -> SendFailed:
    with pytest.raises(SendFailed) as caught:
        await client.send(
            relay, sender=SENDER, recipients=["a@example.net"], message=LARGE, timeout=1
        )
    return caught.value


@asynccontextmanager
async def stopping_at_data(*replies: bytes) -> AsyncGenerator[RelayAddress]:
    """Run a server that replies this to DATA, the second after some of the message, then stops."""
    stopped = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 x\r\n")
        for reply in (b"250-x\r\n250 PIPELINING\r\n", b"250 a\r\n", b"250 b\r\n"):
            await reader.readline()
            writer.write(reply)
        await reader.readline()
        for reply in replies:
            writer.write(reply)
            await reader.read(1)
        await stopped.wait()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield RelayAddress(name="stopping", host="127.0.0.1", port=port, tls="none")
    finally:
        stopped.set()
        listener.close()
