"""The vote against a literal version, and what must hold of it whatever the data are."""

from __future__ import annotations

import numpy as np
import pytest
from textbook import normal_score

import daco
from daco.errors import ConfigError, InputError
from daco.method.criterion import held_out_halves, ks_distance
from daco.method.kernels import use_kernels
from daco.method.machines import evaluate_machines
from daco.method.vote import normal_scores

DOMAINS = ["old"] * 50 + ["new"] * 12

# Two normals that are each other's nearest have the same distance: whether they tie is rounding,
# and moves their ranks by a half. On another way through the engine a vote may differ by that.
TIES = 0.02


@pytest.fixture
def machine():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(62, 6)) + 1
    X[50:] *= [[2, 1, 1, 1, 1, 0.5]]
    return X, rng.normal(size=(25, 6))


@pytest.fixture
def committee(monkeypatch):
    """Replaces the members of every vote."""

    def replace(names):
        grid = [daco.ScoreConfig.parse(name) for name in names]
        monkeypatch.setattr("daco.method.batch.members_of", lambda *_: (grid, []))

    return replace


def textbook_vote(own, scores):
    """(N, C) and (n, C): the mean over members."""
    return np.array(
        [np.mean([normal_score(own[:, c], s) for c, s in enumerate(clip)]) for clip in scores]
    )


@pytest.mark.parametrize("kernel", ["numpy", "numba"])
@pytest.mark.parametrize(("name", "grid"), [("vote", daco.frontier_grid(1)),
                                            ("vote-paper", daco.paper_grid())])  # fmt: skip
def test_a_vote_is_the_mean_of_its_members_normal_scores(machine, name, grid, kernel):
    X, Y = machine
    with use_kernels(kernel):
        bank = daco.NormalBank(X, DOMAINS)
        own, scores = bank.leave_one_out(grid), bank.score(Y, grid)
        np.testing.assert_allclose(
            bank.score(Y, name)[:, 0], textbook_vote(own, scores), rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(
            bank.leave_one_out(name)[:, 0], textbook_vote(own, own), rtol=1e-9, atol=1e-9
        )


def test_beside_its_own_members_and_other_votes_a_vote_is_the_same(machine):
    X, Y = machine
    bank = daco.NormalBank(X, DOMAINS)
    grid = ["vote-paper", "raw-k1", "vote", "zscore-hard-vote", "conf-soft-m0-vote", "genrep"]
    together = bank.score(Y, grid)
    alone = [daco.NormalBank(X, DOMAINS).score(Y, name)[:, 0] for name in grid]
    np.testing.assert_allclose(together.T, alone, atol=TIES)


def test_calibrations_rest_on_the_leave_one_out_vote(machine):
    X, Y = machine
    bank = daco.NormalBank(X, DOMAINS)
    own, vote = bank.leave_one_out("vote")[:, 0], bank.score(Y, "vote")[:, 0]
    weights = bank.domain_weights(Y, "conf-hard-m0-k1")
    codes = bank.clip_domains
    standardised = np.stack(
        [(vote - own[codes == g].mean()) / own[codes == g].std() for g in (0, 1)], axis=1
    )
    np.testing.assert_allclose(
        bank.score(Y, "zscore-hard-vote")[:, 0], (weights * standardised).sum(1), rtol=1e-9
    )
    quantiles = bank.score(Y, "conf-soft-m30-vote")
    assert ((quantiles > 0) & (quantiles < 1)).all()
    with pytest.raises(ConfigError, match="may be negative"):
        daco.ScoreConfig.parse("ratio-soft-vote")


def test_the_criterion_votes_with_the_half_that_is_left(machine):
    X, _ = machine
    order = np.argsort(np.array(DOMAINS) == "old", kind="stable")  # domains sorted: new, old
    grouped, sizes = X[order], (12, 50)
    names = ["vote", "conf-soft-m0-vote"]
    expected = np.zeros(2)
    for held in held_out_halves(sizes, 4, seed=0):
        codes = np.repeat([0, 1], sizes)
        half = daco.NormalBank(grouped[~held], codes[~held])
        scores = half.score(grouped[held], names)
        of_domain = codes[held]
        for c in range(2):
            expected[c] += ks_distance(scores[of_domain == 0, c], scores[of_domain == 1, c]) / 4
    np.testing.assert_allclose(daco.NormalBank(X, DOMAINS).balance(names, 4), expected, atol=TIES)


def test_a_vote_of_one_member_ranks_as_it_does(machine, committee):
    X, Y = machine
    X, Y = X + 4, Y - 4 * (np.arange(25)[:, None] < 10)  # ten clips far from every normal
    committee(["varmin-K4"])
    bank = daco.NormalBank(X, DOMAINS)
    alone, vote = bank.score(Y, ["varmin-K4", "vote"]).T
    assert (np.diff(vote[np.argsort(alone)]) >= 0).all()
    # above the largest normal the tail keeps every difference
    beyond = alone > bank.leave_one_out("varmin-K4").max()
    assert beyond.sum() > 3
    assert len(np.unique(vote[beyond])) == beyond.sum()


def test_members_that_agree_are_one_member(machine, committee):
    X, Y = machine
    committee(["raw-k1"])
    one = daco.NormalBank(X).score(Y, "vote")
    committee(["raw-k1", "ratio-soft-k1", "ratio-hard-k1"])  # in one domain a change of scale
    np.testing.assert_allclose(daco.NormalBank(X).score(Y, "vote"), one, rtol=1e-9)


def test_members_in_another_order_give_the_same_vote(machine, committee):
    X, Y = machine
    names = [config.name for config in daco.frontier_grid(1)]
    votes = []
    for order in (names, names[::-1], sorted(names)):
        committee(order)
        votes.append(daco.NormalBank(X, DOMAINS).score(Y, "vote"))
    np.testing.assert_allclose(votes[1:], [votes[0]] * 2, atol=1e-12)


def test_within_the_range_of_the_normals_only_ranks_count():
    rng = np.random.default_rng(0)
    own = np.sort(rng.normal(size=(1, 1, 40)))
    scores = rng.uniform(own[0, 0, 0] - 1, own[0, 0, -1], size=(1, 1, 30))
    np.testing.assert_array_equal(
        normal_scores(np.exp(3 * own), np.exp(3 * scores)), normal_scores(own, scores)
    )
    np.testing.assert_allclose(normal_scores(own, own).mean(), 0, atol=1e-12)


def test_a_silent_member_changes_nothing(machine, monkeypatch):
    X, Y = machine
    X = np.repeat(X[::2], 2, axis=0)  # each normal has a copy: raw-k1 is 0 for all of them
    committee_of = ["raw-k1", "raw-k4"]
    bank = daco.NormalBank(X, DOMAINS)
    own = bank.leave_one_out(committee_of)
    assert own[:, 0].max() == 0
    grids = {name: [daco.ScoreConfig.parse(c) for c in cs] for name, cs in
             {"both": committee_of, "one": ["raw-k4"]}.items()}  # fmt: skip
    votes = {}
    for name, grid in grids.items():
        monkeypatch.setattr("daco.method.batch.members_of", lambda *_, grid=grid: (grid, []))
        votes[name] = daco.NormalBank(X, DOMAINS).score(Y, "vote")
    np.testing.assert_allclose(votes["both"], votes["one"], rtol=1e-12)


def test_one_member_cannot_outvote_the_others(machine, committee):
    """Its normals are equal up to rounding, so that every other clip is far beyond them."""
    own = np.array([[[*np.linspace(0, 1, 40)]], [[*np.linspace(1, 1 + 1e-12, 40)]]])
    scores = np.array([[[0.5]], [[2.0]]])
    assert normal_scores(own, scores)[1, 0, 0] < 12


def test_names_of_domains_and_the_order_of_clips_do_not_matter(machine):
    X, Y = machine
    rng = np.random.default_rng(1)
    shuffled = rng.permutation(len(X))
    other = np.array(["b" if name == "old" else "z" for name in DOMAINS])
    np.testing.assert_allclose(
        daco.NormalBank(X[shuffled], other[shuffled]).score(Y, "vote"),
        daco.NormalBank(X, DOMAINS).score(Y, "vote"),
        atol=TIES,
    )


def test_views_count_alike_and_all_else_sees_the_first(machine):
    X, Y = machine
    rng = np.random.default_rng(3)
    X2, Y2 = rng.normal(size=(62, 8)) + 1, 30 * rng.normal(size=(25, 8))
    bank = daco.NormalBank({"mod": X, "cep": X2}, DOMAINS)
    first, second = daco.NormalBank(X, DOMAINS), daco.NormalBank(X2, DOMAINS)
    query = {"cep": Y2, "mod": Y}
    mean = (first.score(Y, "vote") + second.score(Y2, "vote")) / 2
    np.testing.assert_allclose(bank.score(query, "vote"), mean, atol=TIES)
    np.testing.assert_allclose(bank.score(np.hstack([Y, Y2]), "vote"), mean, atol=TIES)
    grid = ["raw-k1", "conf-soft-m0-k1"]
    np.testing.assert_allclose(bank.score(query, grid), first.score(Y, grid), rtol=1e-9)
    examined = bank.examine(query, "vote")
    np.testing.assert_array_equal(examined.nearest, first.nearest(Y)[0])
    weights = (first.domain_weights(Y) + second.domain_weights(Y2)) / 2
    np.testing.assert_allclose(examined.weights, weights, rtol=1e-9)
    assert examined.normal_scores.shape == (25, 2 * 134)
    np.testing.assert_allclose(examined.normal_scores.mean(1), mean[:, 0], atol=TIES)
    assert list(bank.members()) == ["mod", "cep"]
    assert repr(bank) == "NormalBank(62 clips: 12 new, 50 old; mod 6-d + cep 8-d float64)"


def test_views_that_do_not_fit_are_refused(machine):
    X, Y = machine
    bank = daco.NormalBank({"mod": X, "cep": X[:, :4]}, DOMAINS)
    with pytest.raises(InputError, match="must have the views mod, cep"):
        bank.score({"mod": Y}, "vote")
    with pytest.raises(InputError, match=r"X\['cep'\]"):
        bank.score({"mod": Y, "cep": Y}, "vote")
    with pytest.raises(InputError, match="a row for each clip"):
        bank.score({"mod": Y, "cep": Y[:3, :4]}, "vote")
    with pytest.raises(InputError, match="at least one view"):
        daco.NormalBank({}, DOMAINS)
    with pytest.raises(InputError, match="is not a vote"):
        bank.members("raw-k1")


def test_members_that_a_bank_is_too_small_for_are_left_out_and_listed(machine):
    X, Y = machine
    bank = daco.NormalBank(X[:10], DOMAINS[:5] + ["new"] * 5)
    out = bank.left_out("vote")["embedding"]
    assert {"varmin-K16", "conf-soft-m0-ldn-mean-K16"} <= set(out)
    assert "varmin-K4" not in out
    members = bank.members("vote")["embedding"]
    assert set(members).isdisjoint(out)
    assert len(members) + len(out) == 134
    assert np.isfinite(bank.score(Y, ["vote", "conf-soft-m0-vote"])).all()


def test_many_machines_at_once_vote_as_each_does_alone(machine):
    pytest.importorskip("torch")
    X, Y = machine
    X2, Y2 = X[:, ::-1] ** 3, Y[:, ::-1]
    grid = ["raw-k1", "vote", "conf-soft-m0-vote"]
    views = daco.NormalBank({"a": X, "b": X2}, DOMAINS).bands
    both, both_query = np.hstack([X, X2]), np.hstack([Y, Y2])
    found = evaluate_machines(
        [both, both * 2], [DOMAINS] * 2, [both_query] * 2, grid, 3, bands=views, device="cpu"
    )
    bank = daco.NormalBank(both, DOMAINS, bands=views)
    for machine_ in found:
        np.testing.assert_allclose(machine_.scores, bank.score(both_query, grid), atol=TIES)
        np.testing.assert_allclose(machine_.own, bank.leave_one_out(grid), atol=TIES)
        np.testing.assert_allclose(machine_.balance.values, bank.balance(grid, 3), atol=TIES)
