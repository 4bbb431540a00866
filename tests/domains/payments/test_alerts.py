"""The alerts of payments: Prometheus accepts them, they fire when they should, and each has a
page that says what to do.
"""

import re

import pytest

from penstock.domains.payments import metrics
from penstock.kernel.metrics import METRICS
from tests.docs.pages import ROOT, read
from tests.promtool import needs_promtool, promtool

FOLDER = ROOT / "deploy" / "alerts"
RULES = (FOLDER / "payments.rules.yml").read_text(encoding="utf-8")
RUNBOOK = "docs/howto/payment-alerts.md"


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES)


@needs_promtool
def test_prometheus_accepts_the_rules() -> None:
    promtool("check", "rules", "payments.rules.yml")


@needs_promtool
@pytest.mark.covers("A71", "A72")
def test_each_alert_fires_when_it_should_and_not_before() -> None:
    promtool("test", "rules", "payments.test.yml")


def test_each_alert_has_a_test() -> None:
    """A rule without one may never fire."""
    tested = re.findall(r"alertname: (\w+)", (FOLDER / "payments.test.yml").read_text("utf-8"))

    assert set(alerts()) == set(tested)


def test_each_alert_watches_metrics_that_exist() -> None:
    """Prometheus says nothing about a rule on a name that nobody exports."""
    watched = set(re.findall(r"\b([a-z]+(?:_[a-z]+)+)(?=[{\[)])", RULES))

    assert len(watched) == len(alerts())
    assert watched <= {metric.name for metric in (*METRICS, *metrics.METRICS)}


def test_each_alert_has_a_runbook() -> None:
    """Somebody reads it at night, and needs what to look at and which command to use."""
    sections = re.findall(r"^## (\w+)$", read(RUNBOOK), re.MULTILINE)
    linked = re.findall(rf"runbook: {re.escape(RUNBOOK)}#(\w+)", RULES)

    assert sections == alerts()
    assert linked == [each.lower() for each in alerts()]
