"""``daco score``: verdicts of a model on recordings."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from daco.commands import options as shared
from daco.commands.console import Output, new_table, progress_bars
from daco.commands.options import Location, argument, as_location, flag, location_option
from daco.errors import AudioError, DataError, InputError
from daco.text import printable, quantity, spreadsheet_safe

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, Verdict
    from daco.monitoring.findings import Finding
    from daco.monitoring.healthy import HealthyProfile

STDIN = "-"
_DECISIONS = {"normal": "normal", "anomalous": "[bold red]ANOMALY[/bold red]"}


@dataclass(frozen=True)
class Failed:
    """A recording without a verdict, and why."""

    name: str
    error: str


if TYPE_CHECKING:
    Result = Verdict | Failed
    Find = Callable[[Verdict], list[Finding] | None]


def score(
    model: shared.ModelPath,
    recordings: Annotated[
        list[str],
        argument("Score these files, folders or embeddings, or one recording on stdin (-)."),
    ],
    as_csv: Annotated[bool, flag("--csv", "Print CSV.")] = False,
    as_json: Annotated[bool, flag("--json", "Print one JSON object per line.")] = False,
    explain: Annotated[
        bool, flag("--explain", "Print what sounds different in recordings that are not normal.")
    ] = False,
    healthy: Annotated[
        Location | None,
        location_option("Read healthy recordings for --explain here, not those of the model."),
    ] = None,
    window: shared.Window = None,
    hop: shared.Hop = None,
    aggregate: shared.Aggregate = "max",
    rate: shared.Rate = None,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    exit_code: Annotated[
        bool, flag("--exit-code", "Exit with 3 if a recording is anomalous.")
    ] = False,
    verbose: shared.Verbose = False,
) -> None:
    """Score recordings, and show the most similar healthy recording of each.

    A recording is anomalous if its oddness is 1 or more. The table also shows how many healthy
    recordings sound as odd. daco lists files that it cannot read and scores the others.

    Exit codes: 0 all were scored, 3 one is anomalous (with --exit-code), 4 some could not be
    scored, 2 a mistake in the call or the model.
    """
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, parse_aggregate
    from daco.embedding.frontend import cut

    console, errors = Output(), Output(stderr=True)
    if as_csv and as_json:
        raise InputError("Choose one of --csv and --json.")
    if explain and as_csv:
        raise InputError("Findings are no table. Use --explain with --json, or alone.")
    parse_aggregate(aggregate)
    cut(1, 1, window, hop)  # reports a mistake in the options before any recording is read
    loaded = MachineModel.load(model)
    if rate is not None:
        loaded = loaded.at_rate(rate)
    options = ScoreOptions(window, hop, aggregate, weights, device)
    sources = list(_sources(errors, recordings))
    find = _finder(loaded, dict(sources), healthy, errors) if explain else None
    write = _csv_writer(loaded) if as_csv else partial(_write_json, find) if as_json else None
    results: list[Result] = []
    with progress_bars(errors) as report:
        for done, result in _results(loaded, sources, options):
            results.append(result)
            if write is not None:
                write(result)
            report("scoring", done, len(sources))
    failures = [each for each in results if isinstance(each, Failed)]
    verdicts = [each for each in results if not isinstance(each, Failed)]
    if write is None:
        _show_verdicts(console, loaded, verdicts, find, verbose)
        _show_failures(console, failures)
    errors.notes(loaded.warnings(), "warning")
    if exit_code and any(verdict.anomalous for verdict in verdicts):
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
) -> Iterator[tuple[int, Result]]:
    """The number of sources so far with each verdict or failure."""
    from daco.data.table import is_table
    from daco.detector.verdict import judge, judge_embeddings
    from daco.embedding.frontend import Listener

    listener: Listener | None = None
    for done, (name, path) in enumerate(sources, start=1):
        if path is not None and is_table(path):
            from daco.embedding.normals import clips_to_judge

            clips = clips_to_judge(path, model.frontend, model.readout)
            for verdict in judge_embeddings(model, *clips):
                yield done, verdict
            continue
        if listener is None:
            listener = Listener(model.frontend, weights=options.weights, device=options.device)
        source = sys.stdin.buffer if path is None else path
        try:
            yield done, judge(model, listener, source, name=name, options=options)
        except (AudioError, InputError) as error:
            yield done, Failed(name, error.reason)


def _finder(
    model: MachineModel, paths: dict[str, Location | None], healthy: Location | None, errors: Output
) -> Find:
    """Returns what finds the differences of a recording that is a file and not normal.

    The healthy recordings are read for the first of them.
    """
    from daco.monitoring.profiles import findings_of, profile_of_folder, profile_of_normals

    @cache
    def profile() -> HealthyProfile:
        with progress_bars(errors) as report:
            progress = partial(report, "healthy recordings")
            if healthy is not None:
                return profile_of_folder(healthy, progress)
            return profile_of_normals(model, progress)

    def find(verdict: Verdict) -> list[Finding] | None:
        path = paths.get(verdict.name)
        if verdict.state == "normal" or path is None:
            return None
        condition = max(verdict.domain_weights.items(), key=lambda item: item[1])[0]
        return findings_of(path, profile(), condition)

    return find


def _write_json(find: Find | None, result: Result) -> None:
    """Print a result as one line of JSON."""
    document = vars(result) if isinstance(result, Failed) else result.to_dict()
    if find is not None and not isinstance(result, Failed):
        document["findings"] = [each.to_dict() for each in find(result) or ()]
    typer.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _csv_writer(model: MachineModel) -> Callable[[Result], None]:
    """Print the heading of a table, and return what prints a result as one of its rows."""
    weights = {name: f"weight.{name}" for name in model.domains}
    views = {name: f"view.{name}" for name in model.view_names}
    fields = ["name", "machine", "score", "p_value", "oddness", "extrapolated", "supported_rate"]
    fields += ["anomalous", "state", "threshold", *weights.values(), *views.values()]
    fields += ["nearest", "nearest_distance", "reasons", "seconds", "windows", "worst_window"]
    fields += ["model_sha256", "basis", "error"]
    writer = csv.DictWriter(sys.stdout, fields, restval="", lineterminator="\n")
    writer.writeheader()

    def write(result: Result) -> None:
        row: dict[str, Any] = dict(vars(result))
        if not isinstance(result, Failed):
            row = result.to_dict()
            row |= {weights[name]: share for name, share in row.pop("domain_weights").items()}
            row |= {views[name]: deviations for name, deviations in row.pop("views").items()}
            row["reasons"] = "; ".join(result.reasons)
            row |= {name: int(row[name]) for name in ("anomalous", "extrapolated")}
        writer.writerow({name: spreadsheet_safe(cell) for name, cell in row.items()})

    return write


def _show_verdicts(
    console: Output,
    model: MachineModel,
    verdicts: Sequence[Verdict],
    find: Find | None,
    verbose: bool,
) -> None:
    """Print a table of verdicts, and how many recordings are anomalous."""
    from daco.commands.models import alarm_limit, one_in, verdict_lines

    if not verdicts:
        return
    numbers = ["score", "p"] if verbose else ["oddness", "healthy ones\nlike this"]
    table = new_table(["decision"], numbers, padding=0)
    table.columns[0].no_wrap = True
    table.add_column("recording", overflow="fold")
    for verdict in verdicts:
        decision = _DECISIONS.get(verdict.state, f"[yellow]{verdict.state}[/yellow]")
        alike = one_in(verdict.p_value)
        if verdict.extrapolated:  # fewer than any of the recordings shows
            alike = f"below {one_in(verdict.supported_rate)}"
        cells = [f"{verdict.oddness:.2f}", alike]
        if verbose:
            cells = [f"{verdict.score:.4g}", f"{verdict.p_value:.3g}"]
        lines = [escape(printable(verdict.name)), *verdict_lines(verdict, verbose)]
        lines += [] if find is None else _sentences(find(verdict))
        table.add_row(decision, *cells, "\n".join(lines))
    console.print(table)
    anomalous = sum(verdict.anomalous for verdict in verdicts)
    counted = f"{anomalous} of {quantity(verdicts, 'recording')} anomalous"
    rule = " (an oddness of 1 or more)" if anomalous and not verbose else ""
    console.write(f"{counted}{rule}. {alarm_limit(model)}")
    others = Counter(each.state for each in verdicts if each.state not in _DECISIONS)
    if others:
        counts = ", ".join(f"{state} ({count})" for state, count in others.items())
        console.write(f"Recordings not judged by their sound: {counts}.")
    most = max(verdict.windows for verdict in verdicts)
    if most > 1:
        console.write(f"The limit holds for one window. A recording has up to {most} windows.")


def _sentences(findings: list[Finding] | None) -> list[str]:
    from daco.monitoring.findings import NOTHING

    if findings is None:
        return []
    return [escape(each.text) for each in findings] or [NOTHING]


def _show_failures(console: Output, failures: Sequence[Failed]) -> None:
    if failures:
        console.write(f"{quantity(failures, 'recording')} could not be scored:")
    for failed in failures:
        console.write(f"  {failed.name}: {failed.error}", wrap=False)
