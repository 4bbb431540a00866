"""`penstock serve`: several processes of the API on one database."""

from pathlib import Path

import httpx

from tests.e2e.command import penstock

SERVE = ("serve", "--port", "0")


def test_two_servers_share_one_database(dsn: str, folder: Path) -> None:
    key = "a-key-from-the-vault"
    environment = {"PENSTOCK_DATABASE_URL": dsn, "PENSTOCK_ADMIN_KEY": key}
    with (
        penstock(*SERVE, folder=folder, environment=environment) as one,
        penstock(*SERVE, folder=folder, environment=environment) as two,
    ):
        urls = [each.wait_for(r"penstock serves (\S+)").group(1) for each in (one, two)]

        answers = [
            httpx.get(f"{url}/lanes", headers={"Authorization": f"Bearer {key}"}) for url in urls
        ]

        assert [answer.status_code for answer in answers] == [200, 200]
        assert [each.stop() for each in (one, two)] == [0, 0]
