"""MachineModel: the detector of one machine, a value that can be saved to one file.

It holds the normals' embeddings and the reference scores that clips are judged against. Adding or
removing normals, calibrating with new ones, or changing the rate makes another value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.views import ONE_VIEW, Views, join_views
from daco.detector import modelfile
from daco.detector.decision import (
    FALSE_ALARM_RATE,
    ReferenceScores,
    expected_rates,
    is_anomalous,
    require_rate,
)
from daco.detector.modelfields import check_fields, require_bank_size, require_usable
from daco.detector.reference import basis_in_words, parse_sessions, reference_fields
from daco.embedding.frontend import Frontend
from daco.errors import DacoError, InputError, ModelError
from daco.files.atomic import atomic_write
from daco.files.remote import require_local
from daco.method.bank import Clips, Domains, NormalBank
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig
from daco.method.engine import ClipScores
from daco.method.external import installed_scorers
from daco.method.siblings import AUTO
from daco.validation import Bools, Float32s, Float64s, as_float32
from daco.version import __version__


@dataclass(frozen=True, eq=False, kw_only=True)
class ClipVerdicts(ClipScores):
    """The scores of n clips, and the decisions on them.

    ``p_values`` are about the share of normals that score as high, ``anomalous`` whether they are
    at most the rate, and ``far`` whether `distance` is larger than any between a normal and its
    nearest other one.
    """

    p_values: Float64s
    anomalous: Bools
    far: Bools


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MachineModel:
    """The detector of one machine, made by `fit` or `load`; immutable.

    Attributes
    ----------
    machine, config, reason : str
        The machine, how clips are scored (such as ``blend``), and why in this way.
    embeddings, views : (N, D) float32, Views
        Embeddings of the normals, and which columns belong to which view.
    frontend : Frontend or None
        How recordings become embeddings; None for embeddings of your own.
    domains, clip_domains : tuple of str, (N,) int
        Sorted names of the domains, and the index of each normal's domain.
    clip_names, clip_sha256, sessions : N texts
        Recording of each normal, its hash and its session; ``""``, or no text at all, if unknown.
    siblings : "auto" or int
        How many similar normals are hidden from a normal that is scored as if it were new.
    new_embeddings, new_domains, new_names
        Normals that are not in the bank; their domains take reference scores from them.
    reference_scores, reference_domains : (n,) float64, (n,) int
        What clips are judged against.
    basis : {domain: dict}
        Origin of the references of a domain: ``kind``, ``clips``, ``when``, and for the kinds that
        have them ``sessions``, ``support`` and ``siblings``.
    false_alarm_rate : float
        A clip whose p-value is at most this rate is anomalous.
    ranges : dict or None
        The ranges of sound levels of the normals.
    provenance : dict
        ``created``, ``daco_version``, the origin, the selection, the updates.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 16)) + 1
    >>> model = MachineModel.fit(X, ["old"] * 50 + ["new"] * 10, machine="press")
    >>> model
    MachineModel('press', blend: 10 new and 50 old clips, 16-d, rate 0.1)
    >>> model.score(np.stack([X[0], -X[0]])).anomalous
    array([False,  True])
    """

    machine: str
    config: str
    reason: str
    frontend: Frontend | None
    embeddings: Float32s
    views: Views
    domains: tuple[str, ...]
    clip_domains: NDArray[np.int32]
    clip_names: tuple[str, ...]
    clip_sha256: tuple[str, ...]
    sessions: tuple[str, ...]
    siblings: int | str
    new_embeddings: Float32s
    new_domains: NDArray[np.int32]
    new_names: tuple[str, ...]
    reference_scores: Float64s
    reference_domains: NDArray[np.int32]
    basis: Mapping[str, Mapping[str, Any]]
    false_alarm_rate: float
    ranges: Mapping[str, Any] | None
    provenance: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_fields(vars(self))
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray):
                view = value.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    @classmethod
    def fit(
        cls,
        X: Clips,
        domains: Domains | None = None,
        *,
        machine: str,
        config: str | ScoreConfig = DEFAULT_CONFIG,
        reason: str = "",
        selection: Mapping[str, Any] | None = None,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        siblings: int | str = AUTO,
        groups: Sequence[str] | None = None,
        views: Views | None = None,
        frontend: Frontend | None = None,
        clip_names: Sequence[str] | None = None,
        clip_sha256: Sequence[str] = (),
        ranges: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> MachineModel:
        """Fit a model to normal clips; parameters that are not listed are attributes.

        Parameters
        ----------
        X : (N, D), or {view: (N, D)}
            Embeddings of the normals, stored as float32.
        domains : N labels, optional
            The domain of each clip; by default one domain, ``"all"``.
        groups : N texts, optional
            Recording session of each clip, ``""`` if unknown.
        provenance, selection : mapping, optional
            Stored with the model: ``created`` overrides the time (``$SOURCE_DATE_EPOCH`` or now),
            and the selection says in detail why the configuration was chosen.
        """
        require_rate(false_alarm_rate)
        parsed = require_usable(config)
        reason = reason or ("the default" if parsed.name == DEFAULT_CONFIG else "named by the user")
        rows, views = join_views(X, views)
        embeddings = as_float32(rows, "X")
        require_bank_size(len(embeddings))
        bank = NormalBank(embeddings, domains, views=views)
        sessions = parse_sessions(groups, len(embeddings))
        given = dict(provenance or {})
        model = cls(
            machine=machine,
            config=parsed.name,
            reason=reason,
            frontend=frontend,
            embeddings=embeddings,
            views=views,
            clip_names=parse_names(clip_names, len(embeddings)),
            clip_sha256=tuple(clip_sha256),
            sessions=sessions,
            siblings=siblings,
            new_embeddings=embeddings[:0],
            new_domains=np.zeros(0, np.int32),
            new_names=(),
            false_alarm_rate=float(false_alarm_rate),
            ranges=ranges,
            provenance={
                "created": given.pop("created", None) or timestamp(),
                "daco_version": __version__,
                **given,
                "scorers": _scorers_of(parsed),
                "selection": None if selection is None else dict(selection),
                "updates": [],
            },
            **reference_fields(bank, parsed, siblings, sessions),
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
        made_with, here = self.provenance.get("scorers", {}), _scorers_of(self._config)
        if made_with != here:
            raise ModelError(
                f"The model was made with scorers of the packages {made_with!r:.200}. Here "
                f"they are {here}: install the same ones, or fit the model again."
            )
        domains = np.array(self.domains)[self.clip_domains]
        return NormalBank(self.embeddings, domains, views=self.views)

    @cached_property
    def _config(self) -> ScoreConfig:
        return ScoreConfig.parse(self.config)

    @cached_property
    def sha256(self) -> str:
        """Hash of all content: the model's identity, the same in memory and on disk."""
        return modelfile.content_hash(vars(self))

    @property
    def readout(self) -> str | None:
        """The readouts that the embeddings come from, as the commands write them."""
        if self.views.names == (ONE_VIEW,):
            return None if self.frontend is None else self.frontend.readout
        return "+".join(self.views.names)

    @cached_property
    def view_names(self) -> tuple[str, ...]:
        """The views of a blend: those of the embeddings, and external scorers."""
        return (*self.views.names, *self._config.base.labels)

    @property
    def domain_sizes(self) -> dict[str, int]:
        """Number of normals in each domain."""
        counts = np.bincount(self.clip_domains, minlength=len(self.domains))
        return dict(zip(self.domains, counts.tolist(), strict=True))

    @cached_property
    def reach(self) -> float:
        """The largest distance between a normal and its most similar other normal."""
        return float(self.bank.leave_one_out(RAW_CONFIG).max())

    @cached_property
    def reference(self) -> ReferenceScores:
        """The reference scores that clips are compared with."""
        known: list[dict[str, Any]] = [
            {name: each[key] for name, each in self.basis.items() if each[key] is not None}
            for key in ("kind", "sessions", "support", "siblings")
        ]
        is_bounded = self._config.calibration == "conf"
        scores, codes = self.reference_scores, self.reference_domains
        return ReferenceScores(scores, codes, self.domains, is_bounded, *known)

    @cached_property
    def thresholds(self) -> dict[str, float]:
        """The score above which a clip of one domain alone is anomalous, by domain."""
        return self.reference.domain_thresholds(self.false_alarm_rate)

    def score(self, X: Clips) -> ClipVerdicts:
        """Score clips of unknown domain, (n, D) or {view: (n, D)}, and decide on each."""
        found = self.bank.examine(X, self._config)
        p_values = self.reference.p_values(found.scores, found.weights)
        return ClipVerdicts(
            **vars(found),
            p_values=p_values,
            anomalous=is_anomalous(p_values, self.false_alarm_rate),
            far=found.distance > self.reach,
        )

    def expected_rates(self) -> dict[str, tuple[float, float] | None]:
        """Return the range of false-alarm rates on new recordings by domain, None if unknown."""
        return expected_rates(self.reference, self.false_alarm_rate)

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each domain that has too few reference scores for the rate."""
        return self.reference.warnings(self.false_alarm_rate)

    @cached_property
    def basis_sentence(self) -> str:
        """Where the reference scores come from, in words."""
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

    def save(self, path: Path | str) -> None:
        """Write the model to one file, which appears complete or not at all."""
        content = self.to_bytes()
        with atomic_write(require_local(path, "A model")) as temporary:
            temporary.write_bytes(content)

    @classmethod
    def load(cls, path: Path | str) -> MachineModel:
        """Read and check a model file; a `ModelError` names the file and the problem."""
        file = require_local(path, "A model")
        try:
            return cls.from_bytes(modelfile.read_file(file))
        except (DacoError, MemoryError) as error:
            reason = "it does not fit into memory." if isinstance(error, MemoryError) else error
            raise ModelError(f"{path}: {reason}") from None


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


def _scorers_of(config: ScoreConfig) -> dict[str, str]:
    """Labels of the external scorers of a configuration, and the packages that they come from."""
    points = [installed_scorers().get(label) for label in config.base.labels]
    packages = [None if point is None else point.dist for point in points]
    texts = ["" if each is None else f"{each.name} {each.version}" for each in packages]
    return dict(zip(config.base.labels, texts, strict=True))
