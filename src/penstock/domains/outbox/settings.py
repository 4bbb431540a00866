"""The section of the environment that belongs to the outbox."""

from pydantic import Field
from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION


class OutboxSettings(BaseSettings):
    """How long the archive of payment instructions is kept."""

    model_config = SECTION

    outbox_archive_months: int | None = Field(default=None, ge=1, le=1_200)
    """How many whole months of the archive are kept besides the current one; older months are
    dropped, and their hashes stay. Absent: all, for ever."""
