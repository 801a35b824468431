"""``daco calibrate-scores``: scores of other systems, made comparable between domains."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output, new_table
from daco.commands.evaluate import show_ranking
from daco.commands.options import argument, flag, option
from daco.errors import DataError, InputError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

    from daco.evaluation.score_tables import ScoreTable
    from daco.evaluation.scorefiles import Key
    from daco.method.choice import Choice
    from daco.method.given_scores import CalibratedScores

    Machine = tuple[pd.DataFrame, pd.DataFrame, CalibratedScores]  # normals, test clips, result

_LABELS = ("normal", "anomaly")


def calibrate_scores(
    tables: Annotated[
        list[Path],
        argument(
            "Read the scores of each system: a table (.csv, .parquet) or a folder of challenge "
            "files."
        ),
    ],
    embeddings: Annotated[
        Path | None,
        option("Find the domains of test clips with this embedding table of all clips."),
    ] = None,
    true_domains: Annotated[
        bool, flag("--true-domains", "Use the true domains of the test clips. New clips have none.")
    ] = False,
    config: Annotated[
        str | None,
        option("Use this configuration, or the vote (recommended), instead of choosing one."),
    ] = None,
    out: Annotated[Path | None, option("Write scores and decisions to this folder.")] = None,
    false_alarm_rate: Annotated[
        float, option("Decide at this false-alarm rate.")
    ] = shared.FALSE_ALARM_RATE,
    truth: shared.Truth = None,
) -> None:
    """Make the scores of any system comparable between domains.

    Each system gives its scores of test clips and of normals that it did not train on. A table
    has the columns path, machine, domain, split (train or test) and score. In a folder the scores
    of normals are in files that end in _train.csv. The domain weights of test clips come from
    --embeddings or from columns weight_<domain>. The choice never uses labels. If labels are
    known, daco shows the official scores before and after.
    """
    from daco.data.table import EmbeddingTable
    from daco.detector.thresholds import require_rate
    from daco.evaluation.score_tables import read_score_table
    from daco.method.config import ScoreConfig

    console, errors = Output(), Output(stderr=True)
    require_rate(false_alarm_rate)
    use = None if config is None else ScoreConfig.parse(config).name
    systems = dict(zip(_labels(tables), map(read_score_table, tables), strict=True))
    errors.notes(note for table in systems.values() for note in table.notes)
    vectors = None if embeddings is None else EmbeddingTable.read(embeddings)
    keys = [*dict.fromkeys(key for table in systems.values() for key in table.machines)]
    results = {key: _calibrate(systems, key, vectors, true_domains) for key in keys}
    choice = _choose([result for *_, result in results.values()])
    configs = results[keys[0]][2].configs
    if use not in (None, *configs):
        raise InputError(f"{use!r} is not among the candidates: {name_list(configs, 50)}.")
    _show(console, choice)
    if use is not None:
        console.write(f"Used instead, because of --config: {use}.")
    use = use or choice.config
    if true_domains:
        errors.notes(["The true domains of the test clips were used. New clips have none."])
    if config is None and len(systems) > 1:
        errors.notes(["The criterion cannot tell which system detects more. Compare the vote."])
    _evaluate(console, results, [*(f"ext-{name}" for name in systems), use], truth)
    if out is not None:
        for key, machine in results.items():
            _write(out, key, machine, use, false_alarm_rate)
        console.write(f"Written: {quantity(2 * len(keys), 'file')} in {out}", wrap=False)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Names of systems: as many last parts of their paths as tell them apart."""
    whole = [path.absolute().with_suffix("").parts for path in paths]
    for depth in range(1, max(map(len, whole)) + 1):
        names = [re.sub(r"[^A-Za-z0-9_.]", "_", "_".join(parts[-depth:])) for parts in whole]
        names = [name if name[0].isalpha() else f"s{name}" for name in names]
        if len(set(names)) == len(names):
            return names
    raise InputError("A score table was given twice. Give each system once.")


def _calibrate(
    systems: Mapping[str, ScoreTable], key: Key, vectors: Any, true_domains: bool
) -> Machine:
    from daco.evaluation.score_tables import WEIGHT, match_names
    from daco.method.domains import oracle_weights
    from daco.method.given_scores import calibrate_scores
    from daco.validation import match_domains

    parts = {label: table.machine(*key) for label, table in systems.items()}
    both = normals, test = next(iter(parts.values()))
    own, scores = (
        {
            label: part[side]["score"].to_numpy()[
                match_names(both[side]["path"], part[side]["path"], f"{systems[label].path}")
            ]
            for label, part in parts.items()
        }
        for side in (0, 1)
    )
    domains = tuple(sorted(set(normals["domain"])))
    columns = [f"{WEIGHT}{domain}" for domain in domains]
    weights: Any = None
    if vectors is not None:
        machine = vectors.select(machine=key[0], section=key[1])
        paths, where = machine.columns["path"], f"The embedding table ({key[0]}, section {key[1]})"
        weights = tuple(machine.matrix()[match_names(x["path"], paths, where)] for x in both)
    elif true_domains:
        codes = match_domains([*test["domain"]], domains, len(test), f"true domains of {key[0]}")
        weights = oracle_weights(codes, len(domains)).T
    elif set(columns) <= set(test):
        weights = test[columns].to_numpy()
    elif len(domains) > 1:
        raise InputError(
            f"The domains of the test clips of {key[0]} are not known ({name_list(domains)}). "
            f"Give --embeddings, or columns {name_list(columns)} in the first table."
        )
    return normals, test, calibrate_scores(own, [*normals["domain"]], scores, weights)


def _choose(results: Sequence[CalibratedScores]) -> Choice:
    """One choice for all machines, by the mean criterion of those that have one."""
    import numpy as np

    from daco.method.choice import choose
    from daco.method.floor import mean_floor

    known = [each.choice for each in results if each.choice.criterion]
    if len(known) < 2:
        return [*known, results[0].choice][0]
    criterion = np.mean([[*choice.criterion.values()] for choice in known], axis=0)
    floor = mean_floor([choice.floor for choice in known if choice.floor], independent=True)
    return choose(known[0].criterion, criterion, floor, default=results[0].configs[1])


def _show(console: Output, choice: Choice) -> None:
    from daco.method.config import ScoreConfig

    rows: dict[str, dict[str, str]] = {}
    for name, value in choice.criterion.items():
        config = ScoreConfig.parse(name)
        strength = f"m{config.prior_strength:g}" if config.calibration == "conf" else None
        heading = strength or config.calibration or "as given"
        rows.setdefault(config.base.label, {})[heading] = f"{value:.3f}"
    if rows:
        table = new_table(["criterion"], [*next(iter(rows.values()))])
        for label, values in rows.items():
            table.add_row(Text(label), *values.values())
        console.print(table)
    console.write(f"Choice without labels: {choice.config}; {choice.reason}.")


def _evaluate(
    console: Output, results: Mapping[Key, Machine], configs: Iterable[str], truth: Path | None
) -> None:
    """Rank the scores as they were given and as they are used, where labels are known."""
    from tempfile import TemporaryDirectory

    from daco.evaluation.evaluate import explained, rank_systems
    from daco.evaluation.intervals import too_few_machines
    from daco.evaluation.scorefiles import write_scores

    with TemporaryDirectory() as folder:
        for key, (_, test, result) in results.items():
            names = [*test["path"]]
            if truth is None:  # names that say what the columns say
                if not {*test["domain"]} <= {"source", "target"} or test["label"].isna().any():
                    return
                rows = enumerate(zip(test["domain"], test["label"], strict=True))
                names = [f"section_{key[1]}_{d}_test_{_LABELS[x]}_{i:04d}" for i, (d, x) in rows]
            for name in configs:
                scores = result.scores[:, result.configs.index(name)]
                write_scores(Path(folder, name), *key, names, scores)
        ranking = rank_systems(folder, truth, partial=True)
    for name, problems in ranking.failures.items():
        raise DataError(explained(name, problems))
    console.print("", "Official scores, from labels that the choice did not use:")
    show_ranking(console, ranking)
    if len(results) == 1:
        console.write(too_few_machines(1) or "")


def _write(out: Path, key: Key, machine: Machine, config: str, rate: float) -> None:
    """Score and decision files of one machine; a decision is a p-value of at most `rate`."""
    import numpy as np

    from daco.detector.reference import ReferenceScores
    from daco.evaluation.scorefiles import write_decisions, write_scores
    from daco.method.config import ScoreConfig

    normals, test, result = machine
    column, bounded = result.configs.index(config), ScoreConfig.parse(config).calibration == "conf"
    codes = np.searchsorted(result.domains, normals["domain"]).astype(np.int32)
    reference = ReferenceScores(result.own[:, column], codes, result.domains, bounded)
    alarms = reference.p_values(result.scores[:, column], result.weights) <= rate
    write_scores(out, *key, [*test["path"]], result.scores[:, column])
    write_decisions(out, *key, [*test["path"]], alarms)
