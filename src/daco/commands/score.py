"""``daco score``: verdicts of a model on recordings."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import Output, new_table, progress_bars
from daco.commands.options import Location, argument, as_location, flag
from daco.errors import AudioError, DataError, InputError
from daco.text import printable, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, Verdict

STDIN = "-"
_DECISIONS = {"normal": "normal", "anomalous": "[bold red]ANOMALY[/bold red]"}


@dataclass(frozen=True)
class Failed:
    """A recording without a verdict, and why."""

    name: str
    error: str


def score(
    model: shared.ModelLocation,
    recordings: Annotated[
        list[str],
        argument("Score these files, folders or embeddings, or one recording on stdin (-)."),
    ],
    as_csv: Annotated[bool, flag("--csv", "Print CSV.")] = False,
    as_json: Annotated[bool, flag("--json", "Print one JSON object per line.")] = False,
    window: shared.Window = None,
    hop: shared.Hop = None,
    aggregate: shared.Aggregate = "max",
    rate: shared.Rate = None,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    exit_code: Annotated[
        bool, flag("--exit-code", "Exit with 3 if a recording is anomalous.")
    ] = False,
) -> None:
    """Score recordings, and show the most similar normal of each.

    Each recording gets a score, a p-value and a decision. daco lists files that it cannot read
    and scores the others.

    Exit codes: 0 all were scored, 3 one is anomalous (with --exit-code), 4 some could not be
    scored, 2 a mistake in the call or the model.
    """
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, parse_aggregate
    from daco.embedding.frontend import cut

    console, errors = Output(), Output(stderr=True)
    if as_csv and as_json:
        raise InputError("Choose one of --csv and --json.")
    parse_aggregate(aggregate)
    cut(1, 1, window, hop)  # reports a mistake in the options before any recording is read
    loaded = MachineModel.load(model)
    if rate is not None:
        loaded = loaded.at_rate(rate)
    options = ScoreOptions(window, hop, aggregate, weights, device)
    sources = list(_sources(errors, recordings))
    write = _csv_writer(loaded) if as_csv else _write_json if as_json else None
    verdicts: list[Verdict] = []
    failures: list[Failed] = []
    with progress_bars(errors) as report:
        for done, result in _results(loaded, sources, options):
            if isinstance(result, Failed):
                failures.append(result)
            else:
                verdicts.append(result)
            if write is not None:
                write(result)
            report("scoring", done, len(sources))
    if write is None:
        _show(console, loaded, verdicts, failures)
    errors.notes(loaded.warnings(), "warning")
    if exit_code and any(verdict.alarm for verdict in verdicts):
        raise typer.Exit(shared.ALARM_EXIT)
    if failures:
        raise typer.Exit(shared.SKIPPED_EXIT)


def _sources(errors: Output, arguments: Sequence[str]) -> Iterator[tuple[str, Location | None]]:
    """Name and path of each recording, also of those in folders; the path of stdin is None."""
    from daco.data.sources import list_audio

    if arguments.count(STDIN) > 1:
        raise InputError("Stdin can be read only once: give - once.")
    for text in arguments:
        path = as_location(text)
        if text == STDIN:
            yield text, None
        elif path.is_dir():
            names, oddities = list_audio(path)
            if not names:
                hint = f" {' '.join(oddities)}" if oddities else ""
                raise DataError(
                    f"There is no recording in {path} or its subfolders.{hint} Check the path."
                )
            errors.notes(oddities)
            yield from ((name, path / name) for name in names)
        else:
            yield text if isinstance(path, Path) else str(path), path


def _results(
    model: MachineModel, sources: Sequence[tuple[str, Location | None]], options: ScoreOptions
) -> Iterator[tuple[int, Verdict | Failed]]:
    """The number of sources so far with each verdict or failure."""
    from daco.data.table import is_table
    from daco.detector.verdict import judge, judge_embeddings
    from daco.embedding.frontend import Listener

    listener: Listener | None = None
    for done, (name, path) in enumerate(sources, start=1):
        if path is not None and is_table(path):
            from daco.embedding.normals import clips_to_judge

            for verdict in judge_embeddings(
                model, *clips_to_judge(path, model.frontend, model.readout)
            ):
                yield done, verdict
            continue
        if listener is None:
            listener = Listener(model.frontend, weights=options.weights, device=options.device)
        source = sys.stdin.buffer if path is None else path
        try:
            yield done, judge(model, listener, source, name=name, options=options)
        except (AudioError, InputError) as error:
            yield done, Failed(name, error.reason)


def _write_json(result: Verdict | Failed) -> None:
    document = vars(result) if isinstance(result, Failed) else result.to_dict()
    typer.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _csv_writer(model: MachineModel) -> Callable[[Verdict | Failed], None]:
    weights = {name: f"weight.{name}" for name in model.domains}
    views = {name: f"view.{name}" for name in model.view_names}
    before = ("name", "machine", "score", "p_value", "extrapolated", "supported_rate", "alarm")
    after = ("nearest", "nearest_distance", "reasons", "seconds", "windows", "worst_window")
    by_name = (*weights.values(), *views.values())
    fields = (*before, "state", "threshold", *by_name, *after, "model_sha256", "basis", "error")
    writer = csv.DictWriter(sys.stdout, fields, restval="", lineterminator="\n")
    writer.writeheader()

    def write(result: Verdict | Failed) -> None:
        if isinstance(result, Failed):
            writer.writerow(vars(result))
            return
        row = result.to_dict()
        row |= {weights[name]: share for name, share in row.pop("domain_weights").items()}
        row |= {views[name]: deviations for name, deviations in row.pop("views").items()}
        row |= {"reasons": "; ".join(result.reasons)}
        row |= {name: int(row[name]) for name in ("alarm", "extrapolated")}
        writer.writerow(row)

    return write


def _show(
    console: Output, model: MachineModel, verdicts: Sequence[Verdict], failures: Sequence[Failed]
) -> None:
    if verdicts:
        rate = model.false_alarm_rate
        options: dict[str, Any] = {"pad_edge": False, "padding": (0, 1), "show_edge": True}
        table = new_table(["decision"], ["score", "p"], **options)
        table.add_column("recording, most similar normal")
        for verdict in verdicts:
            decision = _DECISIONS.get(verdict.state, f"[yellow]{verdict.state}[/yellow]")
            score, p_value = f"{verdict.score:.4g}", f"{verdict.p_value:.2g}"
            if (float(p_value) <= rate) != (verdict.p_value <= rate):  # else 0.104 is 0.1, and ok
                p_value = f"{verdict.p_value:.4g}"
            table.add_row(decision, score, p_value, "\n".join(_lines(verdict)))
        console.print(table)
        alarms = sum(verdict.alarm for verdict in verdicts)
        one = 1 in (alarms, len(verdicts))
        rule = f": p is at most {rate:g}. This false-alarm rate"
        rule = rule if alarms else f". The false-alarm rate of {rate:g}"
        console.write(
            f"{alarms} of {quantity(verdicts, 'clip')} {'is' if one else 'are'} anomalous{rule} "
            f"is estimated {model.basis_sentence}."
        )
        others = Counter(each.state for each in verdicts if each.state not in _DECISIONS)
        if others:
            counts = ", ".join(f"{state} ({count})" for state, count in others.items())
            console.write(f"Clips not judged by their scores: {counts}.")
    most = max((verdict.windows for verdict in verdicts), default=1)
    if most > 1:
        console.write(f"The rate holds for one window. A recording has up to {most} windows.")
    if failures:
        console.write(f"{quantity(failures, 'recording')} could not be scored:")
    for failed in failures:
        console.write(f"  {failed.name}: {failed.error}", wrap=False)


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
