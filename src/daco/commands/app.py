"""The ``daco`` application: every command with the sentence that ``daco --help`` prints."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from daco.commands.console import interruptible
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

_WORDS = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}
_MODULES = {"verify": "freeze"}  # of commands that are not in a module of their name


def load_command(name: str) -> Any:
    """Import a command: its module, and what it is to typer."""
    attribute = name.replace("-", "_")
    function = getattr(import_module(f"daco.commands.{_MODULES.get(name, attribute)}"), attribute)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(function)
    command: Any = typer.main.get_command(alone)
    types = get_type_hints(function)
    for parameter in command.params:
        if parameter.metavar is None and parameter.param_type_name == "option":
            parameter.metavar = _value_in_help(types.get(parameter.name))
    return command


def _value_in_help(kind: Any) -> str | None:
    """The word for a value in help texts; None for a choice, which typer lists."""
    while get_origin(kind) not in (None, Literal):  # int | None, list[str]
        kind = next(each for each in get_args(kind) if each is not NoneType)
    return _WORDS.get(kind)


class _Group(TyperGroup):
    """Imports a command when it is used: the others would take longer than a short command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        with interruptible():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Group,
    help="Hear that a machine is failing, from normal recordings alone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes leave half of 80 columns for the text
)
for _name, _sentence in COMMANDS.items():
    app.command(_name, short_help=_sentence)(lambda: None)


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
