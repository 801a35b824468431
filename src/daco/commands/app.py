"""The ``daco`` application: every command with the sentence that ``daco --help`` prints."""

from __future__ import annotations

from collections.abc import Callable
from enum import EnumType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from daco.commands.calibrate import calibrate
from daco.commands.calibrate_scores import calibrate_scores
from daco.commands.clips import clips
from daco.commands.compare import compare
from daco.commands.console import interruptible
from daco.commands.demo import demo
from daco.commands.download import download
from daco.commands.embed import embed
from daco.commands.evaluate import evaluate
from daco.commands.feedback import feedback
from daco.commands.fit import fit
from daco.commands.freeze import freeze, verify
from daco.commands.inject import inject
from daco.commands.inspect import inspect
from daco.commands.score import score
from daco.commands.select import select
from daco.commands.sensitivity import sensitivity
from daco.commands.serve import serve
from daco.commands.study import study
from daco.commands.submission import submission
from daco.commands.synth import synth
from daco.commands.update import update
from daco.commands.watch import watch
from daco.version import __version__


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        with interruptible():
            return super().invoke(ctx)


class _Command(TyperCommand):
    """Prints arguments as MODEL; typer may write {MODEL} in the usage and MODEL <path> below."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)
        return [piece.replace("{", "").replace("}", "") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                vars(parameter)["display_type_rich"] = lambda ctx: None
        super().format_options(ctx, formatter)


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


_COMMANDS: dict[Callable[..., None], str] = {
    calibrate: "Set the threshold of a model from new normal recordings.",
    calibrate_scores: "Make scores of other systems comparable between domains.",
    clips: "List the clips of a data set and what looks odd.",
    compare: "Compare the results of several studies.",
    demo: "Record a synthetic factory and write a report on it.",
    download: "Download weights or a DCASE data set.",
    embed: "Embed recordings into a table with one row per clip.",
    evaluate: "Compute the official metrics of score files.",
    feedback: "Answer whether an alarm was a fault, and show the rates.",
    fit: "Fit a model to normal recordings of a machine.",
    freeze: "Preregister the configuration that a study chose.",
    inject: "Add synthetic faults to normal recordings and embed both.",
    inspect: "Show the content of a model file.",
    score: "Score recordings with a model.",
    select: "Choose a configuration from normal clips alone.",
    sensitivity: "Measure which faults a model detects, by kind and level.",
    serve: "Score recordings over HTTP and show a monitoring page.",
    study: "Evaluate a grid of configurations and choose one.",
    submission: "Write the package that the challenge asks for.",
    synth: "Write recordings of synthetic machines in DCASE layout.",
    update: "Add normal recordings to a model.",
    verify: "Check a preregistration and score the frozen pick.",
    watch: "Score each recording that arrives in a folder.",
}

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


for command, summary in _COMMANDS.items():
    _name_values(command)
    app.command(cls=_Command, short_help=summary)(command)
