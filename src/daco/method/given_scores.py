"""Calibration of the scores of another system, for its held-out normals and for test clips.

They are external base scores (:mod:`daco.method.bases`). The domain weights of the test clips are
given, or computed from embeddings of any network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.method.bank import Domains, NormalBank
from daco.method.bases import Base
from daco.method.calibration import CalibrationInput, calibrate_grid, temperature_base
from daco.method.choice import Choice, choose
from daco.method.config import VOTE_CONFIG, ScoreConfig, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance, ks_of_domains
from daco.method.domains import oracle_weights
from daco.method.external import parse_pool
from daco.method.floor import choice_floor
from daco.method.limits import halves, refuse_oracle
from daco.method.scorers import WHOLE
from daco.method.vote import normal_scores
from daco.validation import Float64s, Indices, encode_domains, finite_array

_SMALLEST_WEIGHT = 1e-300
_SCALE = temperature_base(Base("ext", label="any"))
_ROUNDING = 0.01  # weights in files have few digits


@dataclass(frozen=True, eq=False)
class CalibratedScores:
    """Scores of n test clips and N normals under C configurations; higher is more anomalous.

    Attributes
    ----------
    configs : tuple of C names
        For several systems the last is ``vote``, the mean of all others.
    scores, own : (n, C), (N, C)
        Scores of the test clips, and of the normals.
    criterion : (C,)
        Small if the normals of all domains have similar scores; nan if it is not defined, and for
        a vote, which is no candidate.
    choice : Choice
        The candidate to use, and why.
    domains, weights : tuple, (n, G)
        The sorted domains, and how strongly each test clip belongs to each.
    """

    configs: tuple[str, ...]
    scores: Float64s
    own: Float64s
    criterion: Float64s
    choice: Choice
    domains: tuple[Any, ...]
    weights: Float64s


def calibrate_scores(
    own: ArrayLike | Mapping[str, ArrayLike],
    own_domains: Domains | None,
    scores: ArrayLike | Mapping[str, ArrayLike],
    weights_or_embeddings: Any = None,
    configs: Iterable[str | ScoreConfig] | None = None,
    *,
    n_splits: int = CHOICE_SPLITS,
    seed: int = 0,
) -> CalibratedScores:
    """Make the scores of any system comparable between domains, and choose how without labels.

    Parameters
    ----------
    own : (N,), or {name: (N,)} for several systems
        Scores of normal clips on which the system was not trained.
    own_domains : N labels or None
        Their domains; None for one domain.
    scores : (n,), or {name: (n,)}
        Scores of the test clips.
    weights_or_embeddings : (n, G), or pair of (N, D) and (n, D), optional
        How strongly each test clip belongs to each of the sorted domains; or embeddings of normals
        and test clips, from which daco computes these weights. With given weights, the criterion
        uses the true domains of the normals. One domain needs neither.
    configs : names, optional
        Candidates such as ``"conf-soft-m0-ext-mine"`` for the system ``"mine"``; a single array is
        the system ``"scores"``. By default :func:`daco.method.config.calibrations_of` each system.
    n_splits, seed : int
        Number (200 by default) and seed of the splits of the criterion.

    Returns
    -------
    CalibratedScores

    Examples
    --------
    >>> import daco, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> own = np.concatenate([rng.normal(0, 1, 90), rng.normal(5, 1, 10)])
    >>> domains = ["source"] * 90 + ["target"] * 10
    >>> result = daco.calibrate_scores(own, domains, [3.0, 4.0], [[1, 0], [0, 1]])
    >>> result.choice.config
    'conf-soft-m0-ext-scores'
    >>> result.scores[:, result.configs.index(result.choice.config)].round(2)
    array([0.99, 0.23])
    """
    both: list[Mapping[str, Any]] = [
        given if isinstance(given, Mapping) else {"scores": given} for given in (own, scores)
    ]
    systems, tests = both
    if list(systems) != list(tests):
        raise InputError("'own' and 'scores' must be of the same systems, in the same order.")
    default, _ = parse_pool([systems])
    grid = default if configs is None else parse_grid(configs)
    refuse_oracle(grid)
    normals = finite_array([*systems.values()], "own", 2)
    given = finite_array([*tests.values()], "scores", 2)
    domains, codes = encode_domains(own_domains, normals.shape[1], "own_domains")
    if _are_embeddings(weights_or_embeddings):
        embeddings, clips = weights_or_embeddings
        bank = NormalBank(embeddings, own_domains, scorers=systems)
        of_clips, of_normals = bank.score(clips, grid, scores=tests), bank.leave_one_out(grid)
        weights, measure = bank.domain_weights(clips), bank.exact_balance
    else:
        weights = _weights(weights_or_embeddings, given.shape[1], domains)
        bases = [Base("ext", label=name) for name in systems]
        of_clips, of_normals, measure = _by_weights(grid, bases, normals, codes, given, weights)
    criterion = np.full(len(grid), np.nan)
    floor = choice_floor(np.bincount(codes).tolist(), n_splits, seed)
    if floor is not None:  # else there are too few domains or clips
        criterion = measure(grid, n_splits, seed).values
    names = [config.name for config in grid]
    choice = choose(names, criterion, floor, default=default[1].name)
    if len(systems) > 1 and VOTE_CONFIG not in names:
        of_clips, of_normals = (_with_vote(of_normals, each) for each in (of_clips, of_normals))
        names, criterion = [*names, VOTE_CONFIG], np.append(criterion, np.nan)
    return CalibratedScores(tuple(names), of_clips, of_normals, criterion, choice, domains, weights)


def _are_embeddings(given: Any) -> bool:
    """Whether these are two matrices, or mappings by view, and not one matrix of weights."""
    pair = isinstance(given, tuple | list) and len(given) == 2
    return pair and all(isinstance(each, Mapping) or np.ndim(each) == 2 for each in given)


def _weights(given: Any, n_clips: int, domains: tuple[Any, ...]) -> Float64s:
    """Checked weights (n, G); those of one domain need not be given."""
    if set(getattr(given, "columns", ())) == set(domains):
        given = given[list(domains)]  # a DataFrame's columns have names
    if given is None and len(domains) == 1:
        return np.ones((n_clips, 1))
    columns = f"with a column for each of {', '.join(map(str, domains))}"
    if given is None:
        raise InputError(f"Give domain weights {columns}, or embeddings of normals and clips.")
    weights = finite_array(given, "weights_or_embeddings", 2)
    shares = (weights >= 0).all() and (abs(weights.sum(axis=1) - 1) <= _ROUNDING).all()
    if weights.shape != (n_clips, len(domains)) or not shares:
        raise InputError(f"Weights of {n_clips} clips must be shares that sum to 1, {columns}.")
    return weights


def _by_weights(
    grid: list[ScoreConfig],
    bases: list[Base],
    own: Float64s,
    codes: Indices,
    given: Float64s,
    weights: Float64s,
) -> tuple[Float64s, Float64s, Callable[..., Balance]]:
    """Scores of clips and of normals, whose weights are of true domains, and their criterion."""
    if unknown := [config.name for config in grid if config.base not in bases]:
        raise InputError(f"No system is called {unknown[0]!r}, and there are no embeddings.")

    def calibrate(starts: Indices, own: Float64s, scores: Float64s, weights: Float64s) -> Float64s:
        """Scores (C, S, n) by (systems, S, N) of normals, (systems, S, n) and (S, G, n)."""
        # Soft weights are a softmax of distances: at temperature 1 these distances give them back.
        calibration = dict(zip(bases, own, strict=True)) | {_SCALE: np.ones_like(own[0])}
        distance = {WHOLE: -np.log(weights.clip(min=_SMALLEST_WEIGHT))}
        by_base = dict(zip(bases, scores, strict=True))
        out: Float64s = calibrate_grid(
            grid, CalibrationInput(calibration, by_base, starts, distance)
        )
        return out

    def measure(_: object, n_splits: int, seed: int) -> Balance:
        held, denominators = halves(grid, range(len(sizes)), starts, n_splits, seed)
        inside, outside = (np.nonzero(mask)[1].reshape(n_splits, -1) for mask in (~held, held))
        shares = true[:, outside].swapaxes(0, 1)
        scores = calibrate(starts - held_starts, own[:, inside], own[:, outside], shares)
        return Balance(ks_of_domains(scores, held_starts), denominators)

    order, sizes = np.argsort(codes, kind="stable"), np.bincount(codes)
    starts, held_starts = (np.insert(np.cumsum(count), 0, 0) for count in (sizes, sizes // 2))
    own, true = own[:, order], oracle_weights(codes[order], len(sizes))
    of_clips = calibrate(starts, own[:, None], given[:, None], weights.T[None])
    of_normals = calibrate(starts, own[:, None], own[:, None], true[None])
    return of_clips[:, 0].T, of_normals[:, 0, np.argsort(order)].T, measure


def _with_vote(own: Float64s, scores: Float64s) -> Float64s:
    """Scores with the vote of all their columns, but those that are constant on the normals."""
    speaks = own.max(axis=0) > np.median(own, axis=0)
    members = speaks | ~speaks.any()
    normal = normal_scores(np.sort(own.T[members, None]), scores.T[members, None])
    return np.column_stack([scores, normal.mean(axis=0)[0]])
