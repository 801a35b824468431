"""``daco score``: verdicts of a model on recordings."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars, show_skipped
from daco.commands.models import JUDGED, alarm_limit, show_verdict
from daco.commands.options import Location, argument, as_location, flag, location_option, option
from daco.errors import AudioError, DacoError, DataError, InputError
from daco.text import quantity, spreadsheet_safe

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.verdict import ScoreOptions, Verdict
    from daco.monitoring.findings import Finding
    from daco.monitoring.healthy import HealthyProfile

    Find = Callable[[Verdict], list[Finding] | None]
    Result: TypeAlias = Verdict | DacoError  # of a recording that cannot be scored

STDIN = "-"


def score(
    model: shared.ModelPath,
    recordings: Annotated[list[str], argument("Score files, folders, embeddings or stdin (-).")],
    as_csv: Annotated[bool, flag("--csv", "Print CSV.")] = False,
    as_json: Annotated[bool, flag("--json", "Print one JSON object per line.")] = False,
    explain: Annotated[bool, flag("--explain", "Print what sounds different.")] = False,
    healthy: Annotated[
        Location | None, location_option("Explain with these healthy recordings, not the model's.")
    ] = None,
    window: Annotated[float | None, option("Cut into windows of this many seconds.")] = None,
    hop: Annotated[float | None, option("Start a window every so many seconds.")] = None,
    aggregate: Annotated[
        str, option("Decide by the worst window (max), mean, or worst three (top3).")
    ] = "max",
    rate: shared.Rate = None,
    weights: shared.Weights = None,
    device: shared.Device = "cpu",
    exit_code: Annotated[bool, flag("--exit-code", "Exit with 3 if one is anomalous.")] = False,
    verbose: shared.Verbose = False,
) -> None:
    """Score recordings, and show the most similar healthy recording of each.

    A recording is anomalous if its oddness is 1 or more. daco also shows how many healthy
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
    verdicts: list[Verdict] = []
    failures: list[tuple[str, str]] = []
    with progress_bars(errors) as report:
        for done, name, result in _results(loaded, sources, options):
            if isinstance(result, DacoError):
                failures.append((name, result.reason))
            else:
                verdicts.append(result)
            if write is not None:
                write(name, result)
            report("scoring", done, len(sources))
    if write is None:
        _show(console, loaded, verdicts, failures, find, verbose)
    errors.notes(loaded.warnings(), "warning")
    if exit_code and any(verdict.anomalous for verdict in verdicts):
        raise typer.Exit(shared.ALARM_EXIT)
    if failures:
        raise typer.Exit(shared.SKIPPED_EXIT)


def _sources(errors: Output, arguments: Sequence[str]) -> Iterator[tuple[str, Location | None]]:
    """Name and path of each recording, also of those in folders; the path of stdin is None."""
    from daco.data.sources import list_audio
    from daco.files.remote import is_folder

    if arguments.count(STDIN) > 1:
        raise InputError("Stdin can be read only once: give - once.")
    for text in arguments:
        path = as_location(text)
        if text == STDIN:
            yield text, None
        elif is_folder(path):
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
) -> Iterator[tuple[int, str, Result]]:
    """The number of sources so far, and name and verdict of a recording, or why it has none."""
    from daco.data.table import is_table
    from daco.detector.verdict import judge, judge_embeddings
    from daco.embedding.frontend import Listener

    listener: Listener | None = None
    for done, (name, path) in enumerate(sources, start=1):
        if path is not None and is_table(path):
            from daco.embedding.normals import clips_to_judge

            clips = clips_to_judge(path, model.frontend, model.readout)
            for verdict in judge_embeddings(model, *clips):
                yield done, verdict.name, verdict
            continue
        if listener is None:
            listener = Listener(model.frontend, weights=options.weights, device=options.device)
        source = sys.stdin.buffer if path is None else path
        try:
            yield done, name, judge(model, listener, source, name=name, options=options)
        except (AudioError, InputError) as error:
            yield done, name, error


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


def _write_json(find: Find | None, name: str, result: Result) -> None:
    """Print a result as one line of JSON."""
    if isinstance(result, DacoError):
        document: dict[str, object] = {"name": name, "error": result.reason}
    else:
        document = result.to_dict()
        if find is not None:
            document["findings"] = [each.to_dict() for each in find(result) or ()]
    typer.echo(json.dumps(document, ensure_ascii=False, allow_nan=False))


def _csv_writer(model: MachineModel) -> Callable[[str, Result], None]:
    """Print the heading of a table, and return what prints a result as one of its rows.

    The columns are the fields of a verdict, one for each domain and view, and the error.
    """
    from daco.detector.verdict import Verdict

    parts = {"domain_weights": ("weight", model.domains), "views": ("view", model.view_names)}
    columns: list[str] = []
    for each in fields(Verdict):
        prefix, names = parts.get(each.name, ("", ()))
        columns += [f"{prefix}.{name}" for name in names] if prefix else [each.name]
    writer = csv.DictWriter(sys.stdout, [*columns, "error"], restval="", lineterminator="\n")
    writer.writeheader()

    def write(name: str, result: Result) -> None:
        if isinstance(result, DacoError):
            row: dict[str, object] = {"name": name, "error": result.reason}
        else:
            flags = {name: int(getattr(result, name)) for name in ("anomalous", "extrapolated")}
            row = result.to_dict() | flags | {"reasons": "; ".join(result.reasons)}
            for field, (prefix, _) in parts.items():
                row |= {f"{prefix}.{key}": value for key, value in getattr(result, field).items()}
                del row[field]
        writer.writerow({name: spreadsheet_safe(cell) for name, cell in row.items()})

    return write


def _show(
    console: Output,
    model: MachineModel,
    verdicts: Sequence[Verdict],
    failures: Sequence[tuple[str, str]],
    find: Find | None,
    verbose: bool,
) -> None:
    """Print every verdict, how many recordings are anomalous, and which were not scored."""
    for verdict in verdicts:
        show_verdict(console, verdict, verbose)
        findings = None if find is None else find(verdict)
        if findings is not None:
            from daco.monitoring.findings import NOTHING

            console.detail(*([each.text for each in findings] or [NOTHING]))
    if verdicts:
        anomalous = sum(verdict.anomalous for verdict in verdicts)
        rule = " (an oddness of 1 or more)" if anomalous else ""
        counted = f"{anomalous} of {quantity(verdicts, 'recording')} anomalous"
        console.write(f"{counted}{rule}. {alarm_limit(model)}")
        others = Counter(each.state for each in verdicts if each.state not in JUDGED)
        if others:
            counts = ", ".join(f"{state} ({count})" for state, count in others.items())
            console.write(f"Recordings not judged by their sound: {counts}.")
        if (most := max(verdict.windows for verdict in verdicts)) > 1:
            console.write(f"The limit holds for one window. A recording has up to {most} windows.")
    show_skipped(console, failures)
