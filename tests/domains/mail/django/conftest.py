"""A small Django project on the database of the outbox. It is set up once in a process."""

import pytest

from tests.domains.mail.django.project import Project, set_up
from tests.domains.mail.outbox import Outbox

set_up()  # Here, because the modules with tests import models.


@pytest.fixture
async def project(dsn: str, outbox: Outbox) -> Project:
    """The project with its tables; nothing runs, and the outbox has no relay."""
    del outbox
    opened = Project(dsn)
    await opened.open()
    return opened
