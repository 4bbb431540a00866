"""The metrics of mail."""

from penstock.base.meter import Counter, Distribution

RECIPIENTS = Counter(
    "mail_recipients_total", "Recipients with a result, by result.", labels=("result",)
)
REPLIES = Counter(
    "mail_replies_total",
    "Replies of relays about recipients, by class.",
    labels=("relay", "reply_class"),
)
SEND_SECONDS = Distribution(
    "mail_send_seconds", "Duration of SMTP transactions, the wait for a connection included.",
    labels=("relay",),
)  # fmt: skip

METRICS = (RECIPIENTS, REPLIES, SEND_SECONDS)
