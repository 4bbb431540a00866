"""Up to a thousand mails in one body, with one result for each."""

from collections.abc import Sequence

import msgspec

from penstock.base.errors import InvalidInput
from penstock.contract.http import Content, Stream
from penstock.domains.mail import wire
from penstock.domains.mail.batcher import MailBatcher
from penstock.domains.mail.enqueue import Mailer
from penstock.domains.mail.new_mail import PreparedMail
from penstock.kernel.errors import KeyConflict
from penstock.kernel.item import Accepted

BODY_BYTES_MAX = 32 * 1024 * 1024

_array = msgspec.json.Decoder(list[msgspec.Raw])
_mail = msgspec.json.Decoder(wire.NewMail)


async def answer_batch(stream: Stream, *, mailer: Mailer, batcher: MailBatcher) -> Content:
    """Accept the mails of a body, and return a result for each."""
    entries = await _entries(stream)
    prepared = dict[int, PreparedMail]()
    results: dict[int, wire.Result] = {}
    for index, entry in enumerate(entries):
        try:
            prepared[index] = await mailer.prepare(wire.to_new_mail(_read(entry)))
        except InvalidInput as refused:
            results[index] = wire.Result(index=index, outcome="invalid", detail=str(refused))
    if prepared:
        answers = await batcher.accept_many(list(prepared.values()))
        for index, answer in zip(prepared, answers, strict=True):
            results[index] = _result(index, answer)
    answer = msgspec.json.encode([results[index] for index in range(len(entries))])
    return Content(body=answer, media_type=stream.media_type)


async def read_all(stream: Stream) -> bytes:
    """Return a streamed body as a whole; its size is limited by the endpoint."""
    body = bytearray()
    async for chunk in stream.chunks:
        body += chunk
    return bytes(body)


async def _entries(stream: Stream) -> Sequence[msgspec.Raw]:
    try:
        entries = _array.decode(await read_all(stream))
    except msgspec.DecodeError as malformed:
        raise InvalidInput("body", f"is not a JSON array: {malformed}") from malformed
    except RecursionError as deep:
        raise InvalidInput("body", "is nested too deeply") from deep
    if not 1 <= len(entries) <= wire.BATCH_MAX:
        raise InvalidInput("body", f"must have 1 to {wire.BATCH_MAX:,} mails")
    return entries


def _read(entry: msgspec.Raw) -> wire.NewMail:
    try:
        return _mail.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:
        raise InvalidInput("mail", str(malformed)) from malformed


def _result(index: int, answer: Accepted | Exception) -> wire.Result:
    match answer:
        case Accepted():
            outcome = "accepted" if answer.is_new else "existing"
            return wire.Result(index=index, outcome=outcome, id=answer.id)
        case KeyConflict():
            return wire.Result(index=index, outcome="conflict", detail=str(answer))
        case InvalidInput():
            return wire.Result(index=index, outcome="invalid", detail=str(answer))
        case _:
            raise answer
