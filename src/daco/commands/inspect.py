"""``daco inspect``: the content of a model file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from daco.commands.console import Output, print_json
from daco.commands.models import left_out_of_blend, show_model
from daco.commands.options import AsJson, ModelPath, Verbose, flag, option, require_folder
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

_UPDATES = 10
_NORMALS = 20


def inspect(
    model: ModelPath,
    as_json: AsJson = False,
    verbose: Verbose = False,
    normals: Annotated[bool, flag("--normals", "List suspicious normals.")] = False,
    picture: Annotated[Path | None, option("Draw scores and limits to this .svg or .png.")] = None,
) -> None:
    """Show what a model was made of, how often it raises false alarms, and its history."""
    from daco.detector.gate import list_normals
    from daco.detector.model import MachineModel

    console = Output()
    require_folder(picture)
    loaded = MachineModel.load(model)
    if as_json:
        document = _describe(loaded) | {"bytes": model.stat().st_size}
        if normals:
            document["normal_list"] = list(map(asdict, list_normals(loaded)))
        print_json(document)
    elif normals:
        _show_normals(console, loaded)
    else:
        console.write(loaded.machine, style="bold")
        console.write(*_facts(loaded, model, verbose))
        show_model(console, loaded, verbose=verbose)
    if picture is not None:
        from daco.experiments.figures.models import plot_scores
        from daco.experiments.figures.style import save_picture

        save_picture(plot_scores(loaded), picture)
        if not as_json:
            console.write(f"picture: {picture}", wrap=False)


def _describe(model: MachineModel) -> dict[str, Any]:
    """Everything about a model, except its vectors, as plain JSON."""
    from daco.detector.modelfile import SCHEMA

    references, rates = model.reference.sizes, model.expected_rates()
    plain = ("machine", "sha256", "config", "reason", "false_alarm_rate", "reach")
    return {name: getattr(model, name) for name in plain} | {
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
        "left_out_of_blend": left_out_of_blend(model),
        "basis": model.basis_sentence,
        "ranges": None if model.ranges is None else dict(model.ranges),
        "warnings": list(model.warnings()),
        "provenance": dict(model.provenance),
    }


def _facts(model: MachineModel, file: Path, verbose: bool) -> Iterator[str]:
    origin = model.provenance
    yield f"file: {file.name}, {file.stat().st_size / 1000:,.0f} kB"
    yield f"created: {_of(origin, 'created')} by daco {_of(origin, 'daco_version')}"
    root = f" below {_of(origin, 'root')}" if origin.get("root") else ""
    yield f"from: {_of(origin, 'source')}{root}"
    if "thinned_from" in origin:
        yield f"thinned: to {len(model):,} of {_of(origin, 'thinned_from')} recordings"
    if verbose:
        yield f"sha256: {model.sha256}"
        for view in () if model.frontend is None else model.frontend.views:
            weights = view.package or f"weights {(view.weights_sha256 or 'none')[:12]}"
            how = f"{view.sample_rate:,} Hz, {view.precision}, channel {view.channel}"
            yield f"view: {view.readout} of {view.backbone} ({weights}), {how}"
        yield f"far: a clip farther than {model.reach:.4g} from every normal"
    if model.ranges is not None:
        low, high = model.ranges["limits"]["level"]
        yield f"range: level {low:g} to {high:g} dB of full scale; --json has those of bands"
    for key, title in (("left_out", "left out"), ("kept", "suspicious")):
        if isinstance(listed := origin.get(key), dict):
            yield f"{title}: {name_list(f'{name} ({reason})' for name, reason in listed.items())}"
    updates = origin.get("updates", [])
    hidden = origin.get("earlier_updates", 0) + max(0, len(updates) - _UPDATES)
    if hidden or not updates:
        yield f"updates: {f'{hidden} earlier ones' if hidden else 'none'}"
    for each in updates[-_UPDATES:]:
        clips = each.get("clips")
        counts = clips if isinstance(clips, dict) else {each.get("domain", ""): clips}
        what = " and ".join(f"{n} of {name}" if name else str(n) for name, n in counts.items())
        source = f" from {_of(each, 'source')}" if "source" in each else ""
        yield f"update: {_of(each, 'when')}: {_of(each, 'action')} {what}{source}"


def _of(facts: Mapping[str, Any], key: str) -> str:
    return str(facts.get(key, "?"))[:200]


def _show_normals(console: Output, model: MachineModel) -> None:
    from daco.detector.gate import list_normals

    normals = list_normals(model)
    rows = [
        vars(each)
        | {
            "nearest": f"{each.nearest_distance:.4g}",
            "score": f"{each.score:.4g}",
            "p": f"{each.p_value:.3f}",
        }
        for each in normals[:_NORMALS]
    ]
    names = ["name", "domain", *["session"] * bool(model.sessions), "warning"]
    console.write(model.machine, style="bold")
    console.table(rows, names, ["nearest", "score", "p"])
    if len(normals) > _NORMALS:
        console.write(f"There are {len(normals) - _NORMALS} more. --json lists all.")
    console.write(
        "nearest: the distance to the most similar other normal. score: the score that the normal "
        "would have as a new clip. p: the share of the domain's normals that score at least as "
        "high."
    )
    if suspicious := [each for each in normals if each.warning]:
        listed = quantity(suspicious, "suspicious normal")
        console.write(f"Listen to the {listed}. daco update MODEL --remove NAME removes one.")
