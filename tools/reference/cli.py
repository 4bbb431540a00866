"""docs/reference/cli.md: a block per verb of `penstock`, with a section for each command."""

from collections.abc import Iterator, Sequence

import click

from penstock.cli.root import command_line
from tools.reference.blocks import Incomplete, choice, code, plain, sentences, table

EVERYWHERE = ("--json", "--data-dir")  # The page describes them once; so it does --help.
ID_MAX = 2**63 - 1  # The range of ids says nothing to a reader.


def blocks(_page: str) -> dict[str, str]:
    """Return a block for each verb, named after it."""
    return {
        name: "\n\n".join(
            _section(path, each) for path, each in _commands(f"penstock {name}", verb)
        )
        for name, verb in command_line().commands.items()
    }


def _commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(f"{path} {name}", child)


def _section(path: str, command: click.Command) -> str:
    if not command.help:
        raise Incomplete(f"{path} has no docstring")
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    options = [each for each in command.params if isinstance(each, click.Option)]
    parts = [f"### {path}", code(usage), sentences(command.help)]
    if lacking := [each for each in EVERYWHERE if not any(each in one.opts for one in options)]:
        parts += [f"It does not take {' or '.join(map(code, lacking))}."]
    if rows := [_row(path, each) for each in options if not set(each.opts) & set(EVERYWHERE)]:
        parts += [table(("option", "meaning"), rows)]
    return "\n\n".join(parts)


def _row(path: str, option: click.Option) -> Sequence[str]:
    if not option.help:
        raise Incomplete(f"{path} {option.opts[0]} has no help")
    # Where the default is not a plain value, the help itself ends with it in brackets.
    text, _, hint = option.help.removesuffix("]").partition("  [")
    default = code(option.default) if option.show_default else _hint(hint)
    parts = [
        plain(text).rstrip("."),
        _values(option.type),
        f"Default: {default}" if default else "",
        "Required" if option.required else "",
    ]
    return _names(option), " ".join(f"{part}." for part in parts if part)


def _names(option: click.Option) -> str:
    """Return the name of an option; click keeps the name that says no apart from the others."""
    name = " ".join(filter(None, [option.opts[0], option.metavar]))
    return " / ".join(map(code, [name, *option.secondary_opts]))


def _hint(text: str) -> str:
    return text if " " in text or not text else code(text)


def _values(kind: click.ParamType) -> str:
    match kind:
        case click.Choice():
            return choice(kind.choices)
        case click.IntRange(min=low, max=high) if high is not None and high < ID_MAX:
            return f"{low} to {high}"
        case _:
            return ""
