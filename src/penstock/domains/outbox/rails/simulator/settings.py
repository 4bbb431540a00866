"""The section of the environment that belongs to the simulator."""

from pydantic_settings import BaseSettings

from penstock.base.settings import SECTION


class SimulatorSettings(BaseSettings):
    """Where the simulated rail is offered."""

    model_config = SECTION

    outbox_simulator: bool | None = None
    """Whether the rail `simulator`, which moves no money, is offered. Absent: on the embedded
    database, and nowhere else."""
