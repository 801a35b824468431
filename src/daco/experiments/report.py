"""The report of a study: one HTML page, made from its tables and a few pictures."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from daco.errors import ConfigError
from daco.evaluation.intervals import too_few_machines
from daco.experiments.analysis import criterion_floor
from daco.experiments.figures import studies as figures
from daco.experiments.figures.style import svg_bytes
from daco.experiments.machine import P_VALUE
from daco.experiments.machine_data import SET_NAMES
from daco.experiments.run_folder import REPORT
from daco.experiments.tables import (
    SHOWN_MACHINES,
    TEXTS,
    as_texts,
    format_cell,
    rule_titles,
    shown_scores,
    tables_of,
)
from daco.files.atomic import atomic_write, write_error
from daco.method.config import DEFAULT_CONFIG, ScoreConfig
from daco.text import html_table, quantity

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

_MEASURES = {  # the set and the number of machines
    "eval_score": ("eval", "n_machines"),
    "dev_score": ("dev", "n_dev_machines"),
    "criterion_dev": ("dev", "n_dev_machines"),
}
_CODES = ("configuration", "first", "second")


def write_report(result: StudyResult, folder: Path | str | None = None) -> Path:
    """Write the report of a study, ``report.html``, by default into the folder of the run.

    The page is one file that needs no network. The same result gives the same bytes.
    """
    path = Path(folder or result.folder or ".") / REPORT
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path.parent, error) from None
    page = render(result)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def render(result: StudyResult) -> str:
    """The report of a study as HTML."""
    tables, choice = tables_of(result), result.run["choice"]
    pictures = figures_of(result, tables)
    comparison = compare_rules(tables["rules"], result.run["settings"]["rule"])
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("daco.experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"cell": format_cell, "plural": quantity}
    machines = result.clips[["set", "machine"]].drop_duplicates()["set"].value_counts()
    return environment.get_template("report.html").render(
        run=result.run,
        choice=choice,
        reason=why(choice),
        explanation=explain(choice["config"]),
        comparison=comparison,
        cautions=list(cautions(tables, choice, comparison)),
        tables={
            name: _page_table(name, each, choice["config"])
            for name, each in tables.items()
            if len(each) and name != "coverage_by_machine"  # thousands of rows, exported only
        },
        pictures={name: (_data_uri(each, name), text) for name, (each, text) in pictures.items()},
        machines={SET_NAMES[name]: int(machines[name]) for name in result.sets},
        shown_machines=SHOWN_MACHINES,
        n_candidates=len(result.candidates),
        floor=_typical_floor(result),
    )


def _typical_floor(result: StudyResult) -> float | None:
    """The criterion that equal domains of the median sizes would have; None for one domain."""
    sizes = pd.DataFrame(result.run["machines"]).reindex(columns=["n_source", "n_target"])
    medians = sizes.dropna().median()
    return None if medians.isna().any() else criterion_floor(*medians.astype(int).tolist())


def result_html(result: StudyResult) -> str:
    """What a notebook shows of a study: its choice, and the scores of every rule."""
    choice, rules = result.run["choice"], result.rules()
    shown = ["rule", "configuration", "criterion_dev", "dev_score", "eval_score"]
    texts = as_texts(rules[[name for name in shown if name in rules]])
    title = f"{choice['config']}: {choice['reason']}"
    return html_table(title, list(map(str, texts)), texts.to_numpy().tolist())


# The first screen


def compare_rules(rules: pd.DataFrame, rule: str) -> dict[str, Any]:
    """What each rule scores, with its place on a common axis in percent of its length.

    ``measure`` is the evaluation score where it is known, else the score of the development
    machines, else the criterion, else None.
    """
    known = rules.dropna(axis=1, how="all")
    measure = next((name for name in _MEASURES if name in known), None)
    if measure is None:
        return {"measure": None, "set": "", "n": 0, "rows": []}
    which, counts = _MEASURES[measure]
    ends = [f"{which}_low", f"{which}_high"] if measure != "criterion_dev" else ["", ""]
    values = known.reindex(columns=[ends[0], measure, ends[1]]).astype(float)
    values.columns = ["low", "value", "high"]
    least, most = np.nanmin(values), np.nanmax(values)
    margin = 0.06 * ((most - least) or 1.0)
    places = 100 * (values - least + margin) / (most - least + 2 * margin)
    names = pd.DataFrame({"rule": rules["rule"], "title": rules["rule"].map(rule_titles)})
    has_name = rules["configuration"] != rules["rule"]
    names["configuration"] = rules["configuration"].where(has_name, "")
    names["is_chosen"] = rules["rule"] == rule
    names["at"] = places.round(2).to_dict("records")
    rows = names.join(values)[values["value"].notna()].to_dict("records")
    n_machines = int(known[counts].max()) if counts in known else 0
    return {"measure": measure, "set": SET_NAMES[which], "n": n_machines, "rows": rows}


def cautions(
    tables: Mapping[str, pd.DataFrame], choice: Mapping[str, Any], comparison: Mapping[str, Any]
) -> Iterator[str]:
    """Sentences about what the numbers do not show."""
    measure, scores = comparison["measure"], {r["rule"]: r["value"] for r in comparison["rows"]}
    if measure == "criterion_dev":
        yield TEXTS["cautions"]["no_labels"]
    if measure == "dev_score":
        yield TEXTS["cautions"]["dev_only"]
    if measure != "criterion_dev" and (note := too_few_machines(comparison["n"])):
        yield note
    own = next((row["value"] for row in comparison["rows"] if row["is_chosen"]), math.nan)
    if measure == "eval_score" and own < scores.get("random", math.nan):
        points = format_cell(scores["random"] - own, ".1f")
        yield TEXTS["cautions"]["random"].format(points=points)
    yield from _differences(tables["differences"])
    stability = tables["stability"]
    if len(stability):
        near = int(stability["within_noise"].sum() - stability["chosen"].sum())
        if near > 0:
            yield TEXTS["cautions"]["noise"].format(others=quantity(near, "other configuration"))
    yield from choice["warnings"]


def why(choice: Mapping[str, Any]) -> str:
    """Why a configuration was chosen, in sentences."""
    pick, criterion = choice["pick"], choice["criterion"]
    if choice["config"] == pick or choice["agreement"] is None:
        return f"{choice['reason'][:1].upper()}{choice['reason'][1:]}."
    return TEXTS["why"]["default"].format(
        pick=pick,
        wins=round(choice["agreement"] * choice["n_resamples"]),
        n=choice["n_resamples"],
        own=format_cell(criterion[choice["config"]], ".3f"),
        other=format_cell(criterion[pick], ".3f"),
    )


def _differences(differences: pd.DataFrame) -> Iterator[str]:
    """How the chosen configuration compares with simpler rules, and whether that may be chance."""
    if "low" in differences:  # intervals over machines come first, and count more
        differences = differences.sort_values("low", key=pd.isna, kind="stable")
    for row in differences.drop_duplicates(["second"]).to_dict("records"):
        if not {"dev", "fixed", "blend"} & set(row["rules"].split(", ")):
            continue
        more = "more" if row["value"] > 0 else "less"
        text = f"{row['first']} scores {abs(row['value']):.1f} points {more} than {row['second']}"
        if row["rules"] != row["second"]:
            text += f" ({rule_titles(row['rules'])})"
        low: Any = row.get("low")
        high: Any = row.get("high")
        if pd.isna(low):
            yield f"{text}."
            continue
        chance = ", which may be chance" if low <= 0 <= high else ""
        ends = f"{format_cell(low, '+.1f')} to {format_cell(high, '+.1f')}"
        yield f"{text}{chance}: 95 % interval {ends} over {row['n']:,} {row['over']}."


def explain(config: str) -> str:
    """What a configuration does, in plain words."""
    if config == DEFAULT_CONFIG:
        return f"{TEXTS['how']['blend'][0].upper()}{TEXTS['how']['blend'][1:]}."
    try:
        parsed = ScoreConfig.parse(config)
    except ConfigError:
        return "A configuration of the study’s own."
    text = f"Scores a clip by {parsed.base.words}."
    if parsed.calibration is None:
        return text
    m = f"{parsed.m:g}"
    pooling = TEXTS["calibrations"]["pooled" if parsed.m else "not_pooled"].format(m=m)
    calibrated = TEXTS["calibrations"][parsed.calibration].format(m=m, pooling=pooling)
    return f"{text} The score is then {calibrated}. {TEXTS['assignments'][parsed.assignment]}"


# Pictures and tables of the page


def figures_of(
    result: StudyResult, tables: Mapping[str, pd.DataFrame]
) -> dict[str, tuple[Figure, str]]:
    """The pictures of a study by name, each with its caption; those that can be drawn."""
    chosen, texts = result.run["choice"]["config"], TEXTS["figures"]
    rate = result.run["settings"]["false_alarm_rate"]
    found: dict[str, tuple[Figure, str]] = {}
    grid, frontier, stability = tables["grid"], tables["frontier"], tables["stability"]
    for name, column in (("transfer_criterion", "criterion_dev"), ("transfer_dev", "dev_score")):
        if {column, "eval_score"} <= set(grid):
            found[name] = figures.plot_transfer(grid, column, {chosen: "chosen"}), texts[name]
    if len(frontier) and "m" in frontier:
        found["frontier"] = figures.plot_frontier(frontier), texts["frontier"]
    coverage = tables["coverage_by_machine"]
    which = result.sets[-1]  # what is evaluated, or else development
    rows = coverage[coverage["set"] == which] if len(coverage) else coverage
    if len(rows) and np.isclose(rows["level"], rate).any():
        caption = texts["coverage"].format(set=SET_NAMES[which])
        found["coverage"] = figures.plot_coverage(rows, rate), caption
    for which in result.sets:
        metrics = result.metrics()
        scores = shown_scores(metrics[metrics["set"] == which], chosen, result.years[which])
        if len(scores):
            caption = texts["machines"].format(set=SET_NAMES[which])
            found[f"machines_{which}"] = figures.plot_machines(scores), caption
    if chosen in result.decided:
        found |= _decision_figures(result, chosen, rate)
    if len(stability) and stability["picked"].any():
        found["stability"] = figures.plot_stability(stability), texts["stability"]
    return found


def _decision_figures(
    result: StudyResult, chosen: str, rate: float
) -> dict[str, tuple[Figure, str]]:
    """P-values of the clips of each domain, of the set that is evaluated."""
    which = result.sets[-1]
    clips = result.test_clips
    clips = clips[(clips["set"] == which) & clips[P_VALUE + chosen].notna()]
    machines = clips["machine"].drop_duplicates().head(SHOWN_MACHINES)
    clips = clips[clips["machine"].isin(machines)]
    note = ""
    if len(machines) == SHOWN_MACHINES:
        note = f" The first {SHOWN_MACHINES} machines are shown."
    found = {}
    for domain in sorted(clips["domain"].unique()):
        what = f"the {domain} domain" if domain else "clips whose domain is not known"
        caption = TEXTS["figures"]["decisions"].format(
            set=SET_NAMES[which], what=what, config=chosen
        )
        rows = clips[clips["domain"] == domain]
        figure = figures.plot_decisions(rows, P_VALUE + chosen, rate)
        found[f"decisions_{domain or 'unknown'}"] = figure, caption + note
    return found


def _data_uri(figure: Figure, name: str) -> str:
    svg = svg_bytes(figure, name, transparent=True)
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _page_table(name: str, frame: pd.DataFrame, chosen: str) -> dict[str, Any]:
    """Headings and rows of a table; a cell is its text and the value to sort by."""
    frame = _join_intervals(frame)
    for column in ("rule", "rules"):
        if column in frame:
            frame = frame.assign(**{column: frame[column].map(rule_titles)})
    texts = as_texts(frame)
    columns = [
        {
            "title": title,
            "is_number": frame[column].dtype.kind in "iuf",
            "is_code": column in _CODES,
        }
        for title, column in zip(texts, frame, strict=True)
    ]
    values = frame.astype(object).where(frame.notna(), "")
    is_chosen = values.get("configuration", pd.Series("", frame.index)) == chosen
    rows = [
        {"cells": list(zip(text, value, strict=True)), "is_chosen": own}
        for text, value, own in zip(texts.to_numpy(), values.to_numpy(), is_chosen, strict=True)
    ]
    return {"caption": TEXTS["tables"][name], "columns": columns, "rows": rows}


def _join_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with every pair of columns ``low`` and ``high`` as one column of texts."""
    for low in [str(name) for name in frame if str(name).endswith("low")]:
        part = low.removesuffix("low")
        ends = as_texts(frame[[low, f"{part}high"]], ".1f").to_numpy()
        texts = ["–" if first == "–" else f"{first} to {last}" for first, last in ends]
        joined = frame.assign(**{low: texts}).drop(columns=f"{part}high")
        frame = joined.rename(columns={low: f"{part}95 %"})
    return frame
