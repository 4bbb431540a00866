"""Mail over REST: accept, list, show, preview, cancel, replay, and what is refused."""

import base64
import json
from typing import Any

import pytest

from penstock.base.clock import FakeClock
from tests.domains.mail.outbox import ADA, BEN, Outbox, body_of, opened_outbox
from tests.smtp_server import SmtpServer, serving

BODY: dict[str, Any] = {"from": "shop@example.com", "to": [ADA], "subject": "Hi", "text": "Hello."}


async def test_a_mail_is_accepted_and_shown_with_its_story(
    outbox: Outbox, relay: SmtpServer
) -> None:
    relay.on("RCPT", "450 4.2.1 busy", argument=BEN)
    accepted = body_of(
        await outbox.client.post("/mails", json=BODY | {"to": [ADA, BEN], "tags": ["order"]}), 202
    )
    await outbox.run()

    shown = body_of(await outbox.client.get(f"/mails/{accepted['id']}"))

    assert accepted["is_new"]
    assert shown["mail"]["status"] == "queued"
    assert shown["mail"]["last_error"] == "450 4.2.1 busy"
    assert [each["result"] for each in shown["recipients"]] == ["sent", None]
    assert [each["outcome"] for each in shown["attempts"]] == ["retry"]


async def test_a_key_identifies_one_mail(outbox: Outbox) -> None:
    first = body_of(await outbox.client.post("/mails", json=BODY | {"key": "order-1"}), 202)
    again = body_of(await outbox.client.post("/mails", json=BODY | {"key": "order-1"}), 202)
    other = await outbox.client.post("/mails", json=BODY | {"key": "order-1", "text": "Other."})

    assert again == {"id": first["id"], "is_new": False}
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"to": ["nobody"]}, "to[0]"),
        ({"to": []}, "to"),
        ({"from": "a@b@c"}, "from"),
        ({"subject": "a\r\nBcc: x@y.org"}, "subject"),
        ({"headers": {"X-A": "a\nb"}}, "headers.X-A"),
        ({"headers": {"Bcc": "x@y.org"}}, "headers.Bcc"),
        ({"subject": None}, "subject"),
        ({"text": None}, "text"),
        ({"relay": "unknown"}, "relay"),
        ({"template": "unknown", "subject": None, "text": None}, "template"),
        ({"unsubscribe": True}, "unsubscribe"),
        ({"tags": ["x"] * 21}, "tags"),
        ({"colour": "red"}, "colour"),
        ({"not_after": "2020-01-01T00:00:00Z", "not_before": "2021-01-01T00:00:00Z"}, "not_after"),
    ],
)
async def test_bad_input_is_refused_with_its_field_and_nothing_is_queued(
    outbox: Outbox, change: dict[str, Any], field: str
) -> None:
    refused = await outbox.client.post("/mails", json=BODY | change)

    assert refused.status_code == 400, refused.text
    assert refused.json()["field"] == field
    assert await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.item") == 0


async def test_a_template_that_pads_without_bound_is_refused_with_its_filter(
    outbox: Outbox,
) -> None:
    template = {"name": "pad", "subject": "Hi", "text": "{{ name | center(width) }}"}
    body_of(await outbox.client.post("/mail-templates", json=template), 201)
    mail = {"from": "shop@example.com", "to": [ADA], "template": "pad"}

    refused = await outbox.client.post(
        "/mails", json=mail | {"variables": {"name": "Ada", "width": 10**9}}
    )
    accepted = await outbox.client.post(
        "/mails", json=mail | {"variables": {"name": "Ada", "width": 9}}
    )

    assert refused.status_code == 400
    assert refused.json()["field"] == "text"
    assert "center" in refused.json()["detail"]
    body_of(accepted, 202)


async def test_an_attachment_that_is_too_large_is_refused(outbox: Outbox) -> None:
    large = base64.b64encode(b"x" * 10_485_761).decode()

    refused = await outbox.client.post(
        "/mails", json=BODY | {"attachments": [{"content": large, "filename": "a.bin"}]}
    )

    assert refused.status_code == 400
    assert refused.json()["field"] == "attachments[0]"
    assert await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.mail_blob") == 0


async def test_a_batch_is_answered_mail_by_mail(outbox: Outbox) -> None:
    mails = [BODY | {"key": "a"}, BODY | {"to": ["bad"]}, BODY | {"key": "a", "text": "Other."}]

    answered = await outbox.client.post(
        "/mails/batch",
        content=json.dumps(mails),
        headers={"Content-Type": "application/json"},
    )

    outcomes = [each["outcome"] for each in body_of(answered)]
    assert outcomes == ["accepted", "invalid", "conflict"]
    assert await outbox.app.pool.fetchval("SELECT count(*) FROM penstock.mail") == 1


async def test_mails_are_found_by_recipient_tag_and_status(outbox: Outbox) -> None:
    first = await outbox.send(ADA, tags=["order"])
    await outbox.run()
    second = await outbox.send(BEN)

    async def ids(**query: str) -> list[int]:
        page = body_of(await outbox.client.get("/mails", params=query))
        return [each["id"] for each in page["mails"]]

    assert await ids() == [second, first]
    assert await ids(recipient=ADA.upper()) == [first]
    assert await ids(tag="order") == [first]
    assert await ids(status="queued") == [second]
    assert await ids(status="sent") == [first]
    assert await ids(until="2020-01-01T00:00:00Z") == []


async def test_pages_of_mails_follow_each_other(outbox: Outbox) -> None:
    sent = [await outbox.send(ADA) for _ in range(3)]

    first = body_of(await outbox.client.get("/mails", params={"limit": 2}))
    second = body_of(await outbox.client.get("/mails", params={"after": first["next"]}))

    assert [each["id"] for each in first["mails"] + second["mails"]] == sent[::-1]
    assert second["next"] is None


async def test_a_preview_is_what_the_relay_gets(outbox: Outbox, relay: SmtpServer) -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    accepted = body_of(
        await outbox.client.post(
            "/mails",
            json=BODY | {"attachments": [{"content": picture, "filename": "a.png"}]},
        ),
        202,
    )
    await outbox.run()

    shown = await outbox.client.get(f"/mails/{accepted['id']}/preview")

    assert shown.headers["content-type"].startswith("message/rfc822")
    assert shown.content == relay.messages[0].content


async def test_a_cancelled_mail_is_not_sent(outbox: Outbox, relay: SmtpServer) -> None:
    mail_id = await outbox.send(ADA)

    cancelled = body_of(await outbox.client.post(f"/mails/{mail_id}/cancel"))

    assert cancelled["status"] == "cancelled"
    assert await outbox.run() == []
    assert relay.messages == []


async def test_a_replay_sends_to_those_who_did_not_get_it(
    outbox: Outbox, relay: SmtpServer
) -> None:
    await outbox.set_lane(max_attempts=1)
    relay.on("RCPT", "451 4.3.0 try later", argument=BEN)
    mail_id = await outbox.send(ADA, BEN)
    await outbox.run()
    assert (await outbox.row(mail_id))["status"] == "failed"

    body_of(await outbox.client.post(f"/mails/{mail_id}/replay"))
    await outbox.run()

    assert (await outbox.row(mail_id))["status"] == "sent"
    assert [each.recipients for each in relay.messages] == [(ADA,), (BEN,)]
    shown = body_of(await outbox.client.get(f"/mails/{mail_id}"))
    assert [each["result"] for each in shown["recipients"]] == ["sent", "sent"]
    (past,) = shown["past_results"]
    assert (past["recipient_no"], past["address"], past["result"]) == (1, BEN, "failed")
    assert past["reply"] == "451 4.3.0 try later"
    assert past["replayed_at"] is not None


async def test_a_partly_failed_mail_is_found_and_replayed_for_those_who_failed(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """Otherwise nobody sees that one of two recipients did not get the mail."""
    relay.on("RCPT", "550 5.7.1 not allowed", argument=BEN)
    mail_id = await outbox.send(ADA, BEN)
    await outbox.run()

    failed = body_of(await outbox.client.get("/mails", params={"status": "failed"}))["mails"]
    body_of(await outbox.client.post(f"/mails/{mail_id}/replay"))
    await outbox.run()

    assert [each["id"] for each in failed] == [mail_id]
    assert (failed[0]["recipients_sent"], failed[0]["recipients_failed"]) == (1, 1)
    assert [each.recipients for each in relay.messages] == [(ADA,), (BEN,)]
    row = await outbox.row(mail_id)
    assert (row["status"], row["recipients_sent"], row["last_error"]) == ("sent", 2, None)


async def test_a_suppressed_recipient_does_not_fail_the_mail_for_others(
    outbox: Outbox, relay: SmtpServer
) -> None:
    """The list did what it is for; there is nothing to replay."""
    await outbox.client.post("/mail-suppressions", json={"address": BEN})
    mail_id = await outbox.send(ADA, BEN)

    await outbox.run()

    assert await outbox.results(mail_id) == ["sent", "suppressed"]
    assert (await outbox.row(mail_id))["status"] == "sent"
    assert len(relay.messages) == 1


async def test_an_unknown_mail_is_not_found(outbox: Outbox) -> None:
    for method, path in (
        ("GET", "/mails/1"),
        ("GET", "/mails/1/preview"),
        ("POST", "/mails/1/cancel"),
        ("POST", "/mails/1/replay"),
    ):
        answer = await outbox.client.request(method, path)
        assert answer.status_code == 404, path
        assert answer.json()["type"].endswith("unknown-mail"), path


async def test_a_template_is_rendered_when_the_mail_is_accepted(outbox: Outbox) -> None:
    template = {"name": "order", "subject": "Order {{ number }}", "text": "Hi {{ name }}"}
    body_of(await outbox.client.post("/mail-templates", json=template), 201)
    asked = {"from": "shop@example.com", "to": [ADA], "template": "order", "key": "k"}

    missing = await outbox.client.post("/mails", json=asked | {"variables": {"number": 1}})
    accepted = body_of(
        await outbox.client.post("/mails", json=asked | {"variables": {"number": 1, "name": "A"}}),
        202,
    )
    newer = template | {"text": "Dear {{ name }}"}
    assert body_of(await outbox.client.post("/mail-templates", json=newer), 201)["version"] == 2
    again = body_of(
        await outbox.client.post("/mails", json=asked | {"variables": {"number": 1, "name": "A"}}),
        202,
    )

    assert missing.json()["field"] == "variables"
    assert again == {"id": accepted["id"], "is_new": False}
    preview = await outbox.client.get(f"/mails/{accepted['id']}/preview")
    assert "Subject: Order 1" in preview.text
    assert "Hi A" in preview.text


async def test_a_bounce_suppresses_the_address(outbox: Outbox, relay: SmtpServer) -> None:
    taken = body_of(
        await outbox.client.post(
            "/mails/bounces",
            content=json.dumps({"kind": "hard", "recipient": ADA, "enhanced": "5.1.1"}),
            headers={"Content-Type": "application/json"},
        )
    )
    mail_id = await outbox.send(ADA)
    await outbox.run()

    assert taken == {"bounces": 1, "suppressed": 1, "unmatched": 0}
    listed = body_of(await outbox.client.get("/mail-suppressions"))["suppressions"]
    assert [(each["address"], each["reason"]) for each in listed] == [(ADA, "hard_bounce")]
    assert (await outbox.row(mail_id))["last_error"] == "all recipients are suppressed"
    assert relay.messages == []
    assert (await outbox.client.delete(f"/mail-suppressions/{ADA}")).status_code == 204


REPORTS = {
    "a delivery report": (
        "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/delivery-status\n"
        "\nReporting-MTA: dns; mx.example.org\n\nFinal-Recipient: rfc822; {recipient}\n"
        "Action: failed\nStatus: 5.1.1\n--b\nContent-Type: message/rfc822\n\n"
        "Message-ID: {message_id}\n\nHi\n--b--\n"
    ),
    "a complaint": (
        "Content-Type: multipart/report; boundary=b\n\n--b\nContent-Type: message/feedback-report\n"
        "\nFeedback-Type: abuse\nOriginal-Rcpt-To: {recipient}\n--b\n"
        "Content-Type: message/rfc822\n\nMessage-ID: {message_id}\n\nHi\n--b--\n"
    ),
}


async def report(outbox: Outbox, kind: str, **values: object) -> Any:
    """Hand a report in, and return the answer."""
    answer = await outbox.client.post(
        "/mails/bounces",
        content=REPORTS[kind].format(**values),
        headers={"Content-Type": "message/rfc822"},
    )
    return body_of(answer)


async def suppressed(outbox: Outbox) -> list[str]:
    listed = body_of(await outbox.client.get("/mail-suppressions"))["suppressions"]
    return [each["address"] for each in listed]


@pytest.mark.parametrize("kind", REPORTS)
async def test_a_report_about_a_mail_that_was_sent_suppresses_its_recipient(
    outbox: Outbox, relay: SmtpServer, kind: str
) -> None:
    await outbox.send(ADA, BEN)
    await outbox.run()
    message_id = message_id_of(relay)

    taken = await report(outbox, kind, recipient="Ada@example.org", message_id=message_id)

    assert taken == {"bounces": 1, "suppressed": 1, "unmatched": 0}
    assert await suppressed(outbox) == [ADA]


@pytest.mark.parametrize("kind", REPORTS)
async def test_a_report_that_matches_no_mail_suppresses_nobody(
    outbox: Outbox, relay: SmtpServer, kind: str
) -> None:
    """Anybody can write a report; an address of a customer must not be lost by it."""
    await outbox.send(ADA)
    await outbox.run()
    ours = message_id_of(relay)
    salt = ours.partition(".")[2]
    reported = [
        (ADA, "<4711@elsewhere.example>"),  # Of no mail of this database.
        (ADA, f"<4711.{salt}"),  # Of a mail that does not exist.
        (BEN, ours),  # To somebody who was not a recipient.
    ]

    answers = [
        await report(outbox, kind, recipient=recipient, message_id=message_id)
        for recipient, message_id in reported
    ]

    assert answers == [{"bounces": 1, "suppressed": 0, "unmatched": 1}] * 3
    assert await suppressed(outbox) == []


def message_id_of(relay: SmtpServer) -> str:
    (line,) = [
        each for each in relay.messages[-1].content.splitlines() if each.startswith(b"Message-ID:")
    ]
    return line.partition(b" ")[2].decode()


async def test_a_domain_of_another_group_is_refused_with_its_group(outbox: Outbox) -> None:
    """It would leave the limit of that group without anybody noticing."""
    google = {"name": "google", "domains": ["gmail.com", "example.org"]}
    body_of(await outbox.client.put("/mail-groups", json=google))
    other = {"name": "other", "domains": ["example.net", "gmail.com"]}

    refused = await outbox.client.put("/mail-groups", json=other)
    smaller = google | {"domains": ["example.org"]}
    body_of(await outbox.client.put("/mail-groups", json=smaller))
    body_of(await outbox.client.put("/mail-groups", json=other))

    assert refused.status_code == 400
    assert refused.json()["field"] == "domains"
    assert "gmail.com in google" in refused.json()["detail"]
    groups = body_of(await outbox.client.get("/mail-groups"))["groups"]
    assert groups == [smaller, {"name": "other", "domains": ["example.net", "gmail.com"]}]


@pytest.mark.parametrize("scope", ["relay", "group"])
async def test_a_limit_of_something_unknown_is_refused(outbox: Outbox, scope: str) -> None:
    """With a typing error in its name it would limit nothing."""
    refused = await outbox.client.put(
        "/mail-limits", json={"scope": scope, "name": "goggle", "per_second": 1}
    )

    assert refused.status_code == 400
    assert (refused.json()["field"], scope in refused.json()["detail"]) == ("name", True)
    for name in ("*", "default") if scope == "relay" else ("*",):
        limit = {"scope": scope, "name": name, "per_second": 1}
        body_of(await outbox.client.put("/mail-limits", json=limit))


@pytest.mark.parametrize("reason", ["hard_bounce", "complaint", "unsubscribe", "manual"])
async def test_a_mail_can_override_the_suppression_list(
    outbox: Outbox, relay: SmtpServer, reason: str
) -> None:
    """For that mail alone; the list does not change."""
    suppressed = {"address": ADA, "reason": reason}
    assert (await outbox.client.post("/mail-suppressions", json=suppressed)).status_code == 204
    asked = BODY | {"bulk": True}

    overriding = body_of(
        await outbox.client.post("/mails", json=asked | {"override_suppression": True}), 202
    )
    usual = body_of(await outbox.client.post("/mails", json=asked), 202)
    await outbox.run()

    assert await outbox.results(overriding["id"]) == ["sent"]
    assert await outbox.results(usual["id"]) == ["suppressed"]
    assert len(relay.messages) == 1


async def test_a_mail_from_sql_can_override_the_suppression_list(
    outbox: Outbox, relay: SmtpServer
) -> None:
    await outbox.client.post("/mail-suppressions", json={"address": ADA})
    send = (
        "SELECT penstock.send_mail('a@example.com', ARRAY[$1], 'Hi', 't',"
        " override_suppression => $2)"
    )
    overriding = await outbox.app.pool.fetchval(send, ADA, True)
    usual = await outbox.app.pool.fetchval(send, ADA, False)

    await outbox.run()

    assert await outbox.results(overriding) == ["sent"]
    assert await outbox.results(usual) == ["suppressed"]
    assert len(relay.messages) == 1


async def test_one_click_unsubscribes_from_newsletters_and_not_from_other_mail(
    dsn: str, clock: FakeClock
) -> None:
    async with (
        serving(SmtpServer()) as relay,
        opened_outbox(dsn, clock, public_url="https://mail.example.com") as outbox,
    ):
        await outbox.relay_to(relay)
        await outbox.send(ADA, unsubscribe=True, bulk=True)
        await outbox.run()
        header = next(
            line
            for line in relay.messages[0].content.decode().splitlines()
            if line.startswith("List-Unsubscribe: ")
        )
        path = header.partition("https://mail.example.com")[2].rstrip(">")

        page = await outbox.client.get(path)
        answer = await outbox.client.post(path, data={"List-Unsubscribe": "One-Click"})
        newsletter = await outbox.send(ADA, unsubscribe=True, bulk=True)
        password = await outbox.send(ADA)
        await outbox.run()

        assert page.status_code == 200
        assert answer.status_code == 200, answer.text
        assert await outbox.results(newsletter) == ["suppressed"]
        assert await outbox.results(password) == ["sent"]


async def test_the_password_of_a_relay_is_never_shown(outbox: Outbox) -> None:
    relay = {"name": "main", "host": "smtp.example.com", "username": "u", "password": "hunter2"}
    made = await outbox.client.put("/mail-relays", json=relay)
    listed = await outbox.client.get("/mail-relays")

    assert made.status_code == 200, made.text
    assert "hunter2" not in made.text + listed.text
    assert b"hunter2" not in await outbox.app.pool.fetchval(
        "SELECT sealed_password FROM penstock.mail_relay"
    )
