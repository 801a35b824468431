"""The label-free veto of a study: pseudo scores of every machine, and the veto over all of them.

No argument here could carry a label or a test clip: a machine's normals with their domains, and
faults injected into them, are all there is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import NotEnoughClipsError
from daco.experiments.inputs import SOURCE, TARGET, MachineData
from daco.method.bank import NormalBank
from daco.method.viability import (
    INJECTED,
    PseudoScores,
    Viability,
    bank_pseudo_scores,
    pseudo_scores,
    viability_veto,
)
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

ROLES = {"dev": "development", "eval": "evaluation"}
_FACTS = ("basis", "domains", "detectable", "warnings")
_VALUES = ("auc", "pauc", "plain")


@dataclass(frozen=True, eq=False)
class StudyVeto:
    """The label-free veto of a study over the ``machines`` (role, name) that count.

    ``by_role`` are the vetoes of the development and of the evaluation machines alone, each on
    its own basis.
    """

    viability: Viability
    by_role: dict[str, Viability]
    machines: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; scores in percent."""
        veto = self.viability
        rows = zip(veto.configs, veto.score.tolist(), strict=True)
        return {
            **_summary(veto),
            "cut": dict(veto.reasons),
            "notes": list(self.notes),
            "machines": [{"split": role, "machine": name} for role, name in self.machines],
            "by_role": {
                role: {**_summary(each), "cut": list(each.reasons)}
                for role, each in self.by_role.items()
            },
            "configs": [
                {"config": name, "pseudo_score": 100 * score, "kept": name not in veto.reasons}
                for name, score in rows
            ],
        }


def pseudo_arrays(
    bank: NormalBank,
    data: MachineData,
    configs: Sequence[str],
    *,
    seed: int = 0,
    detectors: Mapping[str, Any] | None = None,
) -> dict[str, NDArray[Any]]:
    """Pseudo scores of one machine as arrays for its file; an empty text for too few clips.

    They are of the faults injected into the machine's recordings; without them its normals are
    moved. `detectors` are the external scorers of the configurations.
    """
    faults = data.faults
    scores: PseudoScores | None = None
    if configs and faults is None:
        scores = bank_pseudo_scores(bank, configs, seed)
    elif configs and faults is not None:
        with suppress(NotEnoughClipsError):
            scores = pseudo_scores(
                data.X, data.domains, faults, configs, views=data.views, scorers=detectors
            )
    if scores is None:
        return {"pseudo": np.array("")}
    facts = {name: getattr(scores, name) for name in _FACTS}
    return {
        "pseudo": np.array(json.dumps(facts)),
        # Contiguous, as they are read back: sums of other orders differ in the last digit.
        **{f"pseudo_{name}": np.ascontiguousarray(getattr(scores, name)) for name in _VALUES},
    }


def pseudo_scores_of(
    arrays: Mapping[str, NDArray[Any]], configs: Sequence[str]
) -> PseudoScores | None:
    """The pseudo scores in a machine's arrays; None where it has too few clips."""
    if not str(arrays["pseudo"]):
        return None
    facts = json.loads(str(arrays["pseudo"]))
    for name in ("domains", "detectable", "warnings"):
        facts[name] = tuple(facts[name])
    values: dict[str, Any] = {name: arrays[f"pseudo_{name}"] for name in _VALUES}
    return PseudoScores(configs=tuple(configs), **facts, **values)


def study_veto(
    machines: Sequence[tuple[str, str]], scores: Sequence[PseudoScores | None]
) -> tuple[StudyVeto | None, list[str]]:
    """The veto over all machines with notes; None where no machine has pseudo scores.

    Development and evaluation machines count alike, because no label is read. All of them must
    have one basis: where faults were injected into the machines of one role only, that role
    counts alone, since sounds say more than moved vectors.
    """
    known = [(key, each) for key, each in zip(machines, scores, strict=True) if each is not None]
    missing = [name for (_, name), each in zip(machines, scores, strict=True) if each is None]
    notes = []
    if missing:
        notes.append(
            f"{quantity(missing, 'machine')} without enough normals for the label-free veto "
            f"({name_list(missing, 4)})."
        )
    if not known:
        return None, notes
    roles = list(dict.fromkeys(role for (role, _), _ in known))
    of_role = {role: [each for (own, _), each in known if own == role] for role in roles}
    by_role = {role: viability_veto(mine) for role, mine in of_role.items()}
    counting = [role for role in roles if by_role[role].basis == INJECTED] or roles
    notes += [
        f"The label-free veto uses the {ROLES[counting[0]]} machines alone: faults "
        f"were not injected into all {ROLES[role]} machines."
        for role in roles
        if role not in counting
    ]
    viability = viability_veto([each for role in counting for each in of_role[role]])
    counted = tuple(key for key, _ in known if key[0] in counting)
    return StudyVeto(viability, by_role, counted, (*viability.warnings, *notes)), notes


def viability_table(
    machines: Sequence[tuple[str, str]], scores: Sequence[PseudoScores | None]
) -> pd.DataFrame:
    """Pseudo scores of every machine and configuration, in percent."""
    import pandas as pd

    names = [f"{value}_{domain}" for value in ("auc", "pauc") for domain in (SOURCE, TARGET)]
    columns = ["split", "machine", "config", "basis", "pseudo_score", *names]
    parts = []
    for (role, machine), each in zip(machines, scores, strict=True):
        if each is not None:
            part = pd.DataFrame({"split": role, "machine": machine, "config": list(each.configs)})
            part["basis"], part["pseudo_score"] = each.basis, 100 * each.score
            for value in ("auc", "pauc"):
                part[[f"{value}_{domain}" for domain in each.domains]] = 100 * getattr(each, value)
            parts.append(part.reindex(columns=columns))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _summary(veto: Viability) -> dict[str, Any]:
    return {
        "basis": veto.basis,
        "limit": None if veto.abstains else 100 * veto.limit,
        "median": 100 * veto.median,
        "plain": 100 * veto.plain,
    }
