"""Signing secrets: made by us, or brought from elsewhere."""

from base64 import b64decode, b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penstock.base.errors import InvalidInput
from penstock.domains.webhooks.secret import (
    PROFILES,
    Ed25519PublicKey,
    Ed25519Secret,
    HmacSecret,
    Profile,
    make_secret,
    public_key,
    read_public_key,
    read_secret,
)

# The pair that Svix publishes in its documentation and tests.
SVIX_PRIVATE = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
)
SVIX_SEED = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc="
SVIX_PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


def hmac_text(length: int) -> str:
    return "whsec_" + b64encode(bytes(length)).decode()


def test_a_new_hmac_secret_has_32_random_bytes() -> None:
    first, second = make_secret(), make_secret()

    assert first.startswith("whsec_")
    assert len(b64decode(first.removeprefix("whsec_"), validate=True)) == 32
    assert first != second


def test_a_new_pair_is_written_as_svix_writes_it() -> None:
    """So that it can be taken elsewhere: seed and public key, one behind the other."""
    text = make_secret("ed25519")
    raw = b64decode(text.removeprefix("whsk_"), validate=True)

    expected = Ed25519PrivateKey.from_private_bytes(raw[:32]).public_key().public_bytes_raw()
    assert raw[32:] == expected
    assert make_secret("ed25519") != text


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_takes_the_secrets_that_we_make(profile: Profile) -> None:
    assert isinstance(read_secret(make_secret(), profile), HmacSecret)


@pytest.mark.parametrize("profile", ["standard", "svix"])
def test_a_prefix_is_not_part_of_a_standard_key(profile: Profile) -> None:
    assert read_secret(hmac_text(24), profile) == HmacSecret(key=bytes(24))


@pytest.mark.parametrize("profile", ["github", "stripe"])
def test_to_github_and_stripe_a_secret_is_its_text(profile: Profile) -> None:
    """Stripe's own secrets begin with whsec_ too, and its libraries use them as they stand."""
    assert read_secret(hmac_text(24), profile) == HmacSecret(key=hmac_text(24).encode())
    assert read_secret("Überall sonst ein Geheimnis", profile) == HmacSecret(
        key="Überall sonst ein Geheimnis".encode()
    )


@pytest.mark.parametrize("length", [24, 25, 26, 64])
def test_a_secret_may_come_without_its_padding(length: int) -> None:
    padded = hmac_text(length)

    assert read_secret(padded.rstrip("="), "standard") == read_secret(padded, "standard")


@pytest.mark.parametrize("text", [SVIX_PRIVATE, SVIX_SEED])
def test_a_private_key_may_come_with_or_without_its_public_half(text: str) -> None:
    secret = read_secret(text, "standard")

    assert isinstance(secret, Ed25519Secret)
    assert public_key(secret) == SVIX_PUBLIC


def test_a_public_key_is_read_back() -> None:
    raw = b64decode(SVIX_PUBLIC.removeprefix("whpk_"))

    assert read_public_key(SVIX_PUBLIC) == Ed25519PublicKey(raw=raw)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must begin with whsec_ or whsk_"),
        (SVIX_PUBLIC, "must begin with whsec_ or whsk_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with whsec_ or whsk_"),
        (hmac_text(23), "has 23 bytes and not from 24 to 64"),
        (hmac_text(65), "has 65 bytes and not from 24 to 64"),
        ("whsec_", "has 0 bytes and not from 24 to 64"),
        ("whsec_" + "-_" * 20, "is not base64 after its prefix"),
        ("whsec_" + "ä" * 40, "is not base64 after its prefix"),
        ("whsec_" + "A" * 41, "is not base64 after its prefix"),
        ("whsk_" + b64encode(bytes(31)).decode(), "has 31 bytes and not 32"),
        ("whsk_" + b64encode(bytes(63)).decode(), "has 63 bytes and not 32"),
        ("whsk_" + b64encode(bytes(64)).decode(), "holds a public key that does not belong to"),
    ],
)
def test_a_wrong_secret_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_secret(text, "standard")

    assert caught.value.field == "secret"
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize("profile", ["github", "stripe"])
@pytest.mark.parametrize("text", ["x" * 15, "x" * 257, "x" * 20 + "\n", "x" * 20 + "\ud800"])
def test_a_text_must_be_long_enough_and_printable(text: str, profile: Profile) -> None:
    with pytest.raises(InvalidInput):
        read_secret(text, profile)


@pytest.mark.parametrize("text", ["x" * 16, "x" * 256, "It's a Secret to Everybody"])
def test_any_other_text_will_do(text: str) -> None:
    assert read_secret(text, "github") == HmacSecret(key=text.encode())


@pytest.mark.parametrize(
    "text", ["", hmac_text(32), "whpk_" + b64encode(bytes(31)).decode(), "whpk_!"]
)
def test_a_wrong_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_public_key(text)


@pytest.mark.parametrize("text", [hmac_text(32), SVIX_PRIVATE])
def test_a_secret_does_not_show_itself(text: str) -> None:
    """A secret in a traceback or a log line has to be changed everywhere."""
    assert repr(read_secret(text, "standard")) in ("HmacSecret()", "Ed25519Secret()")
