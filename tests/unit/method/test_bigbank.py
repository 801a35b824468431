"""Large banks: options, what an approximate index misses, and what is said about it."""

from __future__ import annotations

import pickle
import re
import sys
import tracemalloc
from unittest import mock

import numpy as np
import pytest

import daco
from daco.errors import ConfigError, DacoError, InputError, MissingExtraError, NotEnoughClipsError
from daco.method.bigbank import HNSW, IVF, Flat, IndexedBank
from daco.method.config import parse_grid

DOMAINS = np.repeat(["source", "target"], [900, 100])


@pytest.fixture(scope="module")
def clips():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(1000, 16)) + 1).astype(np.float32)
    return X, (rng.normal(size=(40, 16)) + 1).astype(np.float32)


def test_the_name_of_an_index_makes_the_bank_that_has_it(clips):
    bank = daco.NormalBank(clips[0], DOMAINS, index="flat")
    assert type(bank) is IndexedBank
    assert repr(bank) == (
        "IndexedBank(1000 clips: 900 source, 100 target; 16-d float32, index Flat())"
    )
    assert daco.NormalBank(clips[0], index=Flat()).index == Flat()
    assert type(daco.NormalBank(clips[0])) is daco.NormalBank


@pytest.mark.parametrize("index", ["annoy", 3, IVF])
def test_an_unknown_index_is_refused(clips, index):
    with pytest.raises(ConfigError, match=r"no index .* Use 'flat'"):
        daco.NormalBank(clips[0], index=index)


def test_options_are_counts():
    for wrong in ({"probes": 0}, {"candidates": 1.5}, {"lists": -1}, {"exact_below": True}):
        with pytest.raises(ConfigError, match=f"The '{next(iter(wrong))}' of IVF must be an int"):
            IVF(**wrong)
    with pytest.raises(ConfigError, match="The 'links' of HNSW"):
        HNSW(links=0)


def test_without_faiss_the_extra_is_named_and_flat_works(clips, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    for index in ("ivf", "hnsw"):
        with pytest.raises(MissingExtraError, match=r'pip install "daco-asd\[index\]"'):
            daco.NormalBank(clips[0], DOMAINS, index=index)
    assert daco.NormalBank(clips[0], DOMAINS, index="flat").score(clips[1], "raw-k1").size


def test_without_torch_a_device_names_its_extra(clips, monkeypatch):
    monkeypatch.setitem(sys.modules, "daco.method.bigbank.ondevice", None)
    with pytest.raises(MissingExtraError, match=r'pip install "daco-asd\[torch\]"'):
        daco.NormalBank(clips[0], DOMAINS, index="flat", device="cuda")


def test_a_device_that_is_not_there_is_refused_before_an_index_is_built(clips):
    pytest.importorskip("torch")
    pytest.importorskip("faiss")
    with (
        mock.patch("daco.method.bigbank.approximate._built", side_effect=AssertionError),
        pytest.raises(DacoError, match="cuda:99"),
    ):
        daco.NormalBank(clips[0], DOMAINS, index=IVF(exact_below=0), device="cuda:99")


def test_scores_that_need_more_than_neighbours_are_refused_by_name(clips):
    bank = daco.NormalBank(clips[0], DOMAINS, bands=2, index="flat")
    for name in ("pca-d4", "memmix", "genrep-mix", "beam", "zmin-k1+pca-d4"):
        refused = pytest.raises(ConfigError, match=f"does not serve '{re.escape(name)}'")
        with refused:
            bank.score(clips[1], name)
        with refused:
            bank.leave_one_out(name)
        with refused:
            bank.balance(name)
    with pytest.raises(NotEnoughClipsError, match="needs a bank of 1001 clips"):
        bank.score(clips[1], "ldn-ratio-K1000")


def test_new_clips_are_compared_tile_by_tile(clips):
    plain = daco.NormalBank(clips[0], DOMAINS)
    bank = daco.NormalBank(clips[0], DOMAINS, index="flat")
    grid = daco.paper_grid()
    with (
        mock.patch("daco.method.bigbank.flat._LEAST_TILE", 7),
        mock.patch("daco.method.bigbank.flat._TILE_BYTES", 0),
        mock.patch("daco.method.bigbank.bank._CLIPS_AT_ONCE", 9),
    ):
        got, near = bank.score(clips[1], grid), bank.nearest(clips[1])
    # Measured: 5e-6, the rounding of float32 products of other shapes.
    np.testing.assert_allclose(got, plain.score(clips[1], grid), atol=1e-4)
    expected = plain.nearest(clips[1])
    assert (near[0] == expected[0]).all()
    np.testing.assert_allclose(near[1], expected[1], atol=1e-6)


def test_the_smallest_ratio_is_found_however_far_it_is():
    """A hundred close normals, and a lone one whose own neighbours are farther still."""
    rng = np.random.default_rng(0)
    crowd = [1.0, 0, 0, 0] + 0.01 * rng.normal(size=(400, 4))
    lone = [[0.5, 0, 1.0, 0], [0, 0, 0, 1.0]]
    X, query = np.concatenate([crowd, lone]), np.array([[1.0, 0, 0.3, 0]])
    plain = daco.NormalBank(X)
    expected = plain.score(query, ["raw-k1", "ldn-ratio-K4", "ldn-diff-K4"])
    row, _ = plain.nearest(query)
    assert row < 400  # the nearest is of the crowd; the smallest ratio is not
    density = 1 - plain._unit @ plain._unit[400]
    summed = np.sort(np.delete(density, 400))[:4].sum()
    to_lone = 1 - float(plain._unit[400] @ query[0]) / np.linalg.norm(query)
    assert expected[0, 1] == pytest.approx(to_lone / summed)
    flat = daco.NormalBank(X, index="flat")
    np.testing.assert_allclose(
        flat.score(query, ["raw-k1", "ldn-ratio-K4", "ldn-diff-K4"]), expected
    )
    pytest.importorskip("faiss")
    for index in (IVF(candidates=4, exact_below=0), HNSW(candidates=4, exact_below=0)):
        bank = daco.NormalBank(X, index=index)
        np.testing.assert_allclose(bank.score(query, "ldn-ratio-K4"), expected[:, 1:2])


@pytest.fixture(scope="module")
def hurried(clips):
    """One of 14 cells is looked into: the nearest is often in another."""
    pytest.importorskip("faiss")
    index = IVF(lists=14, probes=1, candidates=8, exact_below=0)
    return daco.NormalBank(clips[0], DOMAINS, index=index)


class TestApproximate:
    def test_it_misses_neighbours_and_says_so(self, clips, hurried):
        own = hurried.recall(["raw-k1", "raw-k4"], n=300)
        assert own.clips == 300
        assert list(own.found) == [1, 4]
        assert 0.1 < own.found[1] < 0.9
        assert own.excess[1] > 0.01
        new = hurried.recall(["raw-k1", "conf-soft-m0-k1"], clips[1])
        exact = daco.NormalBank(clips[0], index="flat").score(clips[1], "raw-k1")[:, 0]
        got = hurried.score(clips[1], "raw-k1")[:, 0]
        np.testing.assert_allclose(new.changes["raw-k1"], got - exact, atol=1e-6)
        assert new.found[1] == pytest.approx(np.mean(got <= exact + 1e-6))
        assert "of the 1 nearest of 40 clips found" in str(new)
        assert "conf-soft-m0-k1: half of the scores change by at most" in str(new)

    def test_neighbours_are_farther_than_the_true_ones_never_nearer(self, clips, hurried):
        plain = daco.NormalBank(clips[0], DOMAINS)
        for got, expected in (
            (hurried.score(clips[1], "raw-k4"), plain.score(clips[1], "raw-k4")),
            (hurried.leave_one_out("raw-k4"), plain.leave_one_out("raw-k4")),
        ):
            assert (got >= expected - 1e-6).all()
            assert (got > expected + 1e-3).any()

    def test_more_probes_find_more(self, clips):
        pytest.importorskip("faiss")
        found = [
            daco.NormalBank(clips[0], index=IVF(lists=14, probes=probes, exact_below=0))
            .recall(n=300)
            .found[1]
            for probes in (1, 4, 14)
        ]
        assert found[0] < found[1] < found[2] == 1

    def test_every_list_is_full_although_cells_are_small(self, hurried):
        assert np.isfinite(hurried.leave_one_out(["raw-k16", "ldn-ratio-K16"])).all()
        assert np.isfinite(hurried.balance(["raw-k16", "conf-soft-m0-k1"], 2)).all()

    def test_a_list_of_a_whole_domain_lacks_nobody(self):
        """One clip of 200 has a cell of its own, which is not looked into."""
        pytest.importorskip("faiss")
        rng = np.random.default_rng(0)
        crowds = np.repeat(np.eye(3), [100, 99, 1], axis=0)
        X = np.concatenate([crowds, np.tile([1.0, 1, 0], (150, 1))])
        X += 0.05 * rng.normal(size=X.shape)
        domains, query = np.repeat(["a", "b"], [200, 150]), np.array([[1.0, 0.9, 0]])
        index = IVF(lists=3, probes=2, candidates=4, exact_below=0)
        bank, plain = (daco.NormalBank(X, domains, index=each) for each in (index, None))
        np.testing.assert_allclose(bank.score(query, "raw-k350"), plain.score(query, "raw-k350"))
        np.testing.assert_allclose(
            bank.leave_one_out("raw-k349"), plain.leave_one_out("raw-k349"), rtol=1e-9
        )

    def test_every_half_has_its_own_sparsest_clips(self):
        """The smallest ratios of all splits are found alike, not those of the first one only."""
        pytest.importorskip("faiss")
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1500, 24)) + 1
        X[::7] *= 3 * rng.normal(size=X[::7].shape)
        domains, grid = np.repeat(["s", "t"], [1400, 100]), ["ldn-ratio-K1"]
        index = IVF(lists=4, probes=4, candidates=64, exact_below=0)
        with mock.patch("daco.method.bigbank.approximate.SPARSEST", 256):
            (got, _), (expected, _) = (
                next(
                    iter(
                        daco.NormalBank(X, domains, index=each)._held_out_scores(
                            parse_grid(grid), 4, 0
                        )
                    )
                )
                for each in (index, None)
            )
        off = np.abs(got - expected)[0] > 1e-9 * expected[0]
        assert (off.mean(axis=1) < 0.02).all()

    def test_copies_are_found_and_at_no_distance(self):
        pytest.importorskip("faiss")
        X = np.repeat(np.random.default_rng(0).normal(size=(100, 8)), 3, axis=0)
        found = daco.NormalBank(X, index=IVF(exact_below=0)).recall("raw-k1", n=50)
        assert (found.found, found.excess) == ({1: 1.0}, {1: 0.0})

    def test_recall_takes_its_clips_in_parts(self, clips, hurried):
        whole = hurried.recall("raw-k4", n=200), hurried.recall("raw-k4", clips[1])
        with mock.patch("daco.method.bigbank.recall._ROWS_AT_ONCE", 17):
            parts = hurried.recall("raw-k4", n=200), hurried.recall("raw-k4", clips[1])
        for each, again in zip(whole, parts, strict=True):
            assert again.found == each.found
            assert again.excess[4] == pytest.approx(each.excess[4], abs=1e-5)

    def test_it_repeats(self, clips, hurried):
        grid, given = daco.paper_grid(), (clips[0], DOMAINS)
        first, second = (
            daco.NormalBank(*given, index=hurried.index).score(clips[1], grid) for _ in range(2)
        )
        assert (first == second).all()

    @pytest.mark.parametrize(
        "index",
        [
            IVF(lists=14, probes=3, candidates=8, exact_below=0),
            HNSW(links=4, effort=3, candidates=2, exact_below=0),
        ],
    )
    def test_it_can_be_sent_to_another_process(self, clips, index):
        pytest.importorskip("faiss")
        bank, grid = daco.NormalBank(clips[0], DOMAINS, index=index), daco.paper_grid()
        again = pickle.loads(pickle.dumps(bank))
        assert (again.score(clips[1], grid) == bank.score(clips[1], grid)).all()

    def test_the_truth_has_full_recall(self, clips):
        found = daco.NormalBank(clips[0], DOMAINS, index="flat").recall("raw-k4", clips[1])
        assert found.found == {4: 1.0}
        assert not found.changes["raw-k4"].any()

    @pytest.mark.parametrize("n", [0, True, 1.5])
    def test_a_recall_of_no_clips_is_refused(self, hurried, n):
        with pytest.raises(InputError, match="The 'n' of recall"):
            hurried.recall(n=n)

    def test_a_device_calibrates_and_the_index_scores(self, clips, hurried):
        pytest.importorskip("torch")
        bank = daco.NormalBank(clips[0], DOMAINS, index=hurried.index, device="cpu:0")
        exact = daco.NormalBank(clips[0], DOMAINS)
        got, expected = (each.leave_one_out("ldn-ratio-K4") for each in (bank, exact))
        np.testing.assert_allclose(got, expected, atol=1e-4)
        assert (bank.score(clips[1], "raw-k1") == hurried.score(clips[1], "raw-k1")).all()


def test_a_memory_map_is_read_and_not_copied(tmp_path, clips):
    path = tmp_path / "clips.npy"
    np.save(path, clips[0])
    mapped = np.load(path, mmap_mode="r")
    bank = daco.NormalBank(mapped, DOMAINS, index="flat")
    expected = daco.NormalBank(clips[0], DOMAINS).score(clips[1], "conf-soft-m0-k1")
    assert (bank.score(clips[1], "conf-soft-m0-k1") == expected).all()
    large = np.random.default_rng(0).standard_normal((40_000, 128)).astype(np.float32)
    np.save(path, large)
    for domains in (None, np.arange(len(large)) % 2):  # in order, and in turns
        tracemalloc.start()
        try:
            bank = daco.NormalBank(np.load(path, mmap_mode="r"), domains, index="flat")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1.5 * large.nbytes


@pytest.mark.parametrize("index", [None, "flat"])
def test_a_bank_of_copies_has_a_criterion_without_warnings(index):
    bank = daco.NormalBank(np.ones((12, 3)), np.arange(12) % 2, index=index)
    assert (bank.balance(["varmin-K4", "varmin-log-K4", "raw-k1"], 2) == 0).all()


def test_memory_of_a_large_bank_grows_with_its_clips_only():
    """Distances of 6,000 clips would take 144 MB in float32."""
    X = np.random.default_rng(0).standard_normal((6000, 8)).astype(np.float32)
    domains = np.repeat(["a", "b"], [5900, 100])
    warm = daco.NormalBank(X[:300], index="flat")
    warm.leave_one_out("conf-soft-m0-k1")
    tracemalloc.start()
    try:
        bank = daco.NormalBank(X, domains, index="flat", memory_budget=0)
        bank.leave_one_out(["conf-soft-m0-k1", "ldn-ratio-K1"])
        bank.balance("conf-soft-m0-k1", 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6
