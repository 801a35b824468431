"""Models and verdicts in the words of a plant: operating conditions, recordings, false alarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from daco.commands.console import Output
from daco.text import name_list, printable, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.verdict import Verdict

JUDGED = {"normal": ("normal", "green"), "anomalous": ("ANOMALY", "bold red")}
"""Words and styles of the states that the oddness decides."""

_NAME, _SIZE, _RATE = "operating condition", "healthy recordings", "false alarms on new ones"
_THRESHOLD = "threshold"


def one_in(share: float) -> str:
    """A share of healthy recordings in words.

    >>> one_in(0.1), one_in(1 / 601), one_in(0.4), one_in(0.96)
    ('1 in 10', '1 in 600', '2 in 5', 'nearly all')
    """
    if share > 0.9:
        return "nearly all"
    if share >= 0.19:
        return f"{max(1, round(5 * share))} in 5"
    number = 1 / max(share, 1e-9)
    rounded = round(number, -max(0, len(str(int(number))) - 2))  # to two digits
    return f"1 in {int(rounded):,}"


def show_model(
    console: Output, model: MachineModel, before: MachineModel | None = None, verbose: bool = False
) -> None:
    """Print what a model rests on and how often it will alarm, with what was `before`."""
    from daco.monitoring.expectation import expectation_of_model

    earlier = _conditions(before or model)
    rows = []
    for name, row in _conditions(model).items():
        old = {_SIZE: "0", _RATE: "-", _THRESHOLD: "-"} | earlier.get(name, {})
        changes = {k: new if new == old[k] else f"{old[k]} -> {new}" for k, new in row.items()}
        rows.append({_NAME: name, **changes})
    console.table(rows, [_NAME], [_SIZE, _RATE, *[_THRESHOLD] * verbose])
    console.write(alarm_limit(model))
    console.write(*expectation_of_model(model))
    if verbose:
        console.write(*configuration(model))
    console.notes(model.warnings(), "warning")


def _conditions(model: MachineModel) -> dict[str, dict[str, str]]:
    """Recordings and expected false alarms of each condition."""
    sizes, thresholds = model.domain_sizes, model.thresholds
    return {
        name: {
            _SIZE: str(sizes[name]),
            _RATE: "unknown" if rates is None else f"{rates[0]:.0%} to {rates[1]:.0%}",
            _THRESHOLD: f"{thresholds[name]:.4g}",
        }
        for name, rates in model.expected_rates().items()
    }


def alarm_limit(model: MachineModel) -> str:
    """How many healthy recordings are called anomalous, and how well that is known."""
    limit = (
        f"The alarm limit is set so that {one_in(model.false_alarm_rate)} healthy recordings is "
        "called anomalous"
    )
    if any(each["kind"] == "training" for each in model.basis.values()):
        return (
            f"{limit}. How many new ones will be is unknown: run daco calibrate with 25 new "
            "healthy recordings of each operating condition."
        )
    return f"{limit}, estimated {model.basis_sentence}."


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


def show_files(console: Output, paths: Sequence[Path], replaced: Sequence[Path]) -> None:
    """Print which models were written, and where those that they replaced are kept."""
    size = sum(path.stat().st_size for path in paths)
    if len(paths) == 1:
        console.write(f"{paths[0]}: {size / 1000:,.0f} kB", wrap=False)
    elif paths:
        counted = f"{quantity(paths, 'model')}, {size / 1e6:,.1f} MB"
        console.write(f"{paths[0].parent}: {counted}", wrap=False)
    if len(replaced) == 1:
        name = replaced[0].name
        console.write(f"The previous model is kept as {name}. daco update --undo restores it.")
    elif replaced:
        console.write(
            f"{len(replaced)} models were replaced. The previous ones are kept as "
            f"*{replaced[0].suffix}."
        )


def headline(state: str, oddness: float, name: str) -> Text:
    """The first line of a verdict: decision, oddness and recording."""
    if state in JUDGED:
        word, style = JUDGED[state]
        decision, figure = (f"{word:<7}", style), f"{oddness:7.2f}  "
    else:  # the oddness does not decide
        decision, figure = (f"{state:<16}", "yellow"), ""
    return Text.assemble(decision, figure, printable(name))


def show_verdict(console: Output, verdict: Verdict, verbose: bool) -> None:
    """Print a verdict: decision and recording, and below it what to know about them."""
    line = headline(verdict.state, verdict.oddness, verdict.name)
    console.print(line, soft_wrap=True)
    shares = verdict.domain_weights
    best = max(shares, key=shares.__getitem__)
    share = f" {shares[best]:.0%}" if verbose else ""
    condition = "" if len(shares) == 1 else f"; {best}{share}"
    distance = f" ({verdict.nearest_distance:.3g})" if verbose else ""
    where = "" if verdict.worst_window is None else f"; worst at {verdict.worst_window:.1f} s"
    alike = f"healthy ones like this: {one_in(verdict.p_value)}"
    if verdict.extrapolated:  # fewer than any of the recordings shows
        alike = f"healthy ones like this: below {one_in(verdict.supported_rate)}"
    if verbose:
        alike = f"score {verdict.score:.4g}, p {verdict.p_value:.3g}"
    console.detail(f"{alike}{condition}{where}", style="dim")
    console.write(f"    most like {verdict.nearest}{distance}", style="dim", wrap=False)
    for reason in verdict.reasons:
        text = reason if verbose or not reason.startswith("views:") else _unusual(verdict)
        if text:
            console.detail(text, style="yellow")


def _unusual(verdict: Verdict) -> str:
    from daco.detector.verdict import ORDINARY, VIEW_NAMES

    names = [VIEW_NAMES.get(name) for name, each in verdict.views.items() if each >= ORDINARY]
    return f"unusual: {name_list(filter(None, names))}" if any(names) else ""
