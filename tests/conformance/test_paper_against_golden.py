"""The literal paper against the authors' outputs, real machines, and cases computed by hand."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from golden_machines import MACHINES, golden_machine, scaled_error
from numpy.testing import assert_allclose
from tolerances import of_distances

from daco.method import paper
from daco.method.config import ScoreConfig

BASES = [("knn", 1, "knn", 0), ("knn", 2, "knn", 1), ("knn", 4, "knn", 2)]
BASES += [("ldn-ratio", 1, "ldn", 0), ("ldn-ratio", 16, "ldn", 1)]
BASES += [("ldn-diff", 1, "ldn", 2), ("ldn-diff", 16, "ldn", 3)]
# Four clips in two pairs of neighbours, and a new clip; then four in a chain, and a new clip.
PAIRS = np.array([[0, 0.2, 1, 1], [0.2, 0, 1, 1], [1, 1, 0, 0.6], [1, 1, 0.6, 0]])
CHAIN = np.array([[0, 0.1, 0.5, 0.5], [0.1, 0, 0.2, 0.5], [0.5, 0.2, 0, 0.4], [0.5, 0.5, 0.4, 0]])
NEW = np.array([[[0.8, 1, 1, 1]], [[0.4, 0.5, 0.8, 1.6]]])


class Case:
    """Distances and domain numbers of a machine, and the scores of its configurations."""

    def __init__(self, names, X, domains, X_test, test_domains):
        bank, clips = paper.unit_rows(X), paper.unit_rows(X_test)
        self.d_bank = paper.cosine_distances(bank, bank)
        self.d = paper.cosine_distances(clips, bank)
        self.codes, self.test_codes = (np.equal(x, "target") * 1 for x in (domains, test_domains))
        self.grid = [ScoreConfig.parse(str(name)) for name in names]
        self.scores = np.array([self.score(config) for config in self.grid])

    def score(self, config):
        return paper.score(config, self.d_bank, self.d, self.codes, self.test_codes)

    def criterion(self, config, n_splits):
        return paper.criterion(config, self.d_bank, self.codes, n_splits, seed=0)

    def metrics(self, labels):
        return [paper.machine_metrics(row, labels, self.test_codes) for row in self.scores]

    def separability(self):
        """Share of clips whose nearest other clip is of their domain, mean over domains."""
        d = paper.without_self(self.d_bank)
        right = paper.domain_weights("hard", d, self.codes, T=1).argmax(axis=0) == self.codes
        return np.mean([right[self.codes == g].mean() for g in (0, 1)])


@pytest.fixture(scope="module", params=MACHINES)
def golden(request):
    machine = golden_machine(request.param, np.float64)
    sides = machine.X, machine.domains, machine.X_test, machine.test_domains
    return machine, Case(machine.names, *sides)


def test_scores_and_metrics(golden):
    machine, case = golden
    assert scaled_error(case.scores, machine["scores"], machine.names).max() < 1e-9
    assert_allclose(case.metrics(machine.labels), machine["metrics"], atol=1e-12)
    assert case.separability() == pytest.approx(float(machine.golden["separability"]))


def test_base_and_oracle_scores_stored_in_float32(golden):
    machine, case = golden
    for scorer, k, field, row in BASES:
        loo, scores = paper.base_scores(scorer, k, case.d_bank, case.d)
        for got, kind in ((loo, "loo"), (scores, "base")):
            expected = machine.golden[f"{kind}_{field}"][row]
            tolerance = k * of_distances(machine.X.shape[1])
            if scorer == "ldn-ratio":  # it divides by a density, which rounds like a distance
                tolerance *= expected.max() / machine.golden["dens"][row].min()
            assert_allclose(got, expected, rtol=0, atol=tolerance)
    oracle = case.score(ScoreConfig.parse("conf-oracle-m30-k1"))
    assert_allclose(oracle, machine.golden["scores_oracle_m30_k1"], atol=1e-3)


def test_criterion_of_every_split(golden):
    machine, case = golden
    masks = np.unpackbits(machine.golden["held_seed0"], axis=1)[:, : len(case.codes)]
    np.testing.assert_array_equal(paper.held_out_halves(case.codes, 10, seed=0), masks)
    n_splits = 2 if len(case.codes) == 1000 else 10  # large machines: to save time
    got = [case.criterion(config, n_splits) for config in case.grid]
    assert_allclose(got, machine["balance_ks_splits"][:, :n_splits], atol=1e-12)


@pytest.mark.parametrize("row", [1, 3])
def test_uniformity_of_held_out_quantiles(golden, row):
    machine, case = golden
    gaps = []
    for held in paper.held_out_halves(case.codes, 10, seed=0):
        d, codes = case.d_bank[:, ~held], case.codes[held]
        scores = paper.score(case.grid[row], d[~held], d[held], case.codes[~held])
        for x in (np.sort(scores[codes == g]) for g in (0, 1)):
            steps = np.arange(len(x) + 1) / len(x)
            gaps.append(max((steps[1:] - x).max(), (x - steps[:-1]).max()))
    assert np.mean(gaps) == pytest.approx(machine["uniform_ks"][row], abs=1e-9)


@pytest.mark.parametrize(
    ("scorer", "expected"),  # of pairs: sums of halves .6, .6, .8, .8, nearest .1, .1, .3, .3
    [("knn", 0.9), ("ldn-ratio", 5 / 8), ("ldn-diff", -0.3), ("ldn-mean", 0.1), ("varmin", -0.3)],
)
def test_base_scores_by_hand(scorer, expected):
    assert paper.base_scores(scorer, 2, PAIRS, NEW[0])[1] == pytest.approx([expected])


def test_blend_by_hand():
    """Four clips support ``ldn-ratio-K1``: 1 for all pairs, which is no scale; 1, 1, 1, 2."""
    loo, scores = paper.blend(np.array([PAIRS, CHAIN]), NEW)  # 5/3 and 4, so t = 2
    quantiles = [NormalDist().inv_cdf(rank / 5) for rank in (2, 2, 2, 4, 4.5)]
    assert_allclose(loo, np.divide(quantiles[:4], 2))
    assert_allclose(scores, (9 + quantiles[4] + 18 / 11) / 2)
    assert paper.normal_score(np.ones(3), np.array([0.5, 1, 2])).tolist() == [0, 0, 9]


def test_quantile_map_and_selection_by_hand():
    loo, scores = np.array([3.0, 1.0, 2.0]), np.array([-1.0, 0.5, 1.0, 2.5, 4.0])
    assert_allclose(paper.quantile_map(loo, scores, False), [0, 0.125, 0.25, 0.625, 0.875])
    assert_allclose(paper.quantile_map(loo, scores, True), [1 / 12, 1 / 6, 0.25, 0.625, 0.875])
    assert_allclose(paper.quantile_map(loo - 2, scores - 2, False)[:3], [0, 0, 0.25])
    assert paper.viable(np.arange(51)).sum() == 45  # strict: one in ten and the limit itself
    assert paper.guarded_selection([9, 1, 8, 7], [0.9, 0.1, 0.1 + 0.2, 0.3]) == 2  # a tie
    assert paper.official_score([[0.8, 0.4, 0.5]]) == pytest.approx(12 / 23)
