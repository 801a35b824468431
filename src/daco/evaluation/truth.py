"""Labels and domains of test clips, and the rows of score files that belong to them.

Rows are matched by the clips' names, never by their position: the anonymous name, or the one with
label and attributes. What does not fit becomes a sentence in the problems of its system.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from daco.data.dcase import parse_name
from daco.data.dcase_truth import Truth, require_year
from daco.evaluation.scorefiles import SCORES
from daco.text import name_list, quantity

SECTION = ["machine", "section"]
_CLIP = [*SECTION, "clip"]
_TRUTH = [*_CLIP, "domain", "label"]

Sections = set[tuple[Any, ...]]
Problems = Mapping[str, list[str]]  # of each system


def sections(table: pd.DataFrame) -> Sections:
    """The machines and sections of a table."""
    return set(table[SECTION].drop_duplicates().itertuples(index=False, name=None))


def truth_table(truth: Truth, year: int | None, notes: list[str]) -> pd.DataFrame:
    """The clips of a truth, one row for each ``name`` of a clip."""
    clips = truth.clips
    require_year(truth, [(year, machine) for machine in clips["machine"].unique()], notes)
    others = clips.assign(name=clips["labelled"]).explode("name").dropna(subset="name")
    others = others.drop_duplicates([*_CLIP, "name"])
    others = others[~others.duplicated([*SECTION, "name"], keep=False)]  # of one clip only
    names = pd.concat([clips.assign(name=clips["clip"]), others])
    return names[[*_TRUTH, "name"]].drop_duplicates([*SECTION, "name"])


def own_truth(rows: pd.DataFrame, problems: Problems) -> pd.DataFrame:
    """As `truth_table`, from the columns ``domain`` and ``label`` or the names of clips."""
    rows = rows[rows["kind"] == SCORES].assign(clip=rows["name"])
    clips = rows.drop_duplicates(_CLIP)
    if "label" not in clips:
        parsed = [parse_name(name) for name in clips["clip"]]
        labels = [-1 if name is None or name.label is None else name.label for name in parsed]
        domains = [(name and name.domain) or "" for name in parsed]
        clips = clips.assign(domain=domains, label=labels)
    unknown = clips[(clips["label"] < 0) | (clips["domain"] == "")]
    silent = rows.merge(unknown[_CLIP], on=_CLIP).drop_duplicates(["system", "file"])
    for system, files in silent.groupby("system"):
        problems[str(system)].append(
            f"{quantity(len(files), 'file')} with names that contain no label and domain "
            f"({name_list(files['file'], 3)}). Pass a checkout of the official evaluator as truth."
        )
    return clips.loc[~clips["clip"].isin(unknown["clip"]), [*_TRUTH, "name"]]


def match_rows(rows: pd.DataFrame, known: pd.DataFrame, problems: Problems) -> pd.DataFrame:
    """The rows of known clips with ``clip``, ``domain`` and ``label``, one per clip and kind.

    Rows with unknown names, second rows of a clip and clips without a row are problems.
    """
    file = ["system", "kind", *SECTION]
    clips = known.drop_duplicates(_CLIP)
    found = rows.drop(columns=["domain", "label"], errors="ignore")
    found = found.merge(clips[SECTION].drop_duplicates(), on=SECTION)
    found = found.merge(known, how="left", on=[*SECTION, "name"])
    matched = found[found["clip"].notna()]
    again = matched.duplicated([*file, "clip"])
    firsts = matched[~again]
    twins = matched[again].merge(firsts, on=[*file, "clip"], suffixes=("", "_first"))
    twins["name"] = twins["name_first"] + " = " + twins["name"]
    # Only of files that are short of rows: all clips of thousands of systems would be many.
    n_rows = firsts.groupby(file).size().rename("n_rows").reset_index()
    n_clips = clips.groupby(SECTION).size().rename("n_clips").reset_index()
    short = found.drop_duplicates(file)[[*file, "file"]].merge(n_clips, on=SECTION)
    short = short.merge(n_rows, how="left", on=file).fillna({"n_rows": 0})
    wanted = short[short["n_rows"] < short["n_clips"]].merge(clips[_CLIP], on=SECTION)
    absent = wanted.merge(firsts[[*file, "clip", "name"]], how="left", on=[*file, "clip"])
    absent = absent[absent["name"].isna()].assign(name=absent["clip"])
    for wrong, noun, what in (
        (found[found["clip"].isna()], "row", "with an unknown name"),
        (twins, "row", "of a clip that has another row"),
        (absent, "clip", "without a row"),
    ):
        for (system, name), group in wrong.groupby(["system", "file"]):
            listed = name_list(group["name"])
            problems[str(system)].append(f"{name}: {quantity(len(group), noun)} {what}: {listed}.")
    return firsts
