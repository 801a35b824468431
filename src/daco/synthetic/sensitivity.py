"""Sensitivity of a model: the share of recordings with a fault that it catches, as one table.

Faults are injected into normal recordings of the machine (:mod:`daco.synthetic.injection`). A
recording that is in the model is judged by the model without it. A recording is caught if its score
is anomalous or its levels are outside the ranges of the normals.

The table has a row for each fault, domain and level (ascending); rows without a fault come first.
Columns: ``fault``, ``domain``, ``level_db``, ``caught``, ``clips``, ``rate``, the 95 % binomial
interval ``low`` and ``high``, ``by_score`` and ``by_ranges`` (recordings that each of the two
catches), and ``in_model`` (recordings that are in the model).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from daco.backbones.levels import LEVELS as SOUND
from daco.backbones.levels import parse_levels
from daco.data.clips import ONE_DOMAIN, Clip, ClipTable, machine_title
from daco.data.table import EmbeddingTable
from daco.detector.decision import is_anomalous
from daco.detector.model import MachineModel
from daco.detector.ranges import check_levels
from daco.embedding.frontend import Listener
from daco.embedding.normals import readout_for
from daco.errors import DacoError, DataError, NotEnoughClipsError
from daco.evaluation.intervals import share_interval
from daco.files.remote import parse_location
from daco.method.bank import NormalBank
from daco.synthetic.fault_tables import same_recordings
from daco.synthetic.faults import ALL_KINDS
from daco.synthetic.injection import Plan, Progress, choose_recordings, inject_recordings
from daco.text import loudness_in_words, name_list, quantity
from daco.validation import Floats

LEVELS = tuple(float(level) for level in range(-24, 1, 3))
"""Decibels relative to the recording."""

CAUGHT = 0.9
"""The share of recordings from which on a fault counts as caught."""

_FEW = 20


def inject_for(
    model: MachineModel,
    recordings: ClipTable,
    listener: Listener,
    plan: Plan | None = None,
    *,
    per_domain: int = 20,
    progress: Progress | None = None,
) -> EmbeddingTable:
    """Inject faults into normal recordings of a model's machine, for `detection_rates`.

    Parameters
    ----------
    model, listener : MachineModel, Listener
        The model, and a listener of its frontend.
    recordings : ClipTable
        Training normals of the machine; other clips in it are ignored.
    plan : Plan, optional
        Faults and levels, by default all, from -24 to 0 dB in steps of 3.
    per_domain : int
        Number of recordings of each domain, drawn by the plan's seed if there are more.
    progress : callable, optional
        Called with the number of recordings done, and of all recordings.
    """
    plan = plan or Plan(ALL_KINDS, LEVELS)
    chosen = choose_recordings(of_machine(recordings, model.machine), per_domain, plan.seed)
    channel = listener.frontend.channel
    return inject_recordings(
        chosen, listener.net, plan, readouts=listener.readouts, channel=channel, progress=progress
    )


def quick_faults(
    model: MachineModel, listener: Listener, progress: Progress | None = None
) -> EmbeddingTable:
    """A few recordings of a model with a few faults, embedded as its normals were.

    For a quick estimate: it takes 2 s without a network.
    """
    named = zip(model.clip_names, model.clip_domains, strict=True)
    clips = tuple(Clip(name, model.machine, domain=model.domains[at]) for name, at in named)
    table = ClipTable(parse_location(model.provenance["root"]), clips)
    plan = Plan(("impacts", "tones", "off"), LEVELS[::2][1:])
    return inject_for(model, table, listener, plan, per_domain=3, progress=progress)


def _why_not_quick(model: MachineModel) -> str | None:
    """Why the faults that a model catches are not measured beside other work."""
    if model.frontend is None or "root" not in model.provenance:
        return "daco can measure which faults the model catches only in recordings."
    if any(view.backbone != "logmel" for view in model.frontend.views):
        return "Run daco sensitivity to measure which faults the model catches."
    return None


def quick_sentences(model: MachineModel, progress: Progress | None = None) -> list[str]:
    """Which faults a model would notice, in three lines; or why that is not known."""
    if reason := _why_not_quick(model):
        return [reason]
    try:
        rates = detection_rates(model, quick_faults(model, Listener(model.frontend), progress))
    except NotEnoughClipsError:
        return ["There are too few recordings to measure which faults the model catches."]
    except DacoError as error:
        return [f"daco could not measure which faults the model catches: {error}"]
    clips = quantity(int(rates.loc[rates["fault"] == "", "clips"].sum()), "recording")
    head = f"Synthetic faults in {clips}, levels relative to the recording:"
    return [head, *(f"- {sentence}" for sentence in sentences(rates))]


def caught_by_both(before: MachineModel, after: MachineModel) -> tuple[int, int, int]:
    """How many injected faults two models catch, and of how many; 0 where that is not quick."""
    if _why_not_quick(before):
        return 0, 0, 0
    try:
        faults = quick_faults(before, Listener(before.frontend))
    except (DacoError, OSError):  # the recordings of the model are no longer there, or too few
        return 0, 0, 0
    old, new = (detection_rates(each, faults).query("fault != ''") for each in (before, after))
    return int(old["caught"].sum()), int(new["caught"].sum()), int(old["clips"].sum())


def detection_rates(model: MachineModel, faults: EmbeddingTable) -> pd.DataFrame:
    """Count the injected faults that a model catches, which were embedded as its normals were.

    The result is the table that the module describes.
    """
    readout = readout_for(faults, model.frontend, model.readout, "The table of faults")
    anomalous, in_model = _judge(model, faults.matrix(readout), faults)
    levels = parse_levels(faults.columns.get(SOUND, ()))
    guards = check_levels(model.ranges, levels, len(faults))
    versions = pd.DataFrame({name: faults.columns[name] for name in ("fault", "domain")})
    for name in versions:  # groups are sorted in the order in which these appear
        versions[name] = pd.Categorical(versions[name], list(dict.fromkeys(versions[name])))
    versions["level_db"] = faults.columns["level_db"].astype(float)
    versions["by_score"] = anomalous
    versions["by_ranges"] = [guard is not None for guard in guards]
    versions["caught"] = versions["by_score"] | versions["by_ranges"]
    versions["in_model"] = in_model
    groups = versions.groupby(["fault", "domain", "level_db"], dropna=False, observed=True)
    rates = groups.sum().astype(int).assign(clips=groups.size()).reset_index()
    rates["rate"] = rates["caught"] / rates["clips"]
    pairs = zip(rates["caught"].tolist(), rates["clips"].tolist(), strict=True)
    rates[["low", "high"]] = [share_interval(*pair) for pair in pairs]
    counts = ["caught", "clips", "rate", "low", "high", "by_score", "by_ranges", "in_model"]
    rates = rates.astype({"fault": str, "domain": str})
    return rates[["fault", "domain", "level_db", *counts]]


def _judge(
    model: MachineModel, vectors: Floats, faults: EmbeddingTable
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each version is anomalous, and whether its recording is in the model."""
    paths = faults.columns["path"].astype(str)
    is_clean = np.array([not fault for fault in faults.columns["fault"]])
    recordings = paths[is_clean].tolist()
    same = same_recordings(vectors[is_clean], recordings, model.embeddings, model.clip_names) > 0
    domains = np.array(model.domains)[model.clip_domains]
    anomalous, in_model = np.zeros((2, len(paths)), bool)
    for path, copies in zip(recordings, same, strict=True):
        rows = np.flatnonzero(paths == path)
        in_model[rows] = copies.any()
        try:
            bank = model.bank
            if copies.any():
                bank = NormalBank(model.embeddings[~copies], domains[~copies], views=model.views)
            found = bank.examine(vectors[rows], model.config)
        except NotEnoughClipsError as error:
            raise NotEnoughClipsError(
                f"The model has {quantity(len(model), 'normal')}, and a recording of it is judged "
                f"without it: {error} Or give recordings that are not in the model."
            ) from None
        weights = np.zeros((len(rows), len(model.domains)))  # 0 where a domain is empty now
        weights[:, [model.domains.index(name) for name in bank.domains]] = found.weights
        p_values = model.reference.p_values(found.scores, weights)
        anomalous[rows] = is_anomalous(p_values, model.false_alarm_rate)
    return anomalous, in_model


def of_machine(recordings: ClipTable, machine: str) -> ClipTable:
    """The recordings of a model's machine; of any name, if there is only one machine."""
    tables = {}
    for (year, name), table in recordings.by_machine().items():
        tables[name] = tables[machine_title(year, name)] = table
    if machine not in tables and len(recordings.by_machine()) > 1:
        raise DataError(
            f"The model is of {machine}, the recordings are of {name_list(sorted(tables))}. Give "
            "those of the model's machine."
        )
    return tables.get(machine, recordings)


def caught_from(rates: pd.DataFrame, share: float = CAUGHT) -> pd.DataFrame:
    """From which level on a fault is caught, and by what: a row per fault and domain.

    ``from_db`` is the level from which on at least the `share` is always caught (nan if it never
    is), ``top`` the rate at the highest level, and ``by`` what catches half or more of them:
    ``score``, ``ranges``, ``both`` or ``-``.

    >>> rates = pd.DataFrame({"fault": "rub", "domain": "old", "level_db": [-12.0, -6.0, 0.0]})
    >>> rates = rates.assign(rate=[1, 0.5, 0.9], caught=[10, 5, 9], by_score=9, by_ranges=0)
    >>> print(*caught_from(rates).loc[0])
    rub old 0.0 0.9 score
    """
    rows = []
    for key, levels in rates[rates["fault"] != ""].groupby(["fault", "domain"], sort=False):
        missed = levels.loc[levels["rate"] < share, "level_db"].max()
        top = levels.iloc[-1]
        least = max(1, top["caught"]) / 2
        ways = [way for way in ("score", "ranges") if top[f"by_{way}"] >= least]
        by = "both" if len(ways) == 2 else "".join(ways) or "-"
        from_db = levels.loc[~(levels["level_db"] <= missed), "level_db"].min()
        rows.append((*key, from_db, top["rate"], by))
    return pd.DataFrame(rows, columns=["fault", "domain", "from_db", "top", "by"])


def sentences(rates: pd.DataFrame, share: float = CAUGHT) -> list[str]:
    """From which level on each fault is caught, or how often at the highest level."""
    ways = {"ranges": ", by the levels", "both": ", by score or levels"}
    highest = rates["level_db"].max()
    parts: dict[str, dict[tuple[str, str], list[str]]] = {}
    found = caught_from(rates, share).itertuples(index=False, name=None)
    for fault, domain, from_db, top, by in found:
        if np.isnan(from_db):
            how = f"{top:.0%} caught at {_level_in_words(fault, highest)}", ""
        else:
            how = f"caught from {_level_in_words(fault, from_db)}", ways.get(by, "")
        parts.setdefault(fault, {}).setdefault(how, []).append(domain)
    lines = []
    for fault, domains_of in parts.items():
        texts = []
        for (level, way), domains in domains_of.items():
            where = "" if domains == [ONE_DOMAIN] else f" in {' and '.join(domains)}"
            texts.append(f"{level}{where}{way}")
        lines.append(f"{fault}: {'; '.join(texts)}.")
    return lines


def _level_in_words(fault: str, level_db: float) -> str:
    """A level in words, with its decibels.

    >>> _level_in_words("rub", -12.0), _level_in_words("off", -10.0)
    ("a quarter of the machine's loudness (-12 dB)", '10% of the time (-10 dB)')
    """
    if fault == "off":  # its level is the share of the time
        return f"{10 ** (level_db / 10):.0%} of the time ({level_db:g} dB)"
    return f"{loudness_in_words(level_db)} ({level_db:g} dB)"


def warnings(rates: pd.DataFrame, model: MachineModel, recordings: ClipTable) -> list[str]:
    """The limits of the numbers: another machine, few recordings, or many false alarms."""
    lines = []
    recorded = {machine_title(*key): key[1] for key in recordings.by_machine()}
    if not rates["in_model"].any() and model.machine not in (*recorded, *recorded.values()):
        lines.append(
            f"The model is of {model.machine}, but the recordings are of {name_list(recorded)}. If "
            f"that is another machine, the rates do not hold for {model.machine}."
        )
    clean = rates.loc[rates["fault"] == "", ["domain", "caught", "clips", "low"]]
    for domain, caught, clips, lowest in clean.itertuples(index=False, name=None):
        if clips < _FEW:
            low = share_interval(clips, clips)[0]
            lines.append(
                f"Each rate in {domain} comes from {quantity(clips, 'recording')}: if {clips} of "
                f"{clips} are caught, the true rate may still be {low:.2f}."
            )
        if lowest > model.false_alarm_rate:
            lines.append(
                f"{caught} of {clips} {domain} recordings are caught without a fault, more than "
                f"the false-alarm rate of {model.false_alarm_rate:g} allows, so catching a fault "
                "there proves little."
            )
    return lines
