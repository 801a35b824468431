"""``daco inspect``: what is in a model file, as a person would ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from daco.commands.modeltext import note, printable, say, show_domains
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place

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


def inspect(
    model: Annotated[Place, typer.Argument(help="A model made by daco fit.", parser=as_place)],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the calibration maps: a .svg or .png file.")
    ] = None,
) -> None:
    """Show what is in a model: machine, network, normals, configuration, threshold, history."""
    from daco.detector.model import MachineModel

    console = Output()
    loaded = MachineModel.load(model)
    if as_json:
        document = describe(loaded) | {"bytes": model.stat().st_size}
        typer.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(console, loaded, model)
    if picture is not None:
        from daco.experiments.figures.models import plot_calibration
        from daco.experiments.figures.style import save_picture

        save_picture(plot_calibration(loaded), picture)
        if not as_json:
            say(console, f"calibration maps: {picture}", wrap=False)


def describe(model: MachineModel) -> dict[str, Any]:
    """All that is known about a model, less its vectors, as plain JSON."""
    from daco.detector.modelfile import SCHEMA

    floor, rates = model.floor(), model.leave_one_out_rates()
    return {
        "machine": model.machine,
        "sha256": model.sha256,
        "schema": SCHEMA,
        "frontend": None if model.frontend is None else asdict(model.frontend),
        "dimensions": model.embeddings.shape[1],
        "normals": len(model),
        "domains": {
            name: {"normals": size, "floor": floor[name], "leave_one_out_rate": rates[name]}
            for name, size in model.domain_sizes.items()
        },
        "config": model.config,
        "config_in_words": in_words(model.config),
        "reason": model.reason,
        "false_alarm_rate": model.false_alarm_rate,
        "threshold": model.threshold,
        "reach": model.reach,
        "cautions": list(model.cautions()),
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
    if parsed.prior_strength:
        weight = f"{parsed.prior_strength:g}"
        parts.append(f"pulled toward all normals with the weight of {weight} clips")
    return ", ".join([*parts, _ASSIGNMENTS[parsed.assignment or "soft"]])


def _show(console: Console, model: MachineModel, file: Place) -> None:
    from rich.table import Table
    from rich.text import Text

    say(console, model.machine, style="bold")
    for title, text in _facts(model, file):
        fact = Table.grid()  # its own table: a long path widens no other line
        fact.add_column(style="dim", no_wrap=True)
        fact.add_row(f"{title:<15}", Text(printable(text)))
        console.print(fact)
    show_domains(console, model)
    note(console, model.cautions(), "caution")


def _facts(model: MachineModel, file: Place) -> Iterator[tuple[str, str]]:
    said = model.provenance
    yield "file", f"{file.name}, {file.stat().st_size / 1000:,.0f} kB"
    yield "sha256", model.sha256
    yield "made", f"{_text(said.get('created'))} by daco {_text(said.get('daco_version'))}"
    root = f" below {_text(said['root'])}" if said.get("root") else ""
    yield "from", f"{_text(said.get('source'))}{root}"
    yield "network", _network(model)
    yield "configuration", f"{model.config}: {in_words(model.config)}"
    yield "because", model.reason
    yield (
        "threshold",
        f"{model.threshold:.6g} for a false-alarm rate of {model.false_alarm_rate:g} "
        "in each domain",
    )
    yield "out of range", f"farther than {model.reach:.4g} from every normal"
    updates = said.get("updates", [])
    if not updates:
        yield "updates", "none"
    hidden = said.get("earlier_updates", 0) + max(0, len(updates) - _UPDATES)
    if hidden:
        yield "updates", f"{hidden} earlier ones"
    for each in updates[-_UPDATES:]:
        yield "update", _update(each)


def _network(model: MachineModel) -> str:
    frontend, size = model.frontend, f"{model.embeddings.shape[1]} values"
    if model.bands > 1:
        size += f" in {model.bands} bands"
    if frontend is None:
        return f"none: embeddings of your own, {size} each"
    pin = frontend.weights_sha256
    weights = "no weights" if pin is None else f"weights {pin[:12]}"
    usual = "" if frontend.seconds is None else f", clips of {frontend.seconds:.3g} s"
    return (
        f"{frontend.backbone} ({weights}), readout {frontend.readout}, {size}, "
        f"{frontend.sample_rate:,} Hz, channel {frontend.channel}, {frontend.precision}{usual}"
    )


def _update(said: dict[str, Any]) -> str:
    ending = "" if said.get("clips") == 1 else "s"
    return (
        f"{_text(said.get('when'))}: {_text(said.get('clips'))} clip{ending} of "
        f"{_text(said.get('domain'))} from {_text(said.get('source'))}, threshold "
        f"{_number(said.get('threshold_before'))} -> {_number(said.get('threshold_after'))}"
    )


def _text(value: Any) -> str:
    return "?" if value is None else printable(value)[:200]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "?"
