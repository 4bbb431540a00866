"""`penstock mail template`: texts with variables."""

from pathlib import Path

import click
from msgspec.structs import asdict

from penstock.console.database import ask, data_dir_option, operator
from penstock.console.output import json_option, print_rows

TEXT_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.group()
def template() -> None:
    """Add versions of templates."""


@template.command()
@click.argument("name")
@click.option("--subject", required=True, help="Subject line, in Jinja2.")
@click.option("--text", type=TEXT_FILE, help="File with the body as plain text, in Jinja2.")
@click.option("--html", type=TEXT_FILE, help="File with the body as HTML, in Jinja2.")
@click.option("--language", default="en", show_default=True, help="Language of the template.")
@data_dir_option
def add(
    *,
    name: str,
    subject: str,
    text: Path | None,
    html: Path | None,
    language: str,
    data_dir: Path | None,
) -> None:
    """Add a version; mails that are accepted from now on use it."""
    from penstock.domains.mail.template import Template, TemplateRenderer  # noqa: PLC0415  An extra.
    from penstock.domains.mail.template_store import add_template  # noqa: PLC0415

    made = Template(
        name=name,
        language=language,
        version=0,
        subject=subject,
        text=None if text is None else text.read_text(encoding="utf-8"),
        html=None if html is None else html.read_text(encoding="utf-8"),
    )
    version = ask(
        data_dir, lambda db: add_template(db, made, renderer=TemplateRenderer(), who=operator())
    )
    click.echo(f"template {name} has version {version}", err=True)


@template.command("list")
@data_dir_option
@json_option
def list_(*, data_dir: Path | None, as_json: bool) -> None:
    """List the latest version of each template and language."""
    from penstock.domains.mail.template_store import list_templates  # noqa: PLC0415  An extra.

    found = ask(data_dir, list_templates)
    print_rows([asdict(each) for each in found], as_json=as_json, none="there are no templates")
