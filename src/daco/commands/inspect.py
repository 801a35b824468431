"""``daco inspect``: the content of a model file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from daco.commands.console import Output, new_table, print_json
from daco.commands.models import (
    alarm_limit,
    configuration,
    left_out_of_blend,
    show_conditions,
)
from daco.commands.options import (
    AsJson,
    ModelPath,
    Verbose,
    flag,
    option,
    require_folder,
)
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

_CALIBRATIONS = {
    "conf": "turned into its quantile among the normals of each domain",
    "ratio": "divided by the median of each domain",
    "zscore": "standardised in each domain",
}
_ASSIGNMENTS = {
    "soft": "mixed by how well the recording fits each domain",
    "hard": "in the domain that fits best",
}
_UPDATES = 10
_NORMALS = 20


def inspect(
    model: ModelPath,
    as_json: AsJson = False,
    verbose: Verbose = False,
    normals: Annotated[
        bool, flag("--normals", "List the 20 most suspicious normals, or with --json all.")
    ] = False,
    db: Annotated[
        str | None, option("Show the realised rates, too, from the answers in this database (URL).")
    ] = None,
    picture: Annotated[
        Path | None, option("Draw the normals' scores and the limits to this .svg or .png file.")
    ] = None,
) -> None:
    """Show what a model was made of, how often it raises false alarms, and its history."""
    from daco.detector.gate import list_normals
    from daco.detector.model import MachineModel

    console = Output()
    require_folder(picture)
    loaded = MachineModel.load(model)
    feedback = [] if db is None else _feedback(db, model, loaded)
    if as_json:
        described = _describe(loaded) | {"bytes": model.stat().st_size, "feedback": feedback}
        listed = {"normal_list": list(map(asdict, list_normals(loaded)))} if normals else {}
        print_json(described | listed)
    elif normals:
        _show_normals(console, loaded)
    else:
        _show(console, loaded, model, verbose)
        for sentence in feedback:
            console.write(sentence)
    if picture is not None:
        from daco.experiments.figures.models import plot_scores
        from daco.experiments.figures.style import save_picture

        save_picture(plot_scores(loaded), picture)
        if not as_json:
            console.write(f"picture: {picture}", wrap=False)


def _feedback(db: str, file: Path, model: MachineModel) -> list[str]:
    from daco.commands.feedback import feedback_sentences
    from daco.detector.modelfile import SUFFIX
    from daco.monitoring.store import Store

    with Store.open(db, create=False) as store:
        return feedback_sentences(store, file.name.removesuffix(SUFFIX), model)


def _describe(model: MachineModel) -> dict[str, Any]:
    """Everything about a model, except its vectors, as plain JSON."""
    from daco.detector.modelfile import SCHEMA

    references, rates = model.reference.sizes, model.expected_rates()
    return {
        "machine": model.machine,
        "sha256": model.sha256,
        "schema": SCHEMA,
        "frontend": None if model.frontend is None else asdict(model.frontend),
        "dimensions": model.embeddings.shape[1],
        "views": list(model.views.names),
        "normals": len(model),
        "thinned_from": model.provenance.get("thinned_from"),
        "domains": {
            name: {
                "normals": size,
                "smallest_rate": 1 / (references[name] + 1),
                "threshold": model.thresholds[name],
                "expected_rate": rates[name],
                **model.basis[name],
            }
            for name, size in model.domain_sizes.items()
        },
        "config": model.config,
        "config_in_words": in_words(model.config),
        "left_out_of_blend": left_out_of_blend(model),
        "reason": model.reason,
        "false_alarm_rate": model.false_alarm_rate,
        "basis": model.basis_sentence,
        "reach": model.reach,
        "ranges": None if model.ranges is None else dict(model.ranges),
        "warnings": list(model.warnings()),
        "provenance": dict(model.provenance),
    }


def in_words(config: str) -> str:
    """A configuration for people who do not know its grammar.

    >>> in_words("raw-k1")
    'cosine distance to the most similar normal'
    >>> in_words("conf-hard-m10-k2")  # doctest: +NORMALIZE_WHITESPACE
    'cosine distance to the 2 most similar normals (mean), turned into its quantile among the
    normals of each domain, pulled toward all normals with the weight of 10 clips, in the domain
    that fits best'
    """
    from daco.method.config import ScoreConfig

    parsed = ScoreConfig.parse(config)
    words = parsed.base.words.removeprefix("its ")
    if parsed.calibration is None:
        return words
    parts = [words, _CALIBRATIONS[parsed.calibration]]
    if parsed.m:
        weight = f"{parsed.m:g}"
        parts.append(f"pulled toward all normals with the weight of {weight} clips")
    return ", ".join([*parts, _ASSIGNMENTS[parsed.assignment or "soft"]])


def _show(console: Output, model: MachineModel, file: Path, verbose: bool) -> None:
    console.write(model.machine, style="bold")
    for title, text in _facts(model, file, verbose):
        fact = Table.grid()  # one table per fact: a long path widens no other line
        fact.add_column(style="dim", no_wrap=True)
        fact.add_row(f"{title:<15}", Text(printable(text)))
        console.print(fact)
    show_conditions(console, model, verbose=verbose)
    console.write(alarm_limit(model))
    console.notes(model.warnings(), "warning")


def _facts(model: MachineModel, file: Path, verbose: bool) -> Iterator[tuple[str, str]]:
    origin = model.provenance
    yield "file", f"{file.name}, {file.stat().st_size / 1000:,.0f} kB"
    yield "created", f"{_text(origin.get('created'))} by daco {_text(origin.get('daco_version'))}"
    root = f" below {_text(origin['root'])}" if origin.get("root") else ""
    yield "from", f"{_text(origin.get('source'))}{root}"
    if "thinned_from" in origin:
        yield "thinned", f"to {len(model):,} of {_text(origin['thinned_from'])} recordings"
    if verbose:
        yield "sha256", model.sha256
        yield "network", _network(model)
        yield "in words", in_words(model.config)
        for line in configuration(model):
            yield "", line
        yield "far", f"a clip farther than {model.reach:.4g} from every normal"
    if model.ranges is not None:
        low, high = model.ranges["limits"]["level"]
        yield "range", f"level {low:g} to {high:g} dB of full scale; --json has those of bands"
    for key, title in (("left_out", "left out"), ("kept", "suspicious")):
        if isinstance(listed := origin.get(key), dict):
            yield title, name_list(f"{name} ({reason})" for name, reason in listed.items())
    updates = origin.get("updates", [])
    hidden = origin.get("earlier_updates", 0) + max(0, len(updates) - _UPDATES)
    if hidden or not updates:
        yield "updates", f"{hidden} earlier ones" if hidden else "none"
    for each in updates[-_UPDATES:]:
        yield "update", _update(each)


def _show_normals(console: Output, model: MachineModel) -> None:
    from daco.detector.gate import list_normals

    rows = list_normals(model)
    table = new_table(["name", "domain"], ["nearest", "score", "p"])
    if model.sessions:
        table.add_column("session")
    table.add_column("warning", overflow="fold")
    for each in rows[:_NORMALS]:
        texts = [each.session] * bool(model.sessions) + [each.warning]
        numbers = [f"{each.nearest_distance:.4g}", f"{each.score:.4g}", f"{each.p_value:.3f}"]
        cells = [each.name, each.domain, *numbers, *texts]
        table.add_row(*(escape(printable(cell)) for cell in cells))
    console.write(model.machine, style="bold")
    console.print(table)
    if len(rows) > _NORMALS:
        console.write(f"There are {len(rows) - _NORMALS} more. --json lists all.")
    console.write("nearest: the distance to the most similar other normal.")
    console.write("score: the score that the normal would have as a new clip.")
    console.write("p: the share of the domain's normals that score at least as high.")
    if suspicious := [each.name for each in rows if each.warning]:
        listed = quantity(suspicious, "suspicious normal")
        console.write(f"Listen to the {listed}. daco update MODEL --remove NAME removes one.")


def _network(model: MachineModel) -> str:
    frontend, size = model.frontend, f"{model.embeddings.shape[1]} values"
    if len(model.views.names) > 1:
        size += f" of the views {name_list(model.views.names)}"
    if frontend is None:
        return f"none: embeddings of your own, {size} each"
    networks: dict[str, list[str]] = {}
    for view in frontend.views:
        pin = view.weights_sha256
        weights = view.package or "no weights" if pin is None else f"weights {pin[:12]}"
        made = f"{view.backbone} ({weights}), {view.sample_rate:,} Hz, {view.precision}"
        networks.setdefault(made, []).append(view.readout)
    parts = [f"{made}, readout {'+'.join(readouts)}" for made, readouts in networks.items()]
    usual = "" if frontend.seconds is None else f", clips of {frontend.seconds:.3g} s"
    return f"{'; '.join(parts)}; {size}, channel {frontend.channel}{usual}"


def _update(entry: dict[str, Any]) -> str:
    clips = entry.get("clips")
    count = sum(clips.values()) if isinstance(clips, dict) else clips
    of = clips if isinstance(clips, dict) else [entry["domain"]] if "domain" in entry else []
    parts = [f"{_text(entry.get('when'))}: {_text(count)} clip{'' if count == 1 else 's'}"]
    parts += [f"of {name_list(of)}"] if of else []
    parts += [f"from {_text(entry['source'])}"] if "source" in entry else []
    return f"{' '.join(parts)} {_text(entry.get('action', 'added'))}"


def _text(value: Any) -> str:
    return "?" if value is None else printable(value)[:200]
