"""New normals of a model's machine: read as its normals were, and checked against them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from daco.data.table import EmbeddingTable, is_table
from daco.detector.gate import find_copies, require_few, suspicious_normals
from daco.detector.model import MachineModel, timestamp
from daco.detector.ranges import ranges_of, widen_ranges
from daco.detector.revision import add_normals
from daco.embedding.embed import Progress
from daco.embedding.frontend import Listener
from daco.embedding.normals import (
    Normals,
    NormalsByMachine,
    Skipped,
    normals_of_recordings,
    normals_of_table,
    readout_for,
)
from daco.errors import DataError, InputError
from daco.files.remote import Location
from daco.text import name_list, quantity, suggestion


def new_normals(
    model: MachineModel,
    source: Location,
    *,
    weights: Path | None = None,
    device: str = "cpu",
    domain_level: int | None = None,
    session_by: str | None = None,
    progress: Progress | None = None,
) -> tuple[Normals, NormalsByMachine]:
    """Read new normals of a model's machine from recordings or from a table of embeddings.

    Returns them, and all that was read, with its warnings and with what was skipped. Options are
    those of :func:`daco.embedding.normals.normals_of_recordings`.
    """
    if is_table(source):
        if domain_level is not None:
            raise InputError(
                f"{source} contains embeddings. --domain-level is for recordings: leave it out."
            )
        table = EmbeddingTable.read(source)
        readout = readout_for(table, model.frontend, model.readout, source)
        gathered = normals_of_table(source, readout=readout, training=False, session_by=session_by)
    else:
        listener = Listener(model.frontend, weights=weights, device=device)
        gathered = normals_of_recordings(
            source,
            listener.net,
            readout="+".join(listener.readouts),
            channel=listener.frontend.channel,
            training=False,
            progress=progress,
            domain_level=domain_level,
            session_by=session_by,
        )
    return _of_machine(model.machine, gathered), gathered


def _of_machine(machine: str, gathered: NormalsByMachine) -> Normals:
    """The normals of a machine; of any name, if there is only one machine."""
    by_name = {each.machine: each for each in gathered.machines}
    if machine not in by_name and len(by_name) > 1:
        raise DataError(
            f"The new clips belong to {len(by_name)} machines ({name_list(by_name)}), and none of "
            f"them is {machine!r}. Give the clips of one machine; if the folders are operating "
            "conditions, use --domain-level 1."
        )
    return by_name.get(machine, gathered.machines[0])


def _in_domain(clips: Normals, domain: str) -> Normals:
    """The clips of a domain; those of a single domain may have any other name."""
    names = sorted(set(clips.domains))
    wanted = domain if len(names) > 1 else names[0]
    rows = [row for row, name in enumerate(clips.domains) if name == wanted]
    if not rows:
        raise DataError(
            f"The new clips have the domains {name_list(names)}, and none of them is {domain!r}. "
            "Give the clips of one domain."
        )
    return replace(clips.take(rows), domains=(domain,) * len(rows))


def in_known_domains(
    model: MachineModel, clips: Normals, domain: str | None, folder: str
) -> tuple[Normals, bool]:
    """The clips in domains of the model, and whether it had to find them.

    All are of the `domain`, if one is given; else each is of its own, or of that of the `folder`.
    """
    if domain is not None and domain not in model.domains:
        raise InputError(
            f"The model has the domains {name_list(model.domains)}, but not {domain!r}."
            f"{suggestion(domain, model.domains)} Add a new domain with daco update."
        )
    own = sorted(set(clips.domains))
    if domain is None and set(own) <= set(model.domains):
        return clips, False
    if domain is None and len(own) > 1:
        raise InputError(
            f"The new clips have the domains {name_list(own)}, but the model has "
            f"{name_list(model.domains)}. Give --domain, or a manifest with the model's domains."
        )
    if domain is None and folder in model.domains:
        domain = folder
    if domain is not None:
        return replace(clips, domains=(domain,) * len(clips)), False
    codes = model.score(clips.embeddings).weights.argmax(axis=1)
    return replace(clips, domains=tuple(model.domains[code] for code in codes)), True


def without_suspicious(
    model: MachineModel, clips: Normals, keep: bool
) -> tuple[Normals, Skipped, list[str]]:
    """The clips without copies and suspicious ones, those with their reasons, and notes.

    A copy is never kept: it and its original would have distance 0, which the calibration would
    take for the usual distance of normals.
    """
    notes = []
    if copies := find_copies(clips, model):
        names = name_list(f"{clips.names[row]} (of {name})" for row, name in copies.items())
        notes.append(f"Left out {quantity(copies, 'copy', 'copies')}: {names}.")
        clips = clips.take([row for row in range(len(clips)) if row not in copies])
    suspicious = suspicious_normals(clips, model)
    listed = tuple((clips.names[row], reason) for row, reason in suspicious.items())
    if keep:
        return clips, (), [*notes, *(f"Kept {name}: {reason}" for name, reason in listed)]
    require_few(clips, suspicious)
    return clips.take([row for row in range(len(clips)) if row not in suspicious]), listed, notes


@dataclass(frozen=True)
class Addition:
    """Clips that a model can take up, those that were left out and why, and notes for a person."""

    clips: Normals
    left_out: Skipped
    notes: tuple[str, ...]
    anomalous: int
    forced: bool

    def apply(self, model: MachineModel, calibrate: bool = False) -> MachineModel:
        """The model with the clips, whose alarm limit they set where it is to `calibrate`."""
        clips = self.clips
        taken, source = set(model.clip_names), clips.origin.get("source", "new")
        sessions = clips.sessions  # of their own where the model has sessions and they do not
        if model.sessions and not sessions:
            sessions = (f"added {timestamp()}",) * len(clips)
        return add_normals(
            model,
            clips.embeddings,
            clips.domains[0],
            [f"{source}/{name}" if name in taken else name for name in clips.names],
            calibrate=calibrate,
            note={**clips.origin, "anomalous": self.anomalous, "forced": self.forced},
            clip_sha256=clips.sha256s,
            ranges=widen_ranges(model.ranges, ranges_of(clips)),
            sessions=sessions,
        )


def checked_addition(model: MachineModel, clips: Normals, domain: str, keep: bool) -> Addition:
    """Check new clips for a domain, known or new; anomalous ones of a known domain are an error.

    Other suspicious clips are left out. With `keep` all but copies are taken.
    """
    own = _in_domain(clips, domain)
    notes = []
    if others := len(clips) - len(own):
        notes.append(f"Left out {quantity(others, 'clip')} of other domains than {domain}.")
    own, left_out, more = without_suspicious(model, own, keep)
    notes += [*more, *_near_copies(model, own)]
    anomalous, note = _count_anomalous(model, own, domain, keep)
    notes += [] if note is None else [note]
    return Addition(own, left_out, tuple(notes), anomalous, keep)


def _near_copies(model: MachineModel, clips: Normals) -> list[str]:
    """A note for each clip that is much nearer to a normal than any two normals are."""
    if not len(clips):
        return []
    scored = model.score(clips.embeddings)
    own = model.bank.leave_one_out("raw-k1")[:, 0]
    close = 0.5 * own[own > 0].min(initial=float("inf"))
    found = zip(clips.names, scored.distance, scored.nearest, strict=True)
    return [
        f"{name} may be a copy of {model.clip_names[nearest]}: no two normals are as similar."
        for name, distance, nearest in found
        if distance < close < float("inf")
    ]


def _count_anomalous(
    model: MachineModel, clips: Normals, domain: str, keep: bool
) -> tuple[int, str | None]:
    """Count the clips that sound anomalous to the model, which is an error in a known domain."""
    if not len(clips):
        return 0, None
    decisions = model.score(clips.embeddings).anomalous
    anomalous = [name for name, odd in zip(clips.names, decisions, strict=True) if odd]
    if domain not in model.domains:
        return len(anomalous), (
            f"{domain} is a new domain beside {name_list(model.domains)}. The model finds "
            f"{len(anomalous)} of its {quantity(clips.names, 'clip')} anomalous. A new condition "
            "can cause this, but make sure that the clips are normal."
        )
    if not anomalous:
        return 0, None
    sentence = (
        f"The model finds {len(anomalous)} of {len(clips)} new clips anomalous (about "
        f"{model.false_alarm_rate * len(clips):.1f} if all were normal): "
        f"{name_list(anomalous, 10)}."
    )
    if not keep:
        raise InputError(
            f"{sentence} Listen to them. A fault among the normals hides all faults like it. If "
            "the clips are normal, add them with --keep-suspicious."
        )
    return len(anomalous), f"{sentence} They were added because of --keep-suspicious."
