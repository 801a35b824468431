"""Large banks: options, what an approximate index misses, and what is said about it."""

from __future__ import annotations

import pickle
import re
import sys
from unittest import mock

import numpy as np
import pytest

import daco
from daco.bigbank import HNSW, IVF, Flat, IndexedBank
from daco.errors import ConfigError, InputError, MissingExtraError, NotEnoughClipsError

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
    monkeypatch.setitem(sys.modules, "daco.bigbank.ondevice", None)
    with pytest.raises(MissingExtraError, match=r'pip install "daco-asd\[torch\]"'):
        daco.NormalBank(clips[0], DOMAINS, index="flat", device="cuda")


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
        mock.patch("daco.bigbank.flat._LEAST_TILE", 7),
        mock.patch("daco.bigbank.flat._TILE_BYTES", 0),
        mock.patch("daco.bigbank.bank._CLIPS_AT_ONCE", 9),
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

    def test_it_repeats(self, clips, hurried):
        grid, given = daco.paper_grid(), (clips[0], DOMAINS)
        first, second = (
            daco.NormalBank(*given, index=hurried.index).score(clips[1], grid) for _ in range(2)
        )
        assert (first == second).all()

    def test_it_can_be_sent_to_another_process(self, clips, hurried):
        again = pickle.loads(pickle.dumps(hurried))
        grid = daco.paper_grid()
        assert (again.score(clips[1], grid) == hurried.score(clips[1], grid)).all()

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


def test_memory_of_a_large_bank_grows_with_its_clips_only():
    """Distances of 6,000 clips would take 144 MB in float32."""
    import tracemalloc

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
