"""MachineModel: the detector of one machine, a value that can be saved to one file.

It holds the normals' embeddings and the reference scores that clips are judged against. Adding or
removing normals, calibrating with new ones, or changing the rate makes another value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.views import Bands, Views, join_views
from daco.detector import modelfile
from daco.detector.modelcheck import (
    check_fields,
    read_file,
    require_bank_size,
    require_usable,
    scorers_of,
)
from daco.detector.reference import (
    ReferenceScores,
    basis_in_words,
    expected_rates,
    parse_sessions,
    reference_fields,
)
from daco.detector.thresholds import FALSE_ALARM_RATE, require_rate
from daco.embedding.frontend import Frontend
from daco.errors import DacoError, InputError, ModelError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, parse_location
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.config import RECOMMENDED_CONFIG, WHY_RECOMMENDED, ScoreConfig
from daco.validation import Float64s, as_float32
from daco.version import __version__

AUTO = "auto"  # chooses among daco.method.config.blind_pool()
RECOMMENDED = "recommended"  # daco.method.config.RECOMMENDED_CONFIG

_ARRAYS = (
    *("embeddings", "clip_domains", "reference_scores", "reference_domains"),
    *("new_embeddings", "new_domains"),
)


@dataclass(frozen=True, eq=False)
class ClipScores:
    """The scores of n clips; higher is more anomalous.

    Attributes
    ----------
    scores, p_values, alarms : (n,)
        A p-value is about the share of normals that score as high. `alarms` is True for an
        anomalous clip, whose p-value is at most the false-alarm rate.
    weights : (n, G) float64
        How strongly each clip belongs to each domain.
    nearest, nearest_distance : (n,) int, (n,) float64
        Row of the most similar normal, and its cosine distance.
    far : (n,) bool
        Whether that distance is larger than any between a normal and its nearest other one.
    normal_scores : (n, members) or None
        The scores of the members of a vote.
    """

    scores: Float64s
    p_values: Float64s
    alarms: NDArray[np.bool_]
    weights: Float64s
    nearest: NDArray[np.intp]
    nearest_distance: Float64s
    far: NDArray[np.bool_]
    normal_scores: Float64s | None = None

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True, eq=False, repr=False)
class MachineModel:
    """The detector of one machine, made by `fit` or `load`; immutable.

    Attributes
    ----------
    machine, config : str
        The name of the machine, and how clips are scored, such as ``conf-soft-m0-k1``.
    frontend : Frontend or None
        How recordings become embeddings; None for embeddings of your own.
    embeddings : (N, D) float32
        Embeddings of the normals.
    domains, clip_domains : tuple of str, (N,) int
        Sorted names of the domains, and the index of each normal's domain.
    clip_names, clip_sha256 : tuple of str
        Name and SHA-256 of the recording of each normal; an unknown hash is ``""``.
    reference_scores, reference_domains : (n,) float64, (n,) int
        The reference scores and their domains.
    false_alarm_rate : float
        A clip whose p-value is at most this rate is anomalous.
    reason : str
        Why this configuration was chosen.
    provenance : dict
        ``created``, ``daco_version``, the origin, the selection, the updates.
    bands : int or Views
        Number of equal bands in each embedding, for ``beam`` configurations, or its views.
    sessions : tuple of str
        Recording session of each normal, ``""`` if unknown; empty if none is known.
    new_embeddings, new_domains, new_names
        Normals that are not in the bank; their domains take reference scores from them.
    basis : {domain: dict}
        The origin of the reference scores of each domain: ``kind``, ``clips`` and ``when``.
    ranges : dict, optional
        The ranges of sound levels of the normals.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press")
    >>> model
    MachineModel('press', conf-soft-m0-k1: 10 new and 50 old clips, 16-d, rate 0.1)
    >>> model.score(np.stack([X[0], -X[0]])).alarms
    array([False,  True])
    >>> model.at_rate(0.2).thresholds["old"] < model.thresholds["old"]
    True
    """

    machine: str
    config: str
    frontend: Frontend | None
    embeddings: NDArray[np.float32]
    domains: tuple[str, ...]
    clip_domains: NDArray[np.int32]
    clip_names: tuple[str, ...]
    reference_scores: Float64s
    reference_domains: NDArray[np.int32]
    basis: Mapping[str, Mapping[str, Any]]
    false_alarm_rate: float
    reason: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    bands: Bands = 1
    clip_sha256: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    new_embeddings: NDArray[np.float32] = field(default_factory=lambda: _empty(0, 0))
    new_domains: NDArray[np.int32] = field(default_factory=lambda: _empty(0).astype(np.int32))
    new_names: tuple[str, ...] = ()
    ranges: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_fields(vars(self))
        for name in _ARRAYS:
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
        groups: Sequence[str] | None = None,
        ranges: Mapping[str, Any] | None = None,
    ) -> MachineModel:
        """Fit a model to normal clips.

        Parameters
        ----------
        X : (N, D), or {view: (N, D)}
            Embeddings of the normals, stored as float32.
        domains : N labels, optional
            The domain of each clip; by default one domain, ``"all"``.
        machine : str
            The name of the machine.
        frontend : Frontend, optional
            How `X` was computed. Without it the model scores embeddings, but no recordings.
        clip_names, clip_sha256 : N texts, optional
            Name (by default the row number) and SHA-256 of each recording.
        config : str or ScoreConfig
            ``"auto"``, the default, is :func:`daco.method.choice.choose_config`, or
            ``"recommended"`` for several views. ``"recommended"`` is ``"vote"``.
        false_alarm_rate : float in (0, 1), default=0.1
            The share of normals of each domain that may be called anomalous.
        provenance : mapping, optional
            Stored with the model; ``created`` overrides the time (``$SOURCE_DATE_EPOCH`` or now).
        bands : int, Views or {view: int}, optional
            How embeddings are divided, as in :class:`daco.NormalBank`.
        groups : N texts, optional
            Recording session of each clip, ``""`` if unknown.
        ranges : mapping, optional
            The ranges of sound levels of the normals.
        """
        from daco.method.choice import choose_config

        require_rate(false_alarm_rate)
        rows, views = join_views(X, bands)
        embeddings = as_float32(rows, "X")
        require_bank_size(len(embeddings))
        bank = NormalBank(embeddings, domains, bands=views)
        sessions = parse_sessions(groups, len(embeddings))
        selection = None
        if config == AUTO and len(bank.views) == 1:
            choice = choose_config(
                embeddings, domains, bands=bank.bands, bank=bank, sessions=sessions
            )
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
            clip_names=parse_names(clip_names, len(embeddings)),
            false_alarm_rate=float(false_alarm_rate),
            reason=reason,
            provenance={
                "created": given.pop("created", None) or timestamp(),
                "daco_version": __version__,
                **given,
                **({"scorers": scorers} if (scorers := scorers_of(name)) else {}),
                "selection": selection,
                "updates": [],
            },
            bands=bank.bands,
            clip_sha256=tuple(clip_sha256),
            sessions=sessions,
            ranges=ranges,
            **reference_fields(bank, name, sessions),
        )
        return model.with_bank(bank)

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
        """The bank of the normals, which scores clips; built when first needed."""
        made_with, here = self.provenance.get("scorers", {}), scorers_of(self.config)
        if made_with != here:
            raise ModelError(
                f"The model was made with scorers of the packages {str(made_with)[:200]}. Here "
                f"they are {here}: install the same ones, or fit the model again."
            )
        domains = np.array(self.domains)[self.clip_domains]
        return NormalBank(self.embeddings, domains, bands=self.bands)

    @cached_property
    def sha256(self) -> str:
        """Hash of all content: the model's identity, the same in memory and on disk."""
        return modelfile.content_hash(vars(self))

    @property
    def readout(self) -> str | None:
        """The readouts that the embeddings come from, as the commands write them."""
        if isinstance(self.bands, Views):
            return "+".join(self.bands.names)
        return None if self.frontend is None else self.frontend.readout

    @property
    def domain_sizes(self) -> dict[str, int]:
        """Number of normals in each domain."""
        counts = np.bincount(self.clip_domains, minlength=len(self.domains))
        return dict(zip(self.domains, counts.tolist(), strict=True))

    @cached_property
    def reach(self) -> float:
        """The largest distance between a normal and its most similar other normal."""
        return float(self.bank.leave_one_out("raw-k1").max())

    @cached_property
    def reference(self) -> ReferenceScores:
        """The reference scores that clips are compared with."""
        kinds = {name: each["kind"] for name, each in self.basis.items()}
        bounded = ScoreConfig.parse(self.config).calibration == "conf"
        sessions = {
            name: each["sessions"] for name, each in self.basis.items() if "sessions" in each
        }
        arrays = self.reference_scores, self.reference_domains
        return ReferenceScores(*arrays, self.domains, bounded, kinds, sessions)

    @cached_property
    def thresholds(self) -> dict[str, float]:
        """The score above which a clip of one domain alone is anomalous, by domain."""
        return self.reference.domain_thresholds(self.false_alarm_rate)

    def score(self, X: Clips) -> ClipScores:
        """Score clips of unknown domain, decide which are anomalous, and return `ClipScores`.

        Parameters
        ----------
        X : (n, D), or {view: (n, D)}
            One embedding per clip, computed as those of the normals.
        """
        examined = self.bank.examine(X, self.config)
        scores = examined.scores[:, 0]
        p_values = self.reference.p_values(scores, examined.weights)
        return ClipScores(
            scores=scores,
            p_values=p_values,
            alarms=p_values <= self.false_alarm_rate,
            weights=examined.weights,
            nearest=examined.nearest,
            nearest_distance=examined.distance,
            far=examined.distance > self.reach,
            normal_scores=examined.normal_scores,
        )

    def expected_rates(self) -> dict[str, tuple[float, float]]:
        """Estimate the lowest and highest false-alarm rate on new recordings, by domain."""
        return expected_rates(self.bank, self.config, self.reference, self.false_alarm_rate)

    def cautions(self) -> tuple[str, ...]:
        """Return a sentence for each domain that has too few reference scores for the rate."""
        return self.reference.cautions(self.false_alarm_rate)

    def basis_sentence(self) -> str:
        """Describe where the reference scores come from."""
        return basis_in_words(self.basis)

    def at_rate(self, rate: float) -> MachineModel:
        """Return the same model with another false-alarm rate, without fitting it again."""
        require_rate(rate)
        return replace(self, false_alarm_rate=float(rate)).with_bank(self.bank)

    def with_bank(self, bank: NormalBank) -> MachineModel:
        """Use a bank of the normals that is already computed; return the model itself."""
        self.__dict__["bank"] = bank  # where cached_property looks: distances are kept
        return self

    def to_bytes(self) -> bytes:
        """Return the content of a model file."""
        return modelfile.encode(vars(self))

    @classmethod
    def from_bytes(cls, content: bytes) -> MachineModel:
        """Check the content of a model file and return its model."""
        values, sha256 = modelfile.decode(content)
        model = cls(**values)
        model.__dict__["sha256"] = sha256
        return model

    def save(self, path: Location | str) -> None:
        """Write the model to one file, which appears complete or not at all."""
        content = self.to_bytes()
        with atomic_write(parse_location(path)) as temporary:
            temporary.write_bytes(content)

    @classmethod
    def load(cls, path: Location | str) -> MachineModel:
        """Read and check a model file; a `ModelError` names the file and the problem."""
        try:
            return cls.from_bytes(read_file(parse_location(path)))
        except (DacoError, MemoryError) as error:
            reason = "it does not fit into memory." if isinstance(error, MemoryError) else error
            raise ModelError(f"{path}: {reason}") from None


def _empty(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def timestamp() -> str:
    """The time in UTC to the second, ISO 8601; ``$SOURCE_DATE_EPOCH`` overrides it."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """Names of clips, row numbers by default."""
    names = tuple(map(str, range(count))) if given is None else tuple(given)
    if len(names) != count:
        raise InputError(f"clip_names must name each of the {count} clips. Got {len(names)}.")
    return names
