"""django-post_office: mails are queued with `send_many`, then one process sends them all.

Settings: its own defaults, which its documentation recommends to start with: batches of 100 mails
and 5 threads, each with a connection that it keeps for a batch. They are part of the answer.
"""

import json
import sys
import time
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

from bench.peers.mail_text import RECIPIENT, SENDER, SUBJECT, text

CHUNK = 200  # Mails that are queued in one statement.


def configure(asked: dict[str, Any]) -> None:
    """Set Django up as a project with this app alone."""
    settings.configure(
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "post_office"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": asked["place"]["host"],
                "USER": asked["place"]["user"],
                "NAME": asked["place"]["database"],
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
        EMAIL_BACKEND="post_office.EmailBackend",
        EMAIL_HOST=asked["host"],
        EMAIL_PORT=asked["port"],
        # It renders subjects and texts with Django's templates.
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        LOGGING_CONFIG=None,
    )
    django.setup()
    call_command("migrate", verbosity=0)


def main() -> None:
    asked = json.loads(sys.argv[1])
    configure(asked)
    # Only now, because they read the settings when they are imported.
    from post_office import mail  # noqa: PLC0415
    from post_office.models import STATUS, Email  # noqa: PLC0415
    from post_office.settings import get_batch_size, get_threads_per_process  # noqa: PLC0415

    body = text(asked["size"])
    new = {"sender": SENDER, "recipients": [RECIPIENT], "subject": SUBJECT, "message": body}
    for first in range(0, asked["mails"], CHUNK):
        mail.send_many([new] * min(CHUNK, asked["mails"] - first))
    started, cpu_started = time.perf_counter(), time.process_time()
    mail.send_queued_mail_until_done(processes=1)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    print(
        json.dumps(
            {
                "items": Email.objects.filter(status=STATUS.sent).count(),
                "seconds": seconds,
                "cpu_seconds": cpu_seconds,
                "batch_size": get_batch_size(),
                "threads": get_threads_per_process(),
            }
        )
    )


if __name__ == "__main__":
    main()
