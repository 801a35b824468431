"""The ``daco`` application: every command with the sentence that ``daco --help`` prints."""

from __future__ import annotations

from collections.abc import Callable
from enum import EnumType
from importlib import import_module
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from daco.commands.console import interruptible
from daco.text import suggestion
from daco.version import __version__

COMMANDS = {
    "calibrate": "Set the alarm limit of a model from new recordings.",
    "calibrate-scores": "Make scores of other systems comparable between domains.",
    "clips": "List the clips of a data set and what looks odd.",
    "compare": "Compare the results of several studies.",
    "demo": "Record a synthetic factory and write a report on it.",
    "download": "Download weights or a DCASE data set.",
    "embed": "Embed recordings into a table with one row per clip.",
    "evaluate": "Compute the official metrics of score files.",
    "feedback": "Answer whether an alarm was a fault, and show the rates.",
    "fit": "Fit a model to recordings of a healthy machine.",
    "freeze": "Preregister the configuration that a study chose.",
    "history": "Keep a copy of a plant's history, or delete old recordings.",
    "inject": "Add synthetic faults to normal recordings and embed both.",
    "inspect": "Show the content of a model file.",
    "notify": "Show who gets messages, or send a test message.",
    "score": "Score recordings with a model.",
    "select": "Choose a configuration from normal clips alone.",
    "sensitivity": "Measure which faults a model detects, by kind and level.",
    "serve": "Score recordings over HTTP and show a monitoring page.",
    "start": "Set up a monitor from recordings and start it.",
    "study": "Evaluate a grid of configurations and choose one.",
    "submission": "Write the package that the challenge asks for.",
    "synth": "Write recordings of synthetic machines in DCASE layout.",
    "update": "Add normal recordings to a model.",
    "verify": "Check a preregistration and score the frozen pick.",
    "watch": "Score each recording that arrives in a folder.",
}
"""Every command, with the sentence that ``daco --help`` prints."""

_MODULES = {"verify": "freeze"}  # of commands that are not in a module of their name


class _Group(TyperGroup):
    """Imports a command when it is used: the others would take longer than a short command."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}.{suggestion(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        with interruptible():
            return super().invoke(ctx)


class _Command(TyperCommand):
    """Prints arguments as MODEL; typer may write {MODEL} in the usage and MODEL <path> below."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            rows = []
            for parameter in self.get_params(ctx):
                record = parameter.get_help_record(ctx)
                if record is not None and parameter.param_type_name == kind:
                    name = parameter.metavar if kind == "argument" else record[0]
                    rows.append((name, record[1]))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


app = typer.Typer(
    cls=_Group,
    help="Hear that a machine is failing, from normal recordings alone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes cut long options and print a value after flags
)


def _print_version(show: bool) -> None:
    if show:
        typer.echo(f"daco {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


_VALUES: dict[object, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER"}


def _name_values(command: Callable[..., None]) -> None:
    """Name arguments and values in capitals; typer would print types, such as ``<list[str]>``."""
    hints = get_type_hints(command, include_extras=True)
    for name, hint in hints.items():
        for setting in getattr(hint, "__metadata__", ()):
            kind = _value_type(hint.__origin__)
            if isinstance(setting, ArgumentInfo):
                setting.metavar = name.upper()
            elif setting.metavar is None and isinstance(kind, EnumType):
                setting.metavar = "|".join(map(str, kind))
            elif setting.metavar is None and kind is not bool:
                setting.metavar = _VALUES.get(kind, "PATH")
    command.__annotations__ = hints


def _value_type(hint: Any) -> Any:
    """The type of one value: ``X`` in ``X``, ``X | None``, ``list[X]`` and ``list[X] | None``."""
    return _value_type(get_args(hint)[0]) if get_args(hint) else hint


def _load(name: str) -> Any:
    """A command from its module."""
    attribute = name.replace("-", "_")
    module = import_module(f"daco.commands.{_MODULES.get(name, attribute)}")
    function = getattr(module, attribute)
    _name_values(function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=_Command, short_help=COMMANDS[name])(function)
    return typer.main.get_command(alone)
