"""The meta file of a submission: what a run knows about its system, as YAML.

What is not known is ``!!null``, as in the challenge's own files, and left to the authors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from daco.errors import InputError
from daco.experiments.analysis import plain, quantities_in
from daco.experiments.grid_table import require_known
from daco.experiments.study_tables import StudyTables
from daco.method.config import ScoreConfig

Author = Mapping[str, Any]

_AUTHOR = ("firstname", "lastname", "email", "corresponding", "affiliation")
_AFFILIATION = ("abbreviation", "institution", "department", "location")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # no text in YAML
_CALIBRATION = {
    "conf": "per-domain quantile calibration",
    "ratio": "division by the domain's median score",
    "zscore": "standardisation in the domain",
}


def read_authors(path: Path) -> list[Author]:
    """Authors from a JSON file: a list of objects, the order is that of the report.

    Each has ``firstname`` and ``lastname``, and if wanted ``email``, ``corresponding`` (true
    for one of them; the first by default) and ``affiliation``, an object with ``institution``,
    ``department``, ``location`` and ``abbreviation``.
    """
    try:
        authors = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"The authors' file {path} is not JSON: {error}.") from None
    if not isinstance(authors, list) or not authors:
        raise InputError(f"The authors' file {path} must be a list with at least one author.")
    for author in authors:
        if not isinstance(author, dict) or not {"firstname", "lastname"} <= set(author):
            raise InputError(f"{path}: an author has a firstname and a lastname. Got {author!r}.")
        require_known(author, _AUTHOR, f"{path}: an author")
        affiliation = author.get("affiliation") or {}
        if not isinstance(affiliation, dict):
            raise InputError(f"{path}: an affiliation is an object. Got {affiliation!r}.")
        require_known(affiliation, _AFFILIATION, f"{path}: an affiliation")
    return authors


def meta_document(
    run: StudyTables, label: str, config: str, rate: float, authors: Sequence[Author]
) -> dict[str, Any]:
    """The meta file's contents, filled from a run as far as it goes."""
    parsed = ScoreConfig.parse(config)
    inputs = {each.get("role"): each for each in run.provenance.get("inputs", [])}
    origin = (inputs.get("eval") or inputs.get("dev") or {}).get("metadata") or {}
    sample_rate, pretrained = origin.get("sample_rate"), bool(origin.get("weights_sha256"))
    chosen = run.selection.get("chosen") or {}
    rule = chosen.get("rule") if chosen.get("config") == config else None
    parameters = None  # the cost table has millions
    if not run.cost.empty:
        known = run.cost.loc[run.cost["quantity"] == "parameters", "value"].dropna()
        parameters = round(1e6 * float(known.iloc[0])) if len(known) else None
    return {
        "submission": {
            "label": label,
            "name": f"DACo {config}",
            "abbreviation": "DACo",
            "authors": _authors(authors) or None,
        },
        "system": {
            "description": {
                "input_sampling_rate": f"{int(sample_rate) / 1000:g}kHz" if sample_rate else None,
                "data_augmentation": None,
                "front_end": None,
                "acoustic_features": None,
                "embeddings": origin.get("backbone"),
                "machine_learning_method": _method(parsed),
                "aggregation_method": run.provenance.get("readout"),
                "domain_adaptation_method": None,
                "domain_generalization_method": _calibration(parsed),
                "ensemble_method_subsystem_count": 1,
                "decision_making": f"p-value of at most {rate:.10g} among normals",
                "attribute_usage": None,
                "external_data_usage": "pre-trained model" if pretrained else None,
                "development_data_usage": f"choice by {rule}" if rule else None,
            },
            "complexity": {"total_parameters": parameters, "MACS": None},
            "external_datasets": None,
            "source_code": None,
        },
        "results": {"development_dataset": _development_results(run, config) or None},
    }


def to_yaml(value: Any, indent: int = 0) -> str:
    """Mappings, lists, text, numbers, bools and None as YAML, which no dependency writes.

    >>> print(to_yaml({"label": "a: b", "authors": [{"lastname": "Kato"}], "MACS": None}), end="")
    label: "a: b"
    authors:
      - lastname: "Kato"
    MACS: !!null
    """
    lines = []
    for key, item in value.items():
        plain = _WORD.fullmatch(key) and key.lower() not in _RESERVED
        name = " " * indent + (key if plain else _scalar(key))
        if isinstance(item, Mapping) and item:
            lines.append(f"{name}:\n{to_yaml(item, indent + 2)}")
        elif isinstance(item, list) and item:
            entries = (to_yaml(entry, indent + 4) for entry in item)
            dashed = (f"{' ' * (indent + 2)}- {entry.lstrip(' ')}" for entry in entries)
            lines.append(f"{name}:\n{''.join(dashed)}")
        else:
            lines.append(f"{name}: {_scalar(item)}\n")
    return "".join(lines)


def _scalar(value: Any) -> str:
    # JSON's text, numbers and bools are YAML's too.
    return "!!null" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)


def _authors(authors: Sequence[Author]) -> list[dict[str, Any]]:
    """The authors with all fields; by default the first is the corresponding author."""
    stated = any("corresponding" in author for author in authors)
    return [
        {
            "firstname": author["firstname"],
            "lastname": author["lastname"],
            "email": author.get("email"),
            "corresponding": bool(author.get("corresponding", at == 0 and not stated)),
            "affiliation": {
                name: (author.get("affiliation") or {}).get(name) for name in _AFFILIATION
            },
        }
        for at, author in enumerate(authors)
    ]


def _method(config: ScoreConfig) -> str:
    if config.scorer == "knn":
        return f"k-NN (k={config.k})"
    if config.scorer in ("ldn-ratio", "ldn-diff"):
        variant = config.scorer.removeprefix("ldn-")
        return f"k-NN with local density normalisation ({variant}, K={config.k})"
    return f"{config.base.name} ({config.base.words})"


def _calibration(config: ScoreConfig) -> str | None:
    if config.calibration is None:
        return None
    strength = f", prior strength {config.m:g}" if config.calibration == "conf" else ""
    return f"{_CALIBRATION[config.calibration]} ({config.assignment} domains{strength})"


def _development_results(run: StudyTables, config: str) -> dict[str, dict[str, float | None]]:
    table = run.per_machine
    if "split" not in table:
        return {}
    rows = table[(table["split"] == "dev") & (table["config"] == config)]
    metrics = rows.set_index("machine")[quantities_in(rows)].astype(float).round(2)
    return {
        str(machine): {str(name): plain(value) for name, value in row.items()}
        for machine, row in metrics.to_dict("index").items()
    }
