"""The label-free choice of a configuration, and the evidence for it.

`choose` is the one rule behind ``daco fit``, ``daco select``, ``daco study`` and
`daco.LabelFreeSearch`; `choose_config` applies it to the normal clips of one machine. No
argument carries a label. The paper's rules on a grid table are in `daco.method.selection`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.data.views import Bands
from daco.errors import NotEnoughClipsError
from daco.method.bank import Domains, NormalBank
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool
from daco.method.criterion import CHOICE_SPLITS, Balance, Floor
from daco.method.distances import equal_views
from daco.method.external import Candidates, is_detector, parse_pool, without_tables
from daco.method.floor import choice_floor
from daco.method.grid_table import config_names, numbers, require_known
from daco.method.limits import refuse_oracle
from daco.method.pseudo_anomalies import moved_normals
from daco.method.viability import PseudoScores, Viability, pseudo_scores, viability_veto
from daco.text import quantity
from daco.validation import Bools, as_embeddings

CRITERION_DIGITS = 12
"""Criteria are means of exact fractions whose steps are above 1e-8: equal ones agree to here."""


@dataclass(frozen=True)
class Choice:
    """A configuration chosen without labels, and the evidence for it.

    Attributes
    ----------
    config, reason : str
        The configuration to use, and why.
    smallest : str
        The candidate with the smallest criterion that passes the veto.
    criterion : dict
        The criterion of every candidate, in their order; empty if it could not be computed.
    default_criterion : float or None
        The criterion of the fixed default, which need not be a candidate.
    floor : Floor or None
        Mean and sd of the criterion if the domains do not differ. The sd is the noise.
    vetoed : dict
        Candidates that the label-free veto excludes, with the reasons.
    pseudo : PseudoScores or None
        How well the candidates detect pseudo-anomalies.
    balance : Balance or None
        The criterion of each split: of the candidates, then of a default that is not among them.
    n_splits, seed : int
        Number and seed of the splits.
    """

    config: str
    reason: str
    smallest: str
    criterion: dict[str, float] = field(default_factory=dict)
    default_criterion: float | None = None
    floor: Floor | None = None
    vetoed: dict[str, str] = field(default_factory=dict)
    pseudo: PseudoScores | None = field(default=None, repr=False)
    balance: Balance | None = field(default=None, repr=False)
    n_splits: int = CHOICE_SPLITS
    seed: int = 0

    @property
    def noise(self) -> float | None:
        """The largest difference of two criteria that chance explains; None without a criterion."""
        return None if self.floor is None else self.floor.sd

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, as a model file stores them."""
        return {
            "pool": [{"config": name, "criterion": c} for name, c in self.criterion.items()],
            "floor": None if self.floor is None else self.floor.mean,
            "noise": self.noise,
            "vetoed": self.vetoed,
            "n_splits": self.n_splits,
            "seed": self.seed,
        }


def choose(
    configs: Iterable[str | ScoreConfig],
    criterion: ArrayLike,
    floor: Floor | None = None,
    veto: Viability | None = None,
    *,
    default: str = DEFAULT_CONFIG,
    default_criterion: float | None = None,
) -> Choice:
    """Choose the smallest criterion, unless the fixed default is as good within the noise.

    The noise is the sd of the criterion when domains do not differ. On published data no
    label-free pick beat the fixed default by more than chance.

    Parameters
    ----------
    configs : iterable of str or ScoreConfig
        The candidates, in tie-breaking order.
    criterion : array-like
        Of one machine, or the mean over machines; nan where it is not defined.
    floor : Floor, optional
        Its sd is the noise; where it is not known, the default stays.
    veto : Viability, optional
        It excludes candidates, even the default, but none that it does not judge: tables of
        scores, and votes that count them.
    default : str
        The candidate that stays within the noise.
    default_criterion : float, optional
        Of the default where it is not a candidate; it is reported and decides nothing.

    Examples
    --------
    >>> from daco.method.criterion import Floor
    >>> from daco.method.choice import choose
    >>> pool = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m10-k1"]
    >>> choose(pool, [0.62, 0.49, 0.45], Floor(0.36, 0.05)).config
    'conf-soft-m0-k1'
    >>> choose(pool, [0.62, 0.49, 0.45], Floor(0.36, 0.02)).config
    'conf-soft-m10-k1'
    """
    names = config_names(configs)
    values = np.round(numbers("criterion", criterion, len(names), allow_nan=True), CRITERION_DIGITS)
    allowed, vetoed, note = _allowed(names, veto)
    ranked = np.where(allowed, values, np.nan)
    if np.isnan(ranked).all():
        left = [name for name, ok in zip(names, allowed, strict=True) if ok]
        return _fallback(left, "no candidate has a criterion", default)
    pick = int(np.nanargmin(ranked))
    noise = np.inf if floor is None else floor.sd
    figures = "noise unknown" if floor is None else f"floor {floor.mean:.3f}, noise {noise:.3f}"
    figures = f"{figures}; {note}" if note else figures
    count = int(allowed.sum())
    smallest = f"smallest balance criterion of {count}"
    chosen = pick
    if default in names:
        at = names.index(default)
        default_criterion = float(values[at])
        if default in vetoed:
            why = f"{smallest}: {values[pick]:.3f}; the veto excludes the default"
        elif pick == at:
            why = f"{smallest}: {values[pick]:.3f}"
        elif allowed[at] and values[at] - values[pick] <= noise:
            chosen = at
            why = (
                f"the fixed default: its balance criterion {values[at]:.3f} is within the noise of "
                f"the smallest of {count}, {values[pick]:.3f} of {names[pick]}"
            )
        else:
            why = f"{smallest}: {values[pick]:.3f}; the default has {values[at]:.3f}"
    else:
        why = f"{smallest}: {values[pick]:.3f}; the default is not a candidate"
    return Choice(
        config=names[chosen],
        reason=f"{why} ({figures})",
        smallest=names[pick],
        criterion=dict(zip(names, values.tolist(), strict=True)),
        default_criterion=default_criterion,
        floor=floor,
        vetoed=vetoed,
    )


def _allowed(names: list[str], veto: Viability | None) -> tuple[Bools, dict[str, str], str]:
    """The candidates that may be chosen, those that the veto excludes, and a note about it."""
    vetoed, note = {}, ""
    if veto is not None:
        bases = {name: ScoreConfig.parse(name).base for name in names}
        judged = [n for n, base in bases.items() if not (base.is_external or base.is_vote)]
        require_known(judged, veto.configs, "The label-free veto")
        vetoed = {name: veto.reasons[name] for name in names if name in veto.reasons}
        note = f"the veto excludes {', '.join(vetoed)}" if vetoed else ""
        note = "the veto abstains" if veto.abstains else note
    return np.array([name not in vetoed for name in names]), vetoed, note


def _fallback(names: list[str], why: str, default: str = DEFAULT_CONFIG) -> Choice:
    use = default if default in names else names[0]
    what = "the fixed default" if use == default else "the first candidate"
    return Choice(use, f"{why}, so {what}", use)


def choose_config(
    X: ArrayLike,
    domains: Domains | None = None,
    pool: Candidates | None = None,
    *,
    bands: Bands = 1,
    n_splits: int = CHOICE_SPLITS,
    seed: int = 0,
    veto: bool = True,
    bank: NormalBank | None = None,
    balance: Balance | None = None,
    sessions: Sequence[str] = (),
) -> Choice:
    """Choose a configuration for one machine from its normal clips.

    The choice is the candidate with the smallest criterion that passes the veto, unless the fixed
    default, ``conf-soft-m0-k1``, is as good within the noise.

    Parameters
    ----------
    X : (N, D)
        Embeddings of the normals.
    domains : N labels, optional
        The domain of each normal; None for one domain.
    pool : iterable of configurations, detectors and {label: scores}, optional
        The candidates; :func:`daco.method.config.blind_pool` by default.
    bands : int or Views
        How embeddings are divided, as in :class:`daco.NormalBank`.
    n_splits, seed : int
        Number (200 by default) and seed of the splits of the criterion; the seed also draws the
        pseudo-anomalies.
    veto : bool
        Whether candidates that do not detect pseudo-anomalies made of the normals are excluded.
    bank : NormalBank, optional
        The bank of `X` and of the scorers of the pool, if there is one already.
    balance : Balance, optional
        The criterion, if it is known: of the candidates, then of a default that is not among them.
    sessions : N texts, optional
        Recording session of each clip, ``""`` if unknown. The criterion holds out whole sessions.

    Returns
    -------
    Choice

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.choice import choose_config
    >>> choose_config(np.random.default_rng(0).normal(size=(20, 4))).reason
    'one domain: nothing to balance, so the fixed default'
    """
    grid, scorers = parse_pool(blind_pool() if pool is None else pool)
    refuse_oracle(grid)
    names = config_names(grid)
    if bank is None:
        bank = NormalBank(X, domains, bands=bands, scorers=scorers)
    if len(bank.domains) == 1:
        return _fallback(names, "one domain: nothing to balance")
    default = names if DEFAULT_CONFIG in names else [*names, DEFAULT_CONFIG]
    try:
        if balance is None:
            balance = bank.exact_balance(default, n_splits, seed, sessions)
    except NotEnoughClipsError:
        name, size = min(bank.domain_sizes.items(), key=lambda item: item[1])
        return _fallback(names, f"too few clips to compare ({quantity(size, 'clip')} of {name})")
    pseudo = None
    given = bank._external.given
    detectors = {label: each for label, each in given.items() if is_detector(each)}
    judged = without_tables(grid, given.keys() - detectors.keys())
    if veto and judged:
        try:
            rows = equal_views(as_embeddings(X), bands)
            made = moved_normals(rows, domains, seed=seed)
            pseudo = pseudo_scores(rows, domains, made, judged, bands=bands, scorers=detectors)
        except NotEnoughClipsError:
            pass
    choice = choose(
        names,
        balance.values[: len(names)],
        choice_floor(list(bank.domain_sizes.values()), n_splits, seed),
        None if pseudo is None else viability_veto(pseudo),
        default_criterion=float(balance.values[-1]),
    )
    return replace(choice, pseudo=pseudo, balance=balance, n_splits=n_splits, seed=seed)
