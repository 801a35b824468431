"""The reference scores of a bank: of new normals, or of its own clips as if they were new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.detector.decision import INDEPENDENT, NEW, SESSIONS, TRAINING, ReferenceScores
from daco.errors import InputError
from daco.method.bank import Clips, NormalBank
from daco.method.config import ScoreConfig
from daco.method.engine import ClipScores
from daco.method.siblings import AUTO
from daco.text import day_in_words, name_list, quantity
from daco.validation import is_missing


def reference_for(
    bank: NormalBank,
    config: str | ScoreConfig,
    sessions: Sequence[str] = (),
    new: tuple[Clips, NDArray[np.int32]] | None = None,
    siblings: str | int = AUTO,
    own: ClipScores | None = None,
) -> ReferenceScores:
    """Choose the best reference scores that each domain has.

    These are scores of its `new` clips, given with their domain codes; else, where two or more of
    its sessions are known, of the clips of these, each scored with its session hidden; else of all
    its clips, each scored with its likely siblings hidden. No `siblings` declare that clips are
    independent. `own` has the clips of the bank by `score_as_new`, if that was done before.
    """
    parsed = ScoreConfig.parse(config)
    names = _sessions_that_count(bank, sessions)
    new_codes = np.zeros(0, np.int32) if new is None else new[1]
    of_new = None if new is None else bank.examine(new[0], parsed)
    if own is None and set(range(len(bank.domains))) - set(new_codes.tolist()):
        own = score_as_new(bank, parsed, siblings, sessions)
    parts: list[ClipScores] = []
    kinds: dict[Any, str] = {}
    counts: dict[Any, int] = {}
    hidden: dict[Any, float] = {}
    for code, name in enumerate(bank.domains):
        rows = bank.clip_domains == code
        known = rows & (names != "")
        if of_new is not None and (new_codes == code).any():
            kinds[name], part = NEW, of_new.take(new_codes == code)
        elif own is not None and known.any():
            kinds[name], part = SESSIONS, own.take(known)
            counts[name] = len(set(names[known].tolist()))
        elif own is not None:
            kinds[name], part = TRAINING if siblings != 0 else INDEPENDENT, own.take(rows)
            hidden[name] = 0.0 if part.hidden is None else float(part.hidden.mean())
        parts.append(part)
    sizes = [len(part) for part in parts]
    support = {
        name: float(np.median(1 / (part.weights**2 / sizes).sum(axis=1)))
        for name, part in zip(bank.domains, parts, strict=True)
    }
    return ReferenceScores(
        np.concatenate([part.scores for part in parts]),
        np.repeat(np.arange(len(parts), dtype=np.int32), sizes),
        bank.domains,
        parsed.calibration == "conf",
        kinds,
        counts,
        support,
        hidden,
    )


def score_as_new(
    bank: NormalBank,
    config: str | ScoreConfig,
    siblings: str | int = AUTO,
    sessions: Sequence[str] = (),
) -> ClipScores:
    """Score the clips of a bank without their sessions or likely siblings, in the order of X."""
    names = _sessions_that_count(bank, sessions).tolist()
    return bank.examine_normals(config, siblings, names)


def _sessions_that_count(bank: NormalBank, sessions: Sequence[str]) -> NDArray[Any]:
    """The session of each clip, "" where it is not known or the only one of its domain."""
    names = np.array(sessions if len(sessions) else [""] * len(bank))
    domains = range(len(bank.domains))
    several = [len(set(names[bank.clip_domains == code].tolist()) - {""}) > 1 for code in domains]
    return np.where(np.array(several)[bank.clip_domains], names, "")


def reference_fields(
    bank: NormalBank,
    config: str | ScoreConfig,
    siblings: int | str,
    sessions: Sequence[str],
    new: tuple[Clips, NDArray[np.int32]] | None = None,
    before: Mapping[str, Mapping[str, Any]] | None = None,
    when: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields of a model that follow from its bank, new normals and the basis `before` these."""
    reference = reference_for(bank, config, sessions, new, siblings)
    basis = {}
    for name, kind in reference.kinds.items():
        known = (before or {}).get(name, {})
        same = known.get("kind") == kind and reference.sizes[name] <= known["clips"]
        since = (when or {}).get(name, known["when"] if same else None)
        basis[name] = {
            "kind": kind,
            "clips": reference.sizes[name],
            "when": since,
            # Those with a time are the halves of one session, no sessions.
            "sessions": reference.sessions.get(name) if since is None else None,
            "support": reference.support.get(name),
            "siblings": reference.siblings.get(name),
        }
    return {
        "domains": bank.domains,
        "clip_domains": bank.clip_domains.astype(np.int32),
        "reference_scores": reference.scores,
        "reference_domains": reference.clip_domains,
        "basis": basis,
    }


def parse_sessions(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Sessions of clips; () where none is known."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"groups must name each of the {count} clips. Got {given!r:.40}.")
    names = tuple("" if is_missing(each) else str(each) for each in given)
    if names and len(names) != count:
        raise InputError(f"groups must name each of the {count} clips. Got {len(names)}.")
    return names if any(names) else ()


def basis_in_words(basis: Mapping[str, Mapping[str, Any]]) -> str:
    """The origin of the reference scores in words.

    >>> basis_in_words({"all": {"kind": "new", "clips": 25, "when": "2026-05-12T08:00:00Z"}})
    'from 25 new recordings of 12 May 2026'
    """
    alike: dict[tuple[str, str], list[str]] = {}
    for name, each in basis.items():
        alike.setdefault((each["kind"], day_in_words(each["when"], "of")), []).append(name)
    sentences = []
    for (kind, day), names in alike.items():
        clips = sum(basis[name]["clips"] for name in names)
        hidden = sum(basis[name]["clips"] * (basis[name].get("siblings") or 0) for name in names)
        siblings = f" (each without {hidden / clips:.1f} likely siblings)" * (hidden >= clips / 10)
        sentence = {
            NEW: f"from {quantity(clips, 'new recording')}{day}",
            SESSIONS: f"from {quantity(clips, 'recording')}{day}, each judged without its "
            + ("half of them" if day else "session"),
            INDEPENDENT: "from the training recordings, declared independent of each other",
            TRAINING: f"from the training recordings only{siblings} and unknown for new ones",
        }[kind]
        sentences.append(sentence if len(alike) == 1 else f"for {name_list(names)} {sentence}")
    return "; ".join(sentences)
