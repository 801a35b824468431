"""``daco inspect``: the content of a model file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.markup import escape

from daco.commands.console import Output, new_table, print_json
from daco.commands.models import left_out_of_blend, show_model
from daco.commands.options import AsJson, ModelPath, Verbose, flag, option, require_folder
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

_UPDATES = 10
_NORMALS = 20


def inspect(
    model: ModelPath,
    as_json: AsJson = False,
    verbose: Verbose = False,
    normals: Annotated[
        bool, flag("--normals", "List the 20 most suspicious normals, or with --json all.")
    ] = False,
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
    if as_json:
        document = _describe(loaded) | {"bytes": model.stat().st_size}
        if normals:
            document["normal_list"] = list(map(asdict, list_normals(loaded)))
        print_json(document)
    elif normals:
        _show_normals(console, loaded)
    else:
        console.write(loaded.machine, style="bold")
        for title, text in _facts(loaded, model, verbose):
            console.write(f"{title}: {text}")
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
        "left_out_of_blend": left_out_of_blend(model),
        "reason": model.reason,
        "false_alarm_rate": model.false_alarm_rate,
        "basis": model.basis_sentence,
        "reach": model.reach,
        "ranges": None if model.ranges is None else dict(model.ranges),
        "warnings": list(model.warnings()),
        "provenance": dict(model.provenance),
    }


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
    for heading in ["session"] * bool(model.sessions) + ["warning"]:
        table.add_column(heading, overflow="fold")
    for each in rows[:_NORMALS]:
        cells = [each.name, each.domain]
        cells += [f"{each.nearest_distance:.4g}", f"{each.score:.4g}", f"{each.p_value:.3f}"]
        cells += [each.session] * bool(model.sessions) + [each.warning]
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
    """How recordings become vectors: networks with their readouts, number of values, channel."""
    frontend, size = model.frontend, f"{model.embeddings.shape[1]} values"
    if frontend is None:
        return f"none: embeddings of your own, {size} each"
    networks: dict[str, list[str]] = {}
    for view in frontend.views:
        pin = view.weights_sha256
        weights = view.package or "no weights" if pin is None else f"weights {pin[:12]}"
        network = f"{view.backbone} ({weights}), {view.sample_rate:,} Hz, {view.precision}"
        networks.setdefault(network, []).append(view.readout)
    parts = [f"{name}, readout {'+'.join(readouts)}" for name, readouts in networks.items()]
    usual = "" if frontend.seconds is None else f", clips of {frontend.seconds:.3g} s"
    return f"{'; '.join(parts)}; {size}, channel {frontend.channel}{usual}"


def _update(entry: dict[str, Any]) -> str:
    clips = entry.get("clips")
    counts = clips if isinstance(clips, dict) else {entry.get("domain", ""): clips}
    names = " and ".join(
        f"{_text(n)} of {_text(name)}" if name else _text(n) for name, n in counts.items()
    )
    source = f" from {_text(entry['source'])}" if "source" in entry else ""
    return f"{_text(entry.get('when'))}: {_text(entry.get('action'))} {names}{source}"


def _text(value: Any) -> str:
    return "?" if value is None else printable(value)[:200]
