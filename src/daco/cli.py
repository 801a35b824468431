"""The ``daco`` command: thin commands over the library's functions."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco import __version__
from daco.commands.baseline import baseline
from daco.commands.clips import clips
from daco.commands.compare import compare
from daco.commands.demo import demo
from daco.commands.download import download
from daco.commands.embed import embed
from daco.commands.evaluate import evaluate
from daco.commands.fit import fit
from daco.commands.freeze import freeze
from daco.commands.inject import inject
from daco.commands.inspect import inspect
from daco.commands.paper import paper
from daco.commands.score import score
from daco.commands.select import select
from daco.commands.sensitivity import sensitivity
from daco.commands.serve import serve
from daco.commands.study import study
from daco.commands.submission import submission
from daco.commands.synth import synth
from daco.commands.update import update
from daco.commands.verify import verify
from daco.commands.watch import watch
from daco.errors import DacoError

app = typer.Typer(
    help="Hear that a machine is failing, from normal recordings alone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"daco {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


for command in (
    baseline,
    clips,
    compare,
    demo,
    download,
    embed,
    evaluate,
    fit,
    freeze,
    inject,
    inspect,
    paper,
    score,
    select,
    sensitivity,
    serve,
    study,
    submission,
    synth,
    update,
    verify,
    watch,
):
    app.command()(command)


def main() -> None:
    """Entry point: a user's mistake ends in one sentence, not in a stack trace."""
    try:
        app()
    except DacoError as error:
        console = Console(stderr=True)
        console.print("[red]error:[/red]", escape(str(error)), highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
