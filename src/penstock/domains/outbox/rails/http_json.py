"""The configurable HTTP rail: JSON out of a template, and a code out of a JSON answer.

Nothing is guessed: an answer without a code becomes `HTTP_<status>` on a send, and no
answer on a query, where a status is about the query and not about the money.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Any, Literal, Protocol, cast

import msgspec

from penstock.base.errors import CallFailed, InvalidInput
from penstock.base.money import currencies
from penstock.domains.outbox.instruction import Instruction
from penstock.domains.outbox.rails.codes import CODE_LENGTH_MAX
from penstock.domains.outbox.rails.rail import (
    NoAnswer,
    NotFound,
    NotSent,
    QueryResult,
    RailAnswer,
    RailProperties,
    SendResult,
    rail_key,
    send_not_after,
)
from penstock.domains.outbox.rails.request_template import (
    check_template,
    check_text,
    fields_of,
    fill,
    fill_header,
    fill_url,
    is_header_value,
    keys_in,
)

# After these kinds of CallFailed the rail has not received the request.
NOT_SENT_KINDS = frozenset({"refused_address", "bad_name", "connect", "tls", "expired"})
TEXT_LENGTH_MAX = 500  # Of a reference or a message of the rail.

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")

Path = tuple[str | int, ...]  # Names of fields and positions in lists, from the outside in.
Headers = Sequence[tuple[str, str]]
Seconds = float


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request. `headers` may hold secrets. It is not written after `not_after`, if it is a POST.

    `not_after` is an instant on the clock of `boot_seconds`.
    """

    method: Literal["GET", "POST"]
    url: str
    headers: Headers
    body: bytes = b""
    not_after: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A complete answer, whatever its status; if `is_truncated`, the body is its beginning."""

    status: int
    body: bytes
    is_truncated: bool = False


class Exchange(Protocol):
    """Sends requests to URLs that operators chose, and never to where it must not go."""

    def check_url(self, url: str) -> None:
        """Raise InvalidInput for a URL that cannot be reached from here."""
        ...

    def check_headers(self, headers: Headers) -> None:
        """Raise InvalidInput for a header that cannot be sent."""
        ...

    async def exchange(self, request: HttpRequest, *, timeout: float) -> HttpAnswer:
        """Send once; raises CallFailed without an answer, InvalidInput before anything is sent."""
        ...


class ReasonPath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a more exact code is, and with which codes it counts: a rejection has a reason."""

    path: Path
    when: tuple[str, ...]


class AnswerPaths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the parts of an answer are."""

    code: Path
    reason: ReasonPath | None = None
    reference: Path | None = None
    message: Path | None = None
    amount: Path | None = None
    amount_minor: Path | None = None
    currency: Path | None = None


class SendConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an instruction is sent: always as POST with a JSON body."""

    url: str
    body: dict[str, Any]
    headers: dict[str, str] = {}


class NotFoundConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which answer to a query means that the rail does not know the instruction.

    Without `codes`, the status alone does; a proxy may have answered it, so it proves nothing.
    """

    statuses: tuple[int, ...] = (404,)
    codes: tuple[str, ...] = ()


class QueryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the rail is asked about an instruction: GET, or POST if there is a body."""

    url: str
    body: dict[str, Any] | None = None
    headers: dict[str, str] = {}
    answer: AnswerPaths | None = None
    not_found: NotFoundConfig = NotFoundConfig()


class HttpJsonConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of a rail with the adapter `http_json`."""

    send: SendConfig
    answer: AnswerPaths
    query: QueryConfig | None = None
    idempotency_header: str | None = None
    secret_header: str = "Authorization"  # noqa: S105  The name of a header.
    secret_prefix: str = "Bearer "  # noqa: S105  Written before the secret.
    key_valid_for_seconds: Seconds | None = None
    not_found_is_final_after_seconds: Seconds | None = None
    is_asynchronous: bool = False
    keeps_order: bool = False


def parse_config(config: Mapping[str, Any]) -> HttpJsonConfig:
    """Return a config that was checked; raises InvalidInput with the field below `config`."""
    try:
        parsed = msgspec.convert(dict(config), HttpJsonConfig)
    except msgspec.ValidationError as refused:
        raise InvalidInput("config", str(refused)) from refused
    _check_request(parsed.send, path="config.send")
    if parsed.query is not None:
        _check_request(parsed.query, path="config.query")
    _check_key(parsed)
    _check_query(parsed)
    _check_not_found(parsed)
    return parsed


def _check_request(request: SendConfig | QueryConfig, *, path: str) -> None:
    check_text(request.url, path=f"{path}.url")
    if not request.url.startswith(("http://", "https://")):
        raise InvalidInput(f"{path}.url", "must begin with http:// or https://")
    check_template(request.body, path=f"{path}.body")
    for name, value in request.headers.items():
        field = f"{path}.headers.{name}"
        _check_header_name(name, field=field)
        check_text(value, path=field)
        if not is_header_value(value):
            raise InvalidInput(field, "contains a character that is not printable ASCII")


def _check_header_name(name: str, *, field: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidInput(field, "is not the name of a header")


def _check_key(config: HttpJsonConfig) -> None:
    header = config.idempotency_header
    if header is not None:
        _check_header_name(header, field="config.idempotency_header")
        if header.lower() in {name.lower() for name in config.send.headers}:
            # Sent twice, it has two values, and the rail may take the other one for the key.
            raise InvalidInput("config.idempotency_header", "is also one of send.headers")
    seconds = config.key_valid_for_seconds
    if seconds is None:
        return
    if seconds <= 0:
        raise InvalidInput("config.key_valid_for_seconds", "must be above 0")
    if not _sent_keys(config):
        reason = "needs idempotency_header, or {key} or {outbox_id} in URL, headers or body"
        raise InvalidInput("config.key_valid_for_seconds", reason)


def _sent_keys(config: HttpJsonConfig) -> frozenset[str]:
    sent = keys_in((config.send.url, config.send.headers, config.send.body))
    return sent if config.idempotency_header is None else sent | {"key"}


def _check_query(config: HttpJsonConfig) -> None:
    if config.query is None:
        return
    asked = keys_in((config.query.url, config.query.headers, config.query.body))
    if not asked:
        # The answer would be about an earlier key of the instruction, or about any instruction.
        raise InvalidInput("config.query", "needs {key} or {outbox_id} in URL, headers or body")
    if not asked & _sent_keys(config):
        # The rail never got it, so it would not find what it has paid.
        named = " and ".join(sorted(asked))
        raise InvalidInput("config.query", f"asks for {named}, which send does not contain")


def _check_not_found(config: HttpJsonConfig) -> None:
    seconds = config.not_found_is_final_after_seconds
    if seconds is None:
        return
    field = "config.not_found_is_final_after_seconds"
    if seconds < 0:
        raise InvalidInput(field, "must not be negative")
    if config.query is None or not config.query.not_found.codes:
        # A wrong URL or a proxy answers 404 too, and the instruction would be paid again.
        raise InvalidInput(field, "needs query.not_found.codes: a status alone proves nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpJsonRail:
    """A rail that speaks JSON over HTTP. `secret` goes into the header that the config names."""

    config: HttpJsonConfig
    exchange: Exchange
    headers: Headers

    @property
    def properties(self) -> RailProperties:
        """Return what the config promises of the rail."""
        return RailProperties(
            key_valid_for=_duration(self.config.key_valid_for_seconds),
            not_found_is_final_after=_duration(self.config.not_found_is_final_after_seconds),
            can_query=self.config.query is not None,
            is_asynchronous=self.config.is_asynchronous,
            keeps_order=self.config.keeps_order,
        )

    async def send(self, instruction: Instruction, *, timeout: timedelta) -> SendResult:
        """Send the instruction once."""
        try:
            request = self._send_request(instruction)
            answer = await self.exchange.exchange(request, timeout=timeout.total_seconds())
        except InvalidInput as refused:
            return NotSent(str(refused))
        except CallFailed as failed:
            return (NotSent if failed.kind in NOT_SENT_KINDS else NoAnswer)(str(failed))
        paths = self.config.answer
        return _read_answer(answer, paths, instruction) or RailAnswer(code=f"HTTP_{answer.status}")

    async def query(self, instruction: Instruction, *, timeout: timedelta) -> QueryResult:
        """Ask what became of the instruction; whatever is not a clear answer is none."""
        config = self.config.query
        if config is None:
            return NoAnswer("this rail cannot be queried")
        try:
            request = self._query_request(config, instruction)
            answer = await self.exchange.exchange(request, timeout=timeout.total_seconds())
        except (CallFailed, InvalidInput) as failed:
            return NoAnswer(str(failed))
        read = _read_answer(answer, config.answer or self.config.answer, instruction)
        if _is_not_found(answer, read, config.not_found):
            return NotFound()
        if read is None or not 200 <= answer.status < 300:
            return NoAnswer(f"HTTP {answer.status} without a status of the instruction")
        return read

    def _send_request(self, instruction: Instruction) -> HttpRequest:
        config, fields = self.config.send, fields_of(instruction)
        headers = self._headers(config.headers, fields, path="config.send.headers")
        if self.config.idempotency_header is not None:
            headers.append((self.config.idempotency_header, rail_key(instruction)))
        return HttpRequest(
            method="POST",
            url=fill_url(config.url, fields, path="config.send.url"),
            headers=headers,
            body=msgspec.json.encode(fill(config.body, fields, path="config.send.body")),
            not_after=send_not_after.get(),
        )

    def _query_request(self, config: QueryConfig, instruction: Instruction) -> HttpRequest:
        fields = fields_of(instruction)
        url = fill_url(config.url, fields, path="config.query.url")
        headers = self._headers(config.headers, fields, path="config.query.headers")
        if config.body is None:
            return HttpRequest(method="GET", url=url, headers=headers)
        body = msgspec.json.encode(fill(config.body, fields, path="config.query.body"))
        return HttpRequest(method="POST", url=url, headers=headers, body=body)

    def _headers(
        self, templates: Mapping[str, str], fields: Mapping[str, Any], *, path: str
    ) -> list[tuple[str, str]]:
        filled = [
            (name, fill_header(each, fields, path=f"{path}.{name}"))
            for name, each in templates.items()
        ]
        return [*self.headers, *filled]


def make_rail(config: HttpJsonConfig, secret: str | None, *, exchange: Exchange) -> HttpJsonRail:
    """Return a rail; raises InvalidInput for what this process may not reach or cannot send."""
    for path, template in (("send", config.send), ("query", config.query)):
        if template is not None:
            _check_url(template.url, exchange, path=f"config.{path}.url")
    headers = [("Content-Type", "application/json"), ("Accept", "application/json")]
    if secret is not None:
        headers.append((config.secret_header, config.secret_prefix + secret))
    exchange.check_headers([*headers, *((name, "") for name in _header_names(config))])
    return HttpJsonRail(config=config, exchange=exchange, headers=headers)


def _header_names(config: HttpJsonConfig) -> list[str]:
    named = [*config.send.headers, *(config.query.headers if config.query else ())]
    return named if config.idempotency_header is None else [*named, config.idempotency_header]


def _check_url(template: str, exchange: Exchange, *, path: str) -> None:
    # Fields may only change the path, so any value shows whether the host may be reached.
    host = template.split("?", 1)[0].split("/", 3)[:3]
    if any("{" in each for each in host):
        raise InvalidInput(path, "must not have a field in its host")
    try:
        exchange.check_url("/".join(host) + "/")
    except InvalidInput as refused:
        raise InvalidInput(path, refused.reason) from refused


def _read_answer(
    answer: HttpAnswer, paths: AnswerPaths, instruction: Instruction
) -> RailAnswer | None:
    """Return what the rail says, or None if its answer is no JSON or has no code."""
    document = _decode(answer)
    code = _code(_at(document, paths.code))
    if code is None:
        return None
    if paths.reason is not None and code in paths.reason.when:
        code = _code(_at(document, paths.reason.path)) or code
    currency = _text(_at(document, paths.currency))
    return RailAnswer(
        code=code,
        reference=_text(_at(document, paths.reference)),
        message=_text(_at(document, paths.message)),
        amount=_amount(document, paths, currency or instruction.currency),
        currency=currency,
    )


def _decode(answer: HttpAnswer) -> object:
    if answer.is_truncated:
        return None
    try:
        # Through floats, 12.10 would become another amount.
        return msgspec.json.Decoder(float_hook=Decimal).decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _at(document: object, path: Path | None) -> object:
    if path is None:
        return None
    for step in path:
        if isinstance(step, str) and isinstance(document, dict):
            document = cast("dict[str, object]", document).get(step)
        elif isinstance(step, int) and isinstance(document, list):
            items = cast("list[object]", document)
            document = items[step] if 0 <= step < len(items) else None
        else:
            return None
    return document


def _code(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    is_code = isinstance(value, str) and 1 <= len(value) <= CODE_LENGTH_MAX
    return cast("str", value) if is_code else None


def _text(value: object) -> str | None:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        value = str(value)
    return value[:TEXT_LENGTH_MAX] if isinstance(value, str) and value else None


def _amount(document: object, paths: AnswerPaths, currency: str) -> Decimal | None:
    amount = _decimal(_at(document, paths.amount))
    if amount is not None:
        return amount
    minor = _decimal(_at(document, paths.amount_minor))
    exponent = currencies().get(currency)
    return None if minor is None or exponent is None else minor.scaleb(-exponent)


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _is_not_found(answer: HttpAnswer, read: RailAnswer | None, rule: NotFoundConfig) -> bool:
    if answer.status not in rule.statuses:
        return False
    return not rule.codes or (read is not None and read.code in rule.codes)


def _duration(seconds: Seconds | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
