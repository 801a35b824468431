"""MachineModel: the detector of one machine, a value that can be saved to one file.

It holds the normals' embeddings, their leave-one-out scores, and one threshold that holds a
false-alarm rate in every domain. Adding normals or changing the rate makes another value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.views import Bands, Views, join_views
from daco.detector import modelfile
from daco.detector.modelcheck import check_fields, require_bank_size, require_usable
from daco.detector.thresholds import FALSE_ALARM_RATE, more_clips_for, require_rate, threshold_for
from daco.embedding.frontend import Frontend
from daco.errors import DacoError, InputError, ModelError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, parse_location
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.config import RECOMMENDED_CONFIG, WHY_RECOMMENDED, ScoreConfig
from daco.validation import Float64s, as_embeddings, as_float32
from daco.version import __version__

AUTO = "auto"  # chooses among daco.method.config.blind_pool()
RECOMMENDED = "recommended"  # daco.method.config.RECOMMENDED_CONFIG

_MAX_UPDATES = 100


@dataclass(frozen=True, eq=False)
class ClipScores:
    """The scores of n clips, row by row; higher is more anomalous.

    ``p_values`` are about the share of normals that score as high, ``alarms`` whether the score is
    above the threshold, ``weights`` (n, G) how strongly each clip belongs to each domain. The most
    similar normal is a row of the model; a clip is ``out_of_range`` where that is farther than any
    normal is from its most similar other one. ``normal_scores`` (n, members) are those of a vote.
    """

    scores: Float64s
    p_values: Float64s
    alarms: NDArray[np.bool_]
    weights: Float64s
    nearest: NDArray[np.intp]
    nearest_distance: Float64s
    out_of_range: NDArray[np.bool_]
    normal_scores: Float64s | None = None

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, eq=False, repr=False)
class MachineModel:
    """One machine's detector, made by `fit` or `load`; immutable.

    Attributes
    ----------
    machine, config : str
        Its name, and how clips are scored, such as ``conf-soft-m0-k1``.
    frontend : Frontend or None
        How recordings become vectors; None for a user's own embeddings.
    embeddings : (N, D) float32
        The normals.
    domains : tuple of str
        Sorted names.
    clip_domains : (N,) int
        Each normal's index into them.
    clip_names, clip_sha256 : tuple of str
        Of each normal's recording; a hash is ``""`` where it is not known.
    own_scores : (N,) float64
        Leave-one-out scores; threshold and p-values follow from them.
    false_alarm_rate, threshold : float
        A score above the threshold is an alarm.
    reason : str
        Why this configuration.
    provenance : dict
        ``created``, ``daco_version``, what it was made from, the selection, the updates.
    bands : int or Views
        Equal parts of each vector, for ``beam`` configurations, or its views.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press")
    >>> model
    MachineModel('press', conf-soft-m0-k1: 10 new and 50 old clips, 16-d, rate 0.1)
    >>> model.score(np.stack([X[0], -X[0]])).alarms
    array([False,  True])
    >>> model.at_rate(0.2).threshold < model.threshold
    True
    """

    machine: str
    config: str
    frontend: Frontend | None
    embeddings: NDArray[np.float32]
    domains: tuple[str, ...]
    clip_domains: NDArray[np.int32]
    clip_names: tuple[str, ...]
    own_scores: Float64s
    false_alarm_rate: float
    threshold: float
    reason: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    bands: Bands = 1
    clip_sha256: tuple[str, ...] = ()
    ranges: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_fields(vars(self))
        for name in ("embeddings", "clip_domains", "own_scores"):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @classmethod
    def fit(
        cls,
        X: Clips,
        domains: Domains | None = None,
        *,
        machine: str,
        frontend: Frontend | None = None,
        clip_names: Sequence[str] | None = None,
        config: str | ScoreConfig = AUTO,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        provenance: Mapping[str, Any] | None = None,
        bands: Bands | Mapping[str, int] | None = None,
        clip_sha256: Sequence[str] = (),
        ranges: Mapping[str, Any] | None = None,
    ) -> MachineModel:
        """The model of normal clips.

        Parameters
        ----------
        X : (N, D), or {name: (N, D)}
            Embeddings, stored as float32; of several views by name.
        domains : N labels, optional
            None: one domain, ``"all"``.
        machine : str
        frontend : Frontend, optional
            How `X` was made, to score recordings.
        clip_names, clip_sha256 : N texts, optional
            Names, row numbers by default, and SHA-256 of each recording.
        config : str or ScoreConfig
            ``"auto"`` chooses from the normals alone (:func:`daco.method.choice.choose_config`),
            ``"recommended"`` is `daco.method.config.RECOMMENDED_CONFIG`.
        false_alarm_rate : float in (0, 1)
            The share of normals of each domain that may be flagged.
        provenance : mapping, optional
            Stored with the model; ``created`` overrides the time (``$SOURCE_DATE_EPOCH`` or now).
        bands : int or Views, optional
            How vectors are divided, as of :class:`daco.NormalBank`.
        """
        from daco.method.choice import choose_config

        require_rate(false_alarm_rate)
        rows, views = join_views(X, bands)
        embeddings = as_float32(rows, "X")
        require_bank_size(len(embeddings))
        bank = NormalBank(embeddings, domains, bands=views)
        selection = None
        if config == AUTO and len(bank.views) == 1:
            choice = choose_config(embeddings, domains, bands=bank.bands, bank=bank)
            name, reason, selection = choice.config, choice.reason, choice.to_dict()
        elif config in (AUTO, RECOMMENDED):
            name, reason = RECOMMENDED_CONFIG, WHY_RECOMMENDED
        else:
            name, reason = require_usable(config), "named by the user"
        given = dict(provenance or {})
        model = cls(
            machine=machine,
            config=name,
            frontend=frontend,
            embeddings=embeddings,
            clip_names=_names(clip_names, len(embeddings)),
            false_alarm_rate=float(false_alarm_rate),
            reason=reason,
            provenance={
                "created": given.pop("created", None) or timestamp(),
                "daco_version": __version__,
                **given,
                "selection": selection,
                "updates": [],
            },
            bands=bank.bands,
            clip_sha256=tuple(clip_sha256),
            ranges=ranges,
            **_calibration(bank, name, false_alarm_rate),
        )
        return model._with_bank(bank)

    def __len__(self) -> int:
        return len(self.embeddings)

    def __repr__(self) -> str:
        sizes = " and ".join(f"{size} {name}" for name, size in self.domain_sizes.items())
        return (
            f"MachineModel({self.machine!r}, {self.config}: {sizes} clips, "
            f"{self.embeddings.shape[1]}-d, rate {self.false_alarm_rate:g})"
        )

    @cached_property
    def bank(self) -> NormalBank:
        """The engine that scores; built from the embeddings when first needed."""
        domains = np.array(self.domains)[self.clip_domains]
        return NormalBank(self.embeddings, domains, bands=self.bands)

    @cached_property
    def sha256(self) -> str:
        """Hash of all content: the model's identity, the same in memory and on disk."""
        return modelfile.content_hash(vars(self))

    @property
    def readout(self) -> str | None:
        """Readouts of the network whose vectors these are, as the commands write them."""
        if isinstance(self.bands, Views):
            return "+".join(self.bands.names)
        return None if self.frontend is None else self.frontend.readout

    @property
    def domain_sizes(self) -> dict[str, int]:
        """Normals per domain."""
        counts = np.bincount(self.clip_domains, minlength=len(self.domains))
        return dict(zip(self.domains, counts.tolist(), strict=True))

    @cached_property
    def reach(self) -> float:
        """The largest distance of a normal to its most similar other one."""
        return float(self.bank.leave_one_out("raw-k1").max())

    def score(self, X: Clips) -> ClipScores:
        """Judge clips of unknown domain, one row of `X` each."""
        examined = self.bank.examine(X, self.config)
        scores = examined.scores[:, 0]
        return ClipScores(
            scores=scores,
            p_values=self.p_values(scores, examined.weights),
            alarms=scores > self.threshold,
            weights=examined.weights,
            nearest=examined.nearest,
            nearest_distance=examined.distance,
            out_of_range=examined.distance > self.reach,
            normal_scores=examined.normal_scores,
        )

    def p_values(self, scores: ArrayLike, weights: ArrayLike) -> Float64s:
        """``(1 + normals as high) / (n + 1)`` of each domain, weighted; approximate."""
        scores = np.asarray(scores, np.float64)
        by_domain = np.empty((*scores.shape, len(self.domains)))
        for code, own in enumerate(self._sorted_own):
            above = len(own) - np.searchsorted(own, scores, side="left")
            by_domain[..., code] = (1 + above) / (len(own) + 1)
        return np.minimum((by_domain * np.asarray(weights)).sum(axis=-1), 1.0)

    @cached_property
    def _sorted_own(self) -> list[Float64s]:
        codes = range(len(self.domains))
        return [np.sort(self.own_scores[self.clip_domains == code]) for code in codes]

    def floor(self) -> dict[str, float]:
        """For each domain the smallest false-alarm rate with clips behind it, 1 / (n + 1)."""
        return {name: 1 / (size + 1) for name, size in self.domain_sizes.items()}

    def cautions(self) -> tuple[str, ...]:
        """A sentence for each domain with too few clips for the false-alarm rate."""
        return tuple(
            f"A false-alarm rate of {self.false_alarm_rate:g} is below {1 / (size + 1):.3g}, the "
            f"smallest that {size} {name} clip{'s' * (size > 1)} can support; the threshold "
            f"is extrapolated there. {more} more would support it."
            for name, size in self.domain_sizes.items()
            if (more := more_clips_for(self.false_alarm_rate, size))
        )

    def leave_one_out_rates(self) -> dict[str, float]:
        """The share of each domain's normals above the threshold, each left out once."""
        above = [float((own > self.threshold).mean()) for own in self._sorted_own]
        return dict(zip(self.domains, above, strict=True))

    def at_rate(self, rate: float) -> MachineModel:
        """The same detector with the threshold of another false-alarm rate; no refit."""
        threshold = threshold_for(self.config, self.own_scores, self.clip_domains, rate)
        model = replace(self, false_alarm_rate=float(rate), threshold=threshold)
        return model._with_bank(self.bank)

    def updated(
        self,
        X: Clips,
        domain: str,
        clip_names: Sequence[str],
        *,
        note: Mapping[str, Any] | None = None,
        clip_sha256: Sequence[str] = (),
    ) -> MachineModel:
        """The model with more normals of one domain, known or new, calibrated again.

        The configuration and the rate stay. `note` is stored with the update's time and counts.
        """
        rows = join_views(X, self.bands)[0]
        new = as_float32(as_embeddings(rows, dim=self.embeddings.shape[1]), "X")
        require_bank_size(len(self) + len(new))
        labels = [self.domains[code] for code in self.clip_domains] + [domain] * len(new)
        embeddings = np.concatenate([self.embeddings, new])
        bank = NormalBank(embeddings, labels, bands=self.bands)
        calibration = _calibration(bank, self.config, self.false_alarm_rate)
        update = {
            "when": timestamp(),
            "daco_version": __version__,
            **(note or {}),
            "domain": domain,
            "clips": len(new),
            "threshold_before": self.threshold,
            "threshold_after": calibration["threshold"],
        }
        history = [*self.provenance.get("updates", []), update]
        provenance = {**self.provenance, "updates": history[-_MAX_UPDATES:]}
        if len(history) > _MAX_UPDATES:
            earlier = self.provenance.get("earlier_updates", 0)
            provenance["earlier_updates"] = earlier + len(history) - _MAX_UPDATES
        hashes: tuple[str, ...] = ()
        if self.clip_sha256 or clip_sha256:
            known, more = self.clip_sha256 or [""] * len(self), clip_sha256 or [""] * len(new)
            hashes = (*known, *more)
        model = replace(
            self,
            embeddings=embeddings,
            clip_names=(*self.clip_names, *_names(clip_names, len(new))),
            provenance=provenance,
            clip_sha256=hashes,
            **calibration,
        )
        return model._with_bank(bank)

    def _with_bank(self, bank: NormalBank) -> MachineModel:
        self.__dict__["bank"] = bank  # where cached_property looks: distances are kept
        return self

    def to_bytes(self) -> bytes:
        """The content of a model file."""
        return modelfile.encode(vars(self))

    @classmethod
    def from_bytes(cls, content: bytes) -> MachineModel:
        """The model in the content of a file, checked."""
        values, sha256 = modelfile.decode(content)
        model = cls(**values)
        model.__dict__["sha256"] = sha256
        return model

    def save(self, path: Location | str) -> None:
        """Write the model to one file in one step."""
        content = self.to_bytes()
        with atomic_write(parse_location(path)) as temporary:
            temporary.write_bytes(content)

    @classmethod
    def load(cls, path: Location | str) -> MachineModel:
        """The model in a file, checked; a `ModelError` names the file and what is wrong with it."""
        try:
            return cls.from_bytes(modelfile.read_file(parse_location(path)))
        except (DacoError, MemoryError) as error:
            reason = "it does not fit into memory." if isinstance(error, MemoryError) else error
            raise ModelError(f"{path}: {reason}") from None


def timestamp() -> str:
    """The time in UTC to the second, ISO 8601; ``$SOURCE_DATE_EPOCH`` stands in for it."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _calibration(bank: NormalBank, config: str, rate: float) -> dict[str, Any]:
    """The fields of a model that follow from its bank."""
    own, codes = bank.leave_one_out(config)[:, 0], bank.clip_domains
    if not np.isfinite(own).all():
        raise InputError(
            f"{config!r} gives scores that are not finite for {int((~np.isfinite(own)).sum())} of "
            f"the {len(own)} normals. Choose another configuration."
        )
    return {
        "domains": bank.domains,
        "clip_domains": codes.astype(np.int32),
        "own_scores": own,
        "threshold": threshold_for(config, own, codes, rate),
    }


def _names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    names = tuple(map(str, range(count))) if given is None else tuple(given)
    if len(names) != count:
        raise InputError(f"clip_names must name each of the {count} clips. Got {len(names)}.")
    return names
