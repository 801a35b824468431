"""``daco score``: what a model makes of recordings."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.embed import SKIPPED_EXIT
from daco.commands.modeltext import note, printable, say
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.commands.progress import stages
from daco.errors import AudioError, DataError, InputError

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, Verdict

ALARM_EXIT = 3
"""Exit code when a recording is anomalous and ``--exit-code`` asked to know."""

STDIN = "-"


@dataclass(frozen=True)
class Failed:
    """A recording without a verdict, and why."""

    name: str
    error: str


def score(
    model: Annotated[Place, typer.Argument(help="A model made by daco fit.", parser=as_place)],
    recordings: Annotated[
        list[str],
        typer.Argument(help="Files, folders, - for one recording on stdin, or embeddings."),
    ],
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object a line.")] = False,
    window: Annotated[
        float | None, typer.Option(help="Cut recordings into windows of so many seconds.")
    ] = None,
    hop: Annotated[
        float | None, typer.Option(help="Seconds from one window to the next. Default: no overlap.")
    ] = None,
    aggregate: Annotated[
        str, typer.Option(help="Windows that count: max, mean, or top3 for the worst three.")
    ] = "max",
    rate: Annotated[
        float | None, typer.Option(help="Another false-alarm rate than the model's; no refit.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if a recording is anomalous.")
    ] = False,
) -> None:
    """Score recordings: how anomalous, how sure, and which normal to compare with by ear.

    A file that cannot be read is listed with its reason; the others are scored.

    Exit codes: 0 all scored; 3 an anomaly, with --exit-code; else 4 if some could not be
    scored; 2 a mistake in the call or the model.
    """
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, parse_aggregate
    from daco.embedding.frontend import cut

    console, errors = Output(), Output(stderr=True)
    if as_csv and as_json:
        raise InputError("Choose one of --csv and --json.")
    parse_aggregate(aggregate)
    cut(1, 1, window, hop)  # a mistake in these is not the recordings'
    loaded = MachineModel.load(model)
    if rate is not None:
        loaded = loaded.at_rate(rate)
    options = ScoreOptions(window, hop, aggregate, weights, device)
    sources = list(_sources(errors, recordings))
    write = _csv_writer(loaded) if as_csv else _write_json if as_json else _write_nothing
    verdicts: list[Verdict] = []
    failures: list[Failed] = []
    with stages(errors) as progress:
        for done, each in _judged(loaded, sources, options):
            if isinstance(each, Failed):
                failures.append(each)
            else:
                verdicts.append(each)
            write(each)
            progress("scoring", done, len(sources))
    if not (as_csv or as_json):
        _show(console, loaded, verdicts, failures)
    note(errors, loaded.cautions(), "caution")
    if exit_code and any(verdict.alarm for verdict in verdicts):
        raise typer.Exit(ALARM_EXIT)
    if failures:
        raise typer.Exit(SKIPPED_EXIT)


def _sources(errors: Console, given: Sequence[str]) -> Iterator[tuple[str, Place | None]]:
    """Name and path of each recording, those of folders one by one; None is stdin."""
    from daco.data.clips import list_audio

    if given.count(STDIN) > 1:
        raise InputError("Stdin can be read only once: give - once.")
    for text in given:
        where = as_place(text)
        if text == STDIN:
            yield text, None
        elif where.is_dir():
            found, oddities = list_audio(where)
            if not found:
                raise DataError(f"No recording in {where} or below. {' '.join(oddities)}".rstrip())
            note(errors, oddities)
            yield from ((name, where / name) for name in found)
        else:
            yield text if isinstance(where, Path) else str(where), where


def _judged(
    model: MachineModel, sources: Sequence[tuple[str, Place | None]], options: ScoreOptions
) -> Iterator[tuple[int, Verdict | Failed]]:
    """Every verdict or failure, with the number of sources it takes to get there."""
    from daco.detector.normals import is_table
    from daco.detector.verdict import judge
    from daco.embedding.frontend import Listener

    listener: Listener | None = None
    for done, (name, where) in enumerate(sources, start=1):
        if where is not None and is_table(where):
            for verdict in _judged_table(model, where):
                yield done, verdict
            continue
        if listener is None:
            listener = Listener(model.frontend, weights=options.weights, device=options.device)
        try:
            verdict = judge(
                model,
                listener,
                sys.stdin.buffer if where is None else where,
                name=name,
                options=options,
            )
        except (AudioError, InputError) as error:
            yield done, Failed(name, error.reason)
        else:
            yield done, verdict


def _judged_table(model: MachineModel, table: Place) -> Iterator[Verdict]:
    from daco.detector.normals import clips_to_judge
    from daco.detector.verdict import judge_embeddings

    return judge_embeddings(model, *clips_to_judge(table, model.frontend))


def _write_nothing(each: Verdict | Failed) -> None:
    pass


def _write_json(each: Verdict | Failed) -> None:
    document = vars(each) if isinstance(each, Failed) else each.to_dict()
    typer.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _csv_writer(model: MachineModel) -> Callable[[Verdict | Failed], None]:
    weights = {name: f"weight.{name}" for name in model.domains}
    before = ("name", "machine", "score", "p_value", "alarm", "threshold")
    after = ("nearest", "nearest_distance", "reasons", "seconds", "windows", "worst_window")
    fields = (*before, *weights.values(), *after, "model_sha256", "error")
    writer = csv.DictWriter(sys.stdout, fields, restval="", lineterminator="\n")
    writer.writeheader()

    def write(each: Verdict | Failed) -> None:
        if isinstance(each, Failed):
            writer.writerow(vars(each))
            return
        row: dict[str, Any] = each.to_dict()
        shares = row.pop("domain_weights")
        row |= {weights[name]: share for name, share in shares.items()}
        row |= {"reasons": "; ".join(each.reasons), "alarm": int(each.alarm)}
        writer.writerow(row)

    return write


def _show(
    console: Console, model: MachineModel, verdicts: Sequence[Verdict], failures: Sequence[Failed]
) -> None:
    from rich import box
    from rich.table import Table

    if verdicts:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("decision")
        table.add_column("score", justify="right")
        table.add_column("p", justify="right")
        table.add_column("recording, most similar normal")
        for verdict in verdicts:
            decision = "[bold red]ALARM[/bold red]" if verdict.alarm else "ok"
            score, p_value = f"{verdict.score:.4g}", f"{verdict.p_value:.2g}"
            table.add_row(decision, score, p_value, "\n".join(_lines(verdict)))
        console.print(table)
        alarms = sum(verdict.alarm for verdict in verdicts)
        say(
            console,
            f"{alarms} of {len(verdicts)} anomalous: above {model.threshold:.4g}, the threshold "
            f"for a false-alarm rate of {model.false_alarm_rate:g} in each domain.",
        )
    most = max((verdict.windows for verdict in verdicts), default=1)
    if most > 1:
        say(console, f"The rate is that of one window; there are up to {most} in a recording.")
    if failures:
        say(console, f"{len(failures)} could not be scored:")
    for failed in failures:
        say(console, f"  {failed.name}: {failed.error}", wrap=False)


def _lines(verdict: Verdict) -> Iterator[str]:
    yield escape(printable(verdict.name))
    shares = verdict.domain_weights.items()
    domain, share = max(shares, key=lambda item: item[1])
    within = "" if len(shares) == 1 else f", {printable(domain)} {share:.0%}"
    where = "" if verdict.worst_window is None else f", worst at {verdict.worst_window:.1f} s"
    nearest = f"{printable(verdict.nearest)} ({verdict.nearest_distance:.3g}){within}{where}"
    yield f"[dim]{escape(nearest)}[/dim]"
    for reason in verdict.reasons:
        yield f"[yellow]{escape(printable(reason))}[/yellow]"
