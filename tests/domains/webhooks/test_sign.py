"""Signatures that other people's verifiers accept, and a verifier that accepts nothing else."""

import hashlib
import hmac
import time
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta

import pytest
import standardwebhooks
import svix.webhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import WebhookVerificationError

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.secret import (
    PROFILES,
    Ed25519Secret,
    Profile,
    make_secret,
    public_key,
    read_public_key,
    read_secret,
)
from penstock.domains.webhooks.sign import SIGNATURES_MAX, SignatureRefused, Signer, verify

MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = '{"id":"evt_1","type":"order.paid","data":{"total":1.0,"to":"Zoë"}}'.encode()
AT = 1_614_265_330
NOW = datetime.fromtimestamp(AT, UTC)

OLD, NEW = "whsec_" + b64encode(b"o" * 32).decode(), "whsec_" + b64encode(b"n" * 32).decode()
PRIVATE_SIGNATURE = (
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)
PRIVATE = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
)

each_profile = pytest.mark.parametrize("profile", PROFILES)


def sign(
    profile: Profile, *texts: str, at: int = AT, body: bytes = BODY, message_id: str = MESSAGE_ID
) -> dict[str, str]:
    """Sign with secrets given as texts and return the headers by name."""
    signer = Signer(profile, [read_secret(text, profile) for text in texts])
    return read_lines(signer.headers(message_id, at, body))


def read_lines(lines: bytes) -> dict[str, str]:
    assert lines.endswith(b"\r\n")
    parts = [line.partition(": ") for line in lines.decode("ascii").split("\r\n")[:-1]]
    return {name: value for name, _, value in parts}


def verify_by(
    text: str,
    headers: dict[str, str],
    profile: Profile,
    *,
    body: bytes = BODY,
    now: datetime = NOW,
) -> str | None:
    """Verify with one secret and return the word of a refusal."""
    secrets = [read_secret(text, profile)]
    refused = verify(headers, body, profile=profile, secrets=secrets, now=now)
    return None if refused is None else refused.word


# ----------------------------------------------------------------------- other people's verifiers


@pytest.mark.covers("B23", "B72")
def test_the_library_of_standard_webhooks_accepts_what_we_sign() -> None:
    headers = sign("standard", NEW, at=int(time.time()))

    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature"]
    assert standardwebhooks.Webhook(NEW).verify(BODY, headers)["id"] == "evt_1"


@pytest.mark.covers("B23")
def test_the_library_of_svix_accepts_what_we_sign() -> None:
    headers = sign("svix", NEW, at=int(time.time()))

    assert list(headers) == ["webhook-id", "svix-id", "svix-timestamp", "svix-signature"]
    svix.webhooks.Webhook(NEW).verify(BODY, headers)


def test_the_library_of_svix_accepts_the_standard_profile_too() -> None:
    svix.webhooks.Webhook(NEW).verify(BODY, sign("standard", NEW, at=int(time.time())))


@pytest.mark.covers("B23", "B72")
@pytest.mark.parametrize(
    ("secret", "age_seconds", "changed"),
    [
        (OLD, 0, {}),
        (NEW, 330, {}),
        (NEW, -330, {}),
        (NEW, 0, {"webhook-id": "msg_2"}),
        (NEW, 0, {"webhook-timestamp": str(int(time.time()) - 100)}),
    ],
    ids=["another secret", "an old attempt", "one from the future", "another id", "another time"],
)
def test_the_library_of_standard_webhooks_refuses(
    secret: str, age_seconds: int, changed: dict[str, str]
) -> None:
    headers = sign("standard", NEW, at=int(time.time()) - age_seconds)

    with pytest.raises(WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(BODY, headers | changed)


def test_the_library_of_standard_webhooks_refuses_another_body() -> None:
    headers = sign("standard", NEW, at=int(time.time()))

    with pytest.raises(WebhookVerificationError):
        standardwebhooks.Webhook(NEW).verify(BODY.replace(b"1.0", b"1.00"), headers)


@pytest.mark.covers("B72")
@pytest.mark.parametrize("secret", [OLD, NEW])
def test_while_a_rotation_overlaps_both_secrets_are_good(secret: str) -> None:
    """Receivers change theirs when it suits them, and no delivery is refused in between."""
    headers = sign("standard", NEW, OLD, at=int(time.time()))

    standardwebhooks.Webhook(secret).verify(BODY, headers)


def test_the_newest_secret_signs_first() -> None:
    both = sign("standard", NEW, OLD)["webhook-signature"]

    newest, oldest = both.split(" ")
    assert newest == sign("standard", NEW)["webhook-signature"]
    assert oldest == sign("standard", OLD)["webhook-signature"]


@pytest.mark.covers("B72")
def test_a_later_attempt_is_signed_anew_under_the_same_id() -> None:
    """A retry after an hour must not look like a replay, and must be known as a repetition."""
    signer = Signer("standard", [read_secret(NEW, "standard")])
    now = int(time.time())

    first = read_lines(signer.headers(MESSAGE_ID, now - 60, BODY))
    second = read_lines(signer.headers(MESSAGE_ID, now, BODY))

    for headers in (first, second):
        standardwebhooks.Webhook(NEW).verify(BODY, headers)
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-signature"] != second["webhook-signature"]


@pytest.mark.covers("B72")
def test_a_receiver_with_the_public_key_verifies_and_cannot_sign() -> None:
    text = make_secret("ed25519")
    secret = read_secret(text, "standard")
    assert isinstance(secret, Ed25519Secret)
    public = public_key(secret)

    headers = sign("standard", text)

    version, signature = headers["webhook-signature"].split(",")
    raw = b64decode(public.removeprefix("whpk_"), validate=True)
    key = ed25519.Ed25519PublicKey.from_public_bytes(raw)
    key.verify(b64decode(signature, validate=True), f"{MESSAGE_ID}.{AT}.".encode() + BODY)
    assert version == "v1a"
    with pytest.raises(InvalidSignature):
        key.verify(b64decode(signature), f"{MESSAGE_ID}.{AT + 1}.".encode() + BODY)


def test_a_rotation_from_hmac_to_a_pair_suits_both_kinds_of_receivers() -> None:
    """Libraries that know only HMAC pass over the other signature."""
    headers = sign("standard", PRIVATE, NEW, at=int(time.time()))

    standardwebhooks.Webhook(NEW).verify(BODY, headers)
    assert headers["webhook-signature"].startswith("v1a,")


# ------------------------------------------------------------------------------ published examples


@pytest.mark.parametrize("profile", ["standard", "svix"])
@pytest.mark.parametrize(
    ("secret", "signature"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (PRIVATE, PRIVATE_SIGNATURE),
    ],
    ids=["hmac", "ed25519"],
)
def test_the_example_of_standard_webhooks(profile: Profile, secret: str, signature: str) -> None:
    """The values are in the project's tests and, for ed25519, in the text of the standard."""
    headers = sign(profile, secret, body=b'{"test": 2432232314}')

    prefix = "webhook" if profile == "standard" else "svix"
    assert headers[f"{prefix}-id"] == MESSAGE_ID
    assert headers[f"{prefix}-timestamp"] == "1614265330"
    assert headers[f"{prefix}-signature"] == signature


@pytest.mark.covers("B23")
def test_the_example_of_github() -> None:
    headers = sign("github", "It's a Secret to Everybody", body=b"Hello, World!")

    assert headers == {
        "webhook-id": MESSAGE_ID,
        "X-Hub-Signature-256": (
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        ),
    }


@pytest.mark.covers("B23")
def test_stripe_gets_one_signature_for_each_secret() -> None:
    """Computed here by its documentation: time, a dot and the body, under the secret's text."""
    signed = f"{AT}.".encode() + BODY
    newest, oldest = (
        hmac.new(text.encode(), signed, hashlib.sha256).hexdigest() for text in (NEW, OLD)
    )

    headers = sign("stripe", NEW, OLD)

    assert headers == {
        "webhook-id": MESSAGE_ID,
        "Stripe-Signature": f"t={AT},v1={newest},v1={oldest}",
    }


def test_github_gets_one_signature_by_the_newest_secret() -> None:
    """Its receivers compare the whole header, so there is no room for a second one."""
    assert sign("github", NEW, OLD) == sign("github", NEW)


# ------------------------------------------------------------------------------------ what we sign


@each_profile
def test_every_profile_sends_the_id_of_the_message(profile: Profile) -> None:
    assert sign(profile, NEW)["webhook-id"] == MESSAGE_ID


@each_profile
@pytest.mark.parametrize(
    "message_id",
    ["", "a b", "msg_1\r\nX-Evil: 1", "msg_1\n", "msg.1", "msg_ä", "m" * 129, "a:b"],
    ids=ascii,
)
def test_an_id_that_could_end_a_header_or_shift_the_timestamp_is_refused(
    profile: Profile, message_id: str
) -> None:
    signer = Signer(profile, [read_secret(NEW, profile)])

    with pytest.raises(InvalidInput):
        signer.headers(message_id, AT, BODY)


@pytest.mark.parametrize("profile", ["github", "stripe"])
def test_profiles_that_know_only_hmac_refuse_a_pair(profile: Profile) -> None:
    with pytest.raises(InvalidInput):
        Signer(profile, [read_secret(PRIVATE, "standard")])


# -------------------------------------------------------------------------------- our own verifier


@each_profile
@given(body=st.binary(max_size=200), secret=st.binary(min_size=24, max_size=64))
def test_what_we_sign_we_verify(profile: Profile, body: bytes, secret: bytes) -> None:
    text = "whsec_" + b64encode(secret).decode()

    assert verify_by(text, sign(profile, text, body=body), profile, body=body) is None


@each_profile
def test_names_of_headers_are_compared_without_case(profile: Profile) -> None:
    headers = {name.upper(): value for name, value in sign(profile, NEW).items()}

    assert verify_by(NEW, headers, profile) is None


@pytest.mark.parametrize("profile", ["standard", "svix", "stripe"])
def test_either_secret_of_a_rotation_verifies(profile: Profile) -> None:
    headers = sign(profile, NEW, OLD)

    assert verify_by(NEW, headers, profile) is None
    assert verify_by(OLD, headers, profile) is None


@each_profile
def test_a_receiver_may_have_several_secrets(profile: Profile) -> None:
    secrets = [read_secret(text, profile) for text in (OLD, NEW)]

    assert verify(sign(profile, NEW), BODY, profile=profile, secrets=secrets, now=NOW) is None


@pytest.mark.parametrize("key", [PRIVATE, "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="])
def test_a_pair_verifies_by_either_half(key: str) -> None:
    is_public = key.startswith("whpk_")
    secret = read_public_key(key) if is_public else read_secret(key, "standard")
    headers = sign("standard", PRIVATE)

    good = verify(headers, BODY, profile="standard", secrets=[secret], now=NOW)
    bad = verify(headers, BODY + b" ", profile="standard", secrets=[secret], now=NOW)

    assert good is None
    assert bad is not None
    assert bad.word == "mismatch"


@each_profile
def test_another_secret_or_body_is_a_mismatch(profile: Profile) -> None:
    headers = sign(profile, NEW)

    assert verify_by(OLD, headers, profile) == "mismatch"
    assert verify_by(NEW, headers, profile, body=BODY + b"\n") == "mismatch"
    assert verify(headers, BODY, profile=profile, secrets=[], now=NOW) is not None


@pytest.mark.parametrize("profile", ["standard", "svix", "stripe"])
@pytest.mark.parametrize(
    ("seconds", "word"),
    [(0, None), (300, None), (-300, None), (301, "too-old"), (-301, "too-new")],
)
def test_the_time_of_signing_may_be_off_by_five_minutes(
    profile: Profile, seconds: int, word: str | None
) -> None:
    later = NOW + timedelta(seconds=seconds)

    assert verify_by(NEW, sign(profile, NEW), profile, now=later) == word


def test_a_refusal_says_why_to_people_too() -> None:
    later = NOW + timedelta(hours=1)
    secrets = [read_secret(NEW, "standard")]

    refused = verify(sign("standard", NEW), BODY, profile="standard", secrets=secrets, now=later)

    assert refused == SignatureRefused("too-old", "it was signed 3600 seconds ago")


@each_profile
def test_a_header_that_is_not_there_is_missing(profile: Profile) -> None:
    headers = sign(profile, NEW)
    needed = [name for name in headers if name != "webhook-id" or profile == "standard"]

    for name in needed:
        others = {each: value for each, value in headers.items() if each != name}
        assert verify_by(NEW, others, profile) == "missing"
        assert verify_by(NEW, headers | {name: ""}, profile) == "missing"


A_SIGNATURE = sign("standard", NEW)["webhook-signature"]


@pytest.mark.parametrize(
    ("profile", "changed", "word"),
    [
        ("standard", {"webhook-timestamp": "soon"}, "malformed"),
        ("standard", {"webhook-timestamp": f"{AT}.0"}, "malformed"),
        ("standard", {"webhook-timestamp": f"-{AT}"}, "malformed"),
        ("standard", {"webhook-timestamp": "1" * 5000}, "malformed"),
        ("standard", {"webhook-timestamp": "١٦١٤٢٦٥٣٣٠"}, "malformed"),
        ("standard", {"webhook-timestamp": str(AT + 1)}, "mismatch"),
        ("standard", {"webhook-id": "msg_2"}, "mismatch"),
        ("standard", {"webhook-id": "msg.2"}, "malformed"),
        ("standard", {"webhook-id": "\ud800"}, "mismatch"),
        ("standard", {"webhook-signature": A_SIGNATURE.removeprefix("v1,")}, "mismatch"),
        ("standard", {"webhook-signature": A_SIGNATURE.replace("v1,", "v1a,")}, "mismatch"),
        ("standard", {"webhook-signature": A_SIGNATURE.replace("v1,", "v2,")}, "mismatch"),
        ("standard", {"webhook-signature": A_SIGNATURE[:-1]}, "mismatch"),
        ("standard", {"webhook-signature": "v1,ü\ud800"}, "mismatch"),
        ("standard", {"webhook-signature": "v1,AAAA " * SIGNATURES_MAX + A_SIGNATURE}, "malformed"),
        ("standard", {"webhook-signature": "v1,AAAA v1a,??? " + A_SIGNATURE}, None),
        ("github", {"X-Hub-Signature-256": "757107"}, "malformed"),
        ("github", {"X-Hub-Signature-256": "sha1=757107"}, "malformed"),
        ("github", {"X-Hub-Signature-256": "sha256="}, "mismatch"),
        ("stripe", {"Stripe-Signature": "v1=00"}, "malformed"),
        ("stripe", {"Stripe-Signature": f"t={AT},t={AT},v1=00"}, "malformed"),
        ("stripe", {"Stripe-Signature": f"t={AT}"}, "mismatch"),
        ("stripe", {"Stripe-Signature": f"t={AT},v0=00"}, "mismatch"),
    ],
)
def test_headers_that_were_changed_are_refused_with_a_word(
    profile: Profile, changed: dict[str, str], word: str | None
) -> None:
    assert verify_by(NEW, sign(profile, NEW) | changed, profile) == word


@pytest.mark.parametrize(
    "signature",
    [
        *("v1a,", "v1a,AAAA", "v1a,!", "v1a", "v1,AAAA"),
        sign("standard", PRIVATE)["webhook-signature"].replace("v1a,", "v1,"),
    ],
)
def test_a_broken_signature_of_a_pair_is_a_mismatch(signature: str) -> None:
    public = read_public_key("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")
    headers = sign("standard", PRIVATE) | {"webhook-signature": signature}

    refused = verify(headers, BODY, profile="standard", secrets=[public], now=NOW)

    assert refused is not None
    assert refused.word == "mismatch"


def test_part_of_a_body_cannot_pose_as_the_timestamp() -> None:
    """The dots between id, time and body are signed too, but not where they stand."""
    old = sign("standard", NEW, at=AT - 86_400, body=f"{AT}.text".encode())
    shifted = old | {"webhook-id": f"{MESSAGE_ID}.{AT - 86_400}", "webhook-timestamp": str(AT)}

    assert verify_by(NEW, shifted, "standard", body=b"text") == "malformed"
