"""The domain and the SMTP client do not know each other; their words must be the same."""

from typing import cast, get_args

import pytest

from penstock.domains.mail.classify import Class, classify_failure
from penstock.domains.mail.reply import SmtpPhase
from penstock.integrations import smtp

PHASES = cast("tuple[SmtpPhase, ...]", get_args(SmtpPhase))


def test_the_phases_are_the_same() -> None:
    assert get_args(smtp.SmtpPhase) == PHASES


@pytest.mark.parametrize("kind", get_args(smtp.FailureKind))
def test_every_kind_of_failure_has_a_class_in_every_phase(kind: str) -> None:
    classes = {classify_failure(phase, kind, is_unknown=False) for phase in PHASES}

    assert classes <= set(get_args(Class)) - {"unknown", "permanent_suppress"}


def test_an_unknown_outcome_is_unknown_whatever_its_kind() -> None:
    kinds = get_args(smtp.FailureKind)

    assert {classify_failure("dot", kind, is_unknown=True) for kind in kinds} == {"unknown"}
