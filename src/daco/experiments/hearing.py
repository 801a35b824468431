"""What every configuration hears of pseudo-anomalies, machine by machine, and the veto of it.

Nothing here has an argument that could carry a label, or a test clip: a machine's normals and
their domains are all there is, and faults that were injected into them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import NotEnoughClipsError
from daco.experiments.inputs import SOURCE, TARGET
from daco.method.config import ScoreConfig
from daco.method.pseudo_anomalies import INJECTED, PseudoAnomalies, moved_normals
from daco.method.viability import PseudoScores, Viability, pseudo_scores, viability_veto
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

ROLES = {"dev": "development", "eval": "evaluation"}
COLUMNS = (
    *("split", "machine", "config", "basis", "pseudo_score"),
    *("auc_source", "auc_target", "pauc_source", "pauc_target"),
)
_FACTS = ("basis", "domains", "kinds", "heard", "clips", "anomalies", "left_out", "strangers")
_VALUES = ("auc", "pauc", "by_kind", "plain")


@dataclass(frozen=True, eq=False)
class Hearing:
    """The label-free veto of a study.

    Attributes
    ----------
    veto : Viability
        Over all machines that count.
    by_role : dict
        The same of the development and of the evaluation machines alone, each on its own basis.
    machines : tuple of (role, machine)
        Those that count.
    notes : tuple of str
    """

    veto: Viability
    by_role: dict[str, Viability]
    machines: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()

    @property
    def abstains(self) -> bool:
        """Whether the pseudo-anomalies are hardly heard by anything, so that nothing is cut."""
        return bool(np.isnan(self.veto.limit))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; scores in percent."""
        veto = self.veto
        rows = zip(veto.configs, veto.score.tolist(), veto.kept.tolist(), strict=True)
        return {
            **_brief(veto),
            "cut": dict(veto.reasons),
            "notes": list(self.notes),
            "machines": [{"split": role, "machine": name} for role, name in self.machines],
            "by_role": {
                role: {**_brief(each), "cut": list(each.cut)} for role, each in self.by_role.items()
            },
            "configs": [
                {"config": name, "pseudo_score": 100 * score, "kept": kept}
                for name, score, kept in rows
            ],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Hearing:
        """The veto that a run's ``selection.json`` holds; what it was by role is left out."""
        rows = document["configs"]
        limit = document["limit"]
        veto = Viability(
            configs=tuple(row["config"] for row in rows),
            kept=np.array([row["kept"] for row in rows], bool),
            score=np.array([row["pseudo_score"] for row in rows], float) / 100,
            median=document["median"] / 100,
            plain=document["plain"] / 100,
            limit=float("nan") if limit is None else limit / 100,
            basis=document["basis"],
            reasons=dict(document["cut"]),
        )
        machines = tuple(
            (str(each["split"]), str(each["machine"])) for each in document["machines"]
        )
        return cls(veto, {}, machines, tuple(document["notes"]))


def hearing_arrays(
    X: NDArray[Any],
    domains: NDArray[Any],
    configs: Sequence[str | ScoreConfig],
    faults: PseudoAnomalies | None = None,
    *,
    bands: int = 1,
    seed: int = 0,
) -> dict[str, NDArray[Any]]:
    """Pseudo scores of one machine as arrays for its file; none for too few clips.

    Parameters
    ----------
    X, domains
        The machine's normals.
    configs : grid
    faults : PseudoAnomalies, optional
        Injected into the machine's recordings. Without them its normals are moved.
    bands : int
        Equal consecutive parts of a vector.
    seed : int
        Of moving normals.
    """
    made = moved_normals(X, domains, seed=seed) if faults is None else faults
    try:
        found = pseudo_scores(X, domains, made, list(configs), bands=bands)
    except NotEnoughClipsError:
        return {"hearing": np.array("")}
    facts = {name: getattr(found, name) for name in _FACTS}
    return {
        "hearing": np.array(json.dumps(facts)),
        **{f"hearing_{name}": getattr(found, name) for name in _VALUES},
    }


def hearing_of(arrays: Mapping[str, NDArray[Any]], configs: Sequence[str]) -> PseudoScores | None:
    """The pseudo scores in a machine's arrays; None where it has too few clips."""
    if not str(arrays["hearing"]):
        return None
    facts = json.loads(str(arrays["hearing"]))
    for name in ("domains", "kinds", "heard", "left_out"):
        facts[name] = tuple(facts[name])
    values: dict[str, Any] = {name: arrays[f"hearing_{name}"] for name in _VALUES}
    return PseudoScores(configs=tuple(configs), **facts, **values)


def study_veto(
    places: Sequence[tuple[str, str]], found: Sequence[PseudoScores | None]
) -> tuple[Hearing | None, list[str]]:
    """The veto of all machines, and what to know about it; None where no machine has a score.

    Development and evaluation machines count alike, because no label is read. All of them must
    have one basis: where faults were injected into the machines of one role only, that role
    counts alone, since sounds say more than vectors that were moved.

    Parameters
    ----------
    places : sequence of (role, machine)
    found : sequence of PseudoScores or None
        Their pseudo scores.
    """
    known = [(place, each) for place, each in zip(places, found, strict=True) if each is not None]
    silent = [name for (_, name), each in zip(places, found, strict=True) if each is None]
    notes = []
    if silent:
        notes.append(
            f"{quantity(silent, 'machine')} without enough normals for the label-free veto "
            f"({name_list(silent, 4)})."
        )
    if not known:
        return None, notes
    roles = list(dict.fromkeys(role for (role, _), _ in known))
    of_role = {role: [each for (own, _), each in known if own == role] for role in roles}
    by_role = {role: viability_veto(mine) for role, mine in of_role.items()}
    bases = {role: veto.basis for role, veto in by_role.items()}
    counting = [role for role in roles if bases[role] == INJECTED] or roles
    for role in roles:
        if role not in counting:
            notes.append(
                f"The label-free veto rests on the {ROLES[counting[0]]} machines alone: faults "
                f"were not injected into all {ROLES[role]} machines."
            )
    veto = viability_veto([each for role in counting for each in of_role[role]])
    machines = tuple(place for place, _ in known if place[0] in counting)
    return Hearing(veto, by_role, machines, (*veto.notes, *notes)), notes


def viability_table(
    places: Sequence[tuple[str, str]], found: Sequence[PseudoScores | None]
) -> pd.DataFrame:
    """Pseudo scores of every machine and configuration, in percent."""
    import pandas as pd

    parts = []
    for (role, machine), each in zip(places, found, strict=True):
        if each is None:
            continue
        values = {"auc": each.auc, "pauc": each.pauc}
        columns = {
            f"{name}_{domain}": 100 * matrix[:, each.domains.index(domain)]
            if domain in each.domains
            else np.full(len(each.configs), np.nan)
            for name, matrix in values.items()
            for domain in (SOURCE, TARGET)
        }
        place = {"split": role, "machine": machine, "config": list(each.configs)}
        scores = {"basis": each.basis, "pseudo_score": 100 * each.score}
        parts.append(pd.DataFrame({**place, **scores, **columns}))
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
    return pd.concat(parts, ignore_index=True)


def _brief(veto: Viability) -> dict[str, Any]:
    return {
        "basis": veto.basis,
        "limit": None if np.isnan(veto.limit) else 100 * veto.limit,
        "median": 100 * veto.median,
        "plain": 100 * veto.plain,
    }
