"""Models and verdicts in the words of a plant: operating conditions, recordings, false alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from daco.commands.console import Output
from daco.text import name_list, printable

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.verdict import Verdict


def one_in(share: float, digits: int = 1) -> str:
    """A share of healthy recordings in words.

    >>> one_in(0.1), one_in(1 / 601), one_in(0.4), one_in(0.96)
    ('1 in 10', '1 in 600', '2 in 5', 'nearly all')
    """
    if share > 0.9:
        return "nearly all"
    if share >= 0.19:
        return f"{max(1, round(5 * share))} in 5"
    number = 1 / max(share, 1e-9)
    rounded = round(number, -max(0, len(str(int(number))) - 1 - digits))
    return f"1 in {int(rounded):,}"


def show_conditions(
    console: Output, model: MachineModel, before: MachineModel | None = None, verbose: bool = False
) -> None:
    """Print recordings and expected false alarms by condition, with what they were before."""
    table = Table()
    table.add_column("operating condition", overflow="fold")
    headings = ["healthy recordings", "false alarms on new recordings"]
    for heading in headings + ["threshold"] * verbose:
        table.add_column(heading, justify="right")
    rows = _conditions(model)
    earlier = rows if before is None else _conditions(before)
    for name, row in rows.items():
        old = earlier.get(name, ("0", "-", "-"))
        pairs = zip(old, row, strict=True)
        cells = [new if new == was else f"{was} -> {new}" for was, new in pairs]
        table.add_row(escape(printable(name)), *cells[: 2 + verbose])
    console.print(table)


def _conditions(model: MachineModel) -> dict[str, tuple[str, str, str]]:
    sizes, thresholds = model.domain_sizes, model.thresholds
    return {
        name: (
            str(sizes[name]),
            "unknown" if rates is None else f"{rates[0]:.0%} to {rates[1]:.0%}",
            f"{thresholds[name]:.4g}",
        )
        for name, rates in model.expected_rates().items()
    }


def alarm_limit(model: MachineModel) -> str:
    """How many healthy recordings are called anomalous, and how well that is known."""
    rate = one_in(model.false_alarm_rate)
    if any(each["kind"] == "training" for each in model.basis.values()):
        return (
            f"The alarm limit is set so that {rate} healthy recordings is called anomalous. How "
            "many new ones will be is unknown: run daco calibrate with 25 new healthy recordings "
            "of each operating condition."
        )
    return (
        f"The alarm limit is set so that {rate} healthy recordings is called anomalous, estimated "
        f"{model.basis_sentence}."
    )


def show_expectation(console: Output, model: MachineModel) -> None:
    """Print how often the model will raise a false alarm, and how soon it finds a fault."""
    from daco.monitoring.expectation import expectation_of_model

    for sentence in expectation_of_model(model):
        console.write(sentence)


def show_replaced(console: Output, kept: Sequence[Path]) -> None:
    """Print where replaced models are kept."""
    if len(kept) == 1:
        console.write(
            f"The previous model is kept as {kept[0].name}. daco update --undo restores it."
        )
    elif kept:
        console.write(
            f"{len(kept)} models were replaced. The previous ones are kept as *{kept[0].suffix}."
        )


def configuration(model: MachineModel) -> Iterator[str]:
    """The configuration, its views, and the members that a blend leaves out, for ``--verbose``."""
    from daco.method.config import ScoreConfig

    names = model.views.names
    yield f"Configuration {model.config}: {model.reason}."
    if len(names) > 1:
        yield f"Views: {name_list(names)}. The view {names[0]} finds the most similar normal."
        if not ScoreConfig.parse(model.config).base.is_blend:
            yield f"Only {names[0]} is scored, because only a blend uses several views."
    if missing := left_out_of_blend(model):
        yield f"There are too few normals for {name_list(missing)} of the blend."
    yield f"The false-alarm rate {model.false_alarm_rate:g} is estimated {model.basis_sentence}."


def left_out_of_blend(model: MachineModel) -> list[str]:
    """The members of a blend that need more normals."""
    from daco.method.blend import blend_members
    from daco.method.config import BLEND_MEMBERS, ScoreConfig

    if not ScoreConfig.parse(model.config).base.is_blend:
        return []
    used = blend_members(len(model))
    return [base.name for base in BLEND_MEMBERS if base not in used]


def verdict_lines(verdict: Verdict, verbose: bool) -> Iterator[str]:
    """What to know about a verdict below the name of the recording, as markup."""
    shares = verdict.domain_weights
    best = max(shares, key=shares.__getitem__)
    share = f" {shares[best]:.0%}" if verbose else ""
    condition = "" if len(shares) == 1 else f", {printable(best)}{share}"
    distance = f" ({verdict.nearest_distance:.3g})" if verbose else ""
    where = "" if verdict.worst_window is None else f", worst at {verdict.worst_window:.1f} s"
    nearest = f"most like {printable(verdict.nearest)}{distance}{condition}{where}"
    yield f"[dim]{escape(nearest)}[/dim]"
    for reason in verdict.reasons:
        text = reason if verbose or not reason.startswith("views:") else _unusual(verdict)
        if text:
            yield f"[yellow]{escape(printable(text))}[/yellow]"


def _unusual(verdict: Verdict) -> str:
    from daco.detector.verdict import ORDINARY, VIEW_NAMES

    names = [VIEW_NAMES.get(name) for name, each in verdict.views.items() if each >= ORDINARY]
    return f"unusual: {name_list(filter(None, names))}" if any(names) else ""
