"""A bank on a device: the same numbers as NormalBank for every configuration there is."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import daco
from daco.errors import InputError, NotEnoughClipsError
from daco.method.fleet import DeviceBank

pytest.importorskip("torch")

GRID = daco.frontier_grid(bands=2)[::3]  # published and others, in turn
DOMAINS = ["a"] * 60 + ["b"] * 20


@pytest.fixture(scope="module")
def clips():
    rng = np.random.default_rng(0)
    return rng.normal(size=(80, 16)) + 2, rng.normal(size=(9, 16)) + 2


@pytest.fixture(scope="module")
def banks(clips):
    options = {"domains": DOMAINS, "bands": 2}
    return DeviceBank(clips[0], device="cpu", **options), daco.NormalBank(clips[0], **options)


def test_scores_of_any_grid_in_its_order(clips, banks):
    for grid in (GRID, GRID[::-1], daco.paper_grid(), ["beam", "varmin-K4"], "raw-k1"):
        got, expected = (bank.score(clips[1], grid) for bank in banks)
        np.testing.assert_allclose(got, expected, atol=1e-9)
        got, expected = (bank.leave_one_out(grid) for bank in banks)
        np.testing.assert_allclose(got, expected, atol=1e-9)


def test_criteria_of_any_grid_in_its_order(banks):
    got, expected = (bank.exact_balance(GRID, 3, seed=4) for bank in banks)
    assert (got.counts == expected.counts).all()
    assert (got.denominators == expected.denominators).all()
    assert (banks[0].balance(GRID, 3) == banks[1].balance(GRID, 3)).all()
    assert (banks[0].balance_splits(GRID, 3) == banks[1].balance_splits(GRID, 3)).all()
    got, expected = (bank.uniformity(GRID, 3) for bank in banks)
    np.testing.assert_allclose(got, expected, atol=1e-9)
    assert banks[0].separability() == pytest.approx(banks[1].separability(), abs=1e-12)


def test_a_generator_draws_the_same_splits_for_both_engines(banks):
    for name in ("balance", "uniformity"):
        got, expected = (getattr(bank, name)(GRID, 2, np.random.default_rng(3)) for bank in banks)
        np.testing.assert_allclose(got, expected, atol=1e-9)


def test_true_domains_go_to_the_cpu(clips, banks):
    grid = ["conf-oracle-m30-k1", "raw-k1"]
    got, expected = (bank.score(clips[1], grid, domains=["b"] * 9) for bank in banks)
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_arrays_of_bands_are_vectors_of_all_of_them(clips, banks):
    stacked = DeviceBank(clips[0].reshape(80, 2, 8), DOMAINS, device="cpu")
    got = stacked.score(clips[1].reshape(9, 2, 8), GRID)
    assert (got == banks[0].score(clips[1], GRID)).all()


def test_it_can_be_sent_to_another_process(clips, banks):
    again = pickle.loads(pickle.dumps(banks[0]))
    assert (again.score(clips[1], GRID) == banks[0].score(clips[1], GRID)).all()


def test_a_clip_of_the_wrong_size_is_refused_as_by_the_cpu(clips, banks):
    with pytest.raises(InputError, match="X has 3 features, but the bank was built with 16"):
        banks[0].score(clips[1][:, :3], GRID)


def test_one_clip_has_no_separability():
    with pytest.raises(NotEnoughClipsError, match="needs 2 clips"):
        DeviceBank([[1.0, 2.0]], device="cpu").separability()
