"""Many machines, and one bank, on a torch device: shapes, chunks, and which errors name what."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from tolerances import of_distances

import daco
from daco.errors import InputError, MissingExtraError, NotEnoughClipsError
from daco.method.machines import evaluate_machines, machine_balances

torch = pytest.importorskip("torch")

GRID = daco.paper_grid()
FEW = [
    config for config in GRID if config.base.neighbours != 2 and config.prior_strength in (0, 30)
]
BANDED = daco.frontier_grid(bands=2)[::3]
DOMAINS = ["source"] * 50 + ["target"] * 8


def data(count=3, n=58, n_test=6, dim=10, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, n + n_test, dim)) + 2
    return X[:, :n].astype(dtype), X[:, n:].astype(dtype)


def evaluate(X, tests, grid=FEW, n_splits=3, domains=DOMAINS, **options):
    labels = domains if domains and not isinstance(domains[0], str) else [domains] * len(X)
    return evaluate_machines(X, labels, tests, grid, n_splits, device="cpu", **options)


def same(first, second, dtype=np.float32):
    """All results of two passes that round in other places: other products, other vector lanes.

    In float32 a distance is off by `of_distances`; standardising scores divides it by their
    spread, which in these banks is a hundredth and more.
    """
    tolerance = 100 * of_distances(33, dtype)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.scores, b.scores, rtol=0, atol=tolerance)
        np.testing.assert_allclose(a.own, b.own, rtol=0, atol=tolerance)
        # Counts of clips: no two of them tie within the rounding of these banks.
        assert (a.balance.counts == b.balance.counts).all()
        np.testing.assert_allclose(a.uniformity, b.uniformity, rtol=0, atol=tolerance)
        assert a.separability == pytest.approx(b.separability, abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_machine_does_not_depend_on_what_is_computed_beside_it(dtype):
    X, tests = data(5, dim=33, dtype=dtype)
    whole = evaluate(X, tests)
    assert whole[0].scores.shape == (6, len(FEW))
    for chunk in (1, 2):
        same(evaluate(X, tests, chunk=chunk), whole, dtype)
    same(evaluate(X[3:4], tests[3:4]), whole[3:4], dtype)
    same(evaluate(X[::-1], tests[::-1]), whole[::-1], dtype)


def test_more_splits_than_are_calibrated_at_once_and_several_seeds():
    X, _ = data(2)
    grid = ["raw-k2", "conf-soft-m10-k1"]
    got = machine_balances(X, [DOMAINS] * 2, grid, [(37, 1), (5, 2)], device="cpu")
    for m, balances in enumerate(got):
        bank = daco.NormalBank(X[m].astype(np.float64), DOMAINS)
        for balance, (n_splits, seed) in zip(balances, [(37, 1), (5, 2)], strict=True):
            assert balance.counts.shape == (2, n_splits, 1)
            assert (balance.counts == bank.exact_balance(grid, n_splits, seed).counts).all()


def test_lists_that_are_too_short_are_completed(monkeypatch):
    X, tests = data()
    expected = evaluate(X, tests, BANDED, bands=2)
    monkeypatch.setattr("daco.method.neighbours.list_length", lambda reach: reach + 1)
    monkeypatch.setattr("daco.method._kernels_torch._COMPLETED_ELEMENTS", 300)
    same(evaluate(X, tests, BANDED, bands=2), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bank_that_is_computed_tile_by_tile_and_chunk_by_chunk(monkeypatch, dtype):
    """As a million clips on a GPU: tiles, lists merged, long rows searched in chunks."""
    X, tests = data(1, 300, 20, dim=12, dtype=dtype)
    domains = ["a"] * 280 + ["b"] * 20
    expected = daco.NormalBank(X[0], domains, bands=2)
    for name, value in {"TILE": 70, "QUERY_BYTES": 9000, "_CHUNK": 2}.items():
        monkeypatch.setattr(f"daco.method._kernels_torch.{name}", value)
    monkeypatch.setattr("daco.method.bank.device_memory", lambda device: 0)
    monkeypatch.setattr("daco.method.neighbours.list_length", lambda reach: 8)
    grid = ["conf-soft-m0-k1", "ldn-ratio-K2", "beam-varmin-K4", "dldn-mean-K3", "genrep"]
    bank = daco.NormalBank(X[0], domains, bands=2, device="cpu:0", memory_budget=0)
    tolerance = 100 * of_distances(12, dtype)
    np.testing.assert_allclose(
        bank.leave_one_out(grid), expected.leave_one_out(grid), atol=tolerance
    )
    np.testing.assert_allclose(
        bank.score(tests[0], grid), expected.score(tests[0], grid), atol=tolerance
    )
    assert (bank.exact_balance(grid, 3).counts == expected.exact_balance(grid, 3).counts).all()
    assert (bank.nearest(tests[0])[0] == expected.nearest(tests[0])[0]).all()


def test_what_is_not_asked_for_is_none():
    X, tests = data()
    found = evaluate(X, None, ["raw-k1"], None)[0]
    assert (found.scores, found.balance, found.uniformity) == (None, None, None)
    one = evaluate(X[:, :2], tests, "raw-k1", None, domains=["a", "a"])
    assert one[0].scores.shape == (6, 1)


def test_one_domain_is_calibrated_by_the_pooled_map():
    X, tests = data(2, dtype=np.float64)
    for m, each in enumerate(evaluate(X, tests, GRID, None, domains=None)):
        expected = daco.NormalBank(X[m]).score(tests[m], GRID)
        np.testing.assert_allclose(each.scores, expected, atol=1e-9)


def test_domains_may_differ_in_order_and_name_between_machines():
    X, _ = data(2, dtype=np.float64)
    domains = [["b"] * 8 + ["a"] * 50, np.array([2, 1] + [1] * 49 + [2] * 7)]
    for m, each in enumerate(evaluate(X, None, GRID, 2, domains=domains)):
        bank = daco.NormalBank(X[m], domains[m])
        np.testing.assert_allclose(each.own, bank.leave_one_out(GRID), atol=1e-9)
        assert (each.balance.values == bank.balance(GRID, 2)).all()


def test_test_clips_of_another_precision_are_scaled_in_the_wider_one():
    X, tests = data(2)
    huge = tests.astype(np.float64) * 1e60  # beyond float32
    for a, b in zip(evaluate(X, huge), evaluate(X, tests), strict=True):
        np.testing.assert_allclose(a.scores, b.scores, atol=2e-4)


def test_whatever_the_caller_computes_in_shorter_floats_is_not_taken_over():
    X, tests = data()
    expected = evaluate(X, tests)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(evaluate(X, tests), expected)


def test_machines_of_different_shapes_are_grouped_and_come_back_in_order():
    banks, domains, tests = [], [], []
    for m, (n, n_test, n_target, dtype) in enumerate(
        [(58, 6, 8, "f4"), (40, 6, 8, "f4"), (58, 6, 8, "f4"), (58, 9, 8, "f4"), (58, 6, 9, "f8")]
    ):
        X, X_test = data(1, n, n_test, dtype=dtype, seed=m)
        banks.append(X[0])
        tests.append(X_test[0])
        domains.append(["a"] * (n - n_target) + ["b"] * n_target)
    for m, each in enumerate(evaluate(banks, tests, domains=domains)):
        same([each], evaluate([banks[m]], [tests[m]], domains=[domains[m]]))


def test_quantile_maps_are_those_of_the_cpu():
    from daco.method.calibration import quantile_maps

    rng = np.random.default_rng(0)
    support = np.sort(rng.integers(-3, 9, (4, 12)) / 4, axis=-1)
    scores = rng.integers(-5, 15, (4, 60)) / 4
    for signed in (False, True):
        got = quantile_maps(torch.from_numpy(support), torch.from_numpy(scores), signed=signed)
        np.testing.assert_allclose(got, quantile_maps(support, scores, signed=signed), atol=1e-12)


X, TESTS = data()


@pytest.mark.parametrize(
    ("banks", "tests", "domains", "message"),
    [
        (X[0], None, DOMAINS, r"X\[None\] for one machine"),
        ([], None, DOMAINS, "at least one"),
        ([X[0], [1, 2]], None, DOMAINS, "Machine 1: X must be a 2-D array"),
        (X, TESTS[:2], DOMAINS, "X has 3 machines, and X_test has 2"),
        (X, [*TESTS[:2], TESTS[2][:, :9]], DOMAINS, "Machine 2: X_test has 9 features"),
        (X, TESTS, DOMAINS[:-1], "there are 58 clips"),
        (X, TESTS, [DOMAINS, DOMAINS], "X has 3 machines, and domains has 2"),
        ([X[0], None], None, DOMAINS, "Machine 1: X must be"),
    ],
)
def test_bad_shapes_are_named(banks, tests, domains, message):
    with pytest.raises(InputError, match=message):
        evaluate(banks, tests, domains=domains)


def test_values_that_are_no_numbers_are_located():
    X, tests = data()
    X[2, 7, 1] = np.nan
    with pytest.raises(InputError, match=r"Machine 2: X contains NaN.* first is row 7"):
        evaluate(X, None, chunk=2)
    X, tests = data()
    tests[1, 3] = np.inf
    with pytest.raises(InputError, match=r"Machine 1: X_test contains NaN or inf.* is row 3"):
        evaluate([X[0][9:], X[1], X[2]], tests, domains=[DOMAINS[9:], DOMAINS, DOMAINS])
    with pytest.raises(InputError, match="bands must divide the 10 features"):
        evaluate(X, None, bands=3)


@pytest.mark.parametrize(
    ("rows", "domains", "n_splits", "message"),
    [
        (slice(0, 16), DOMAINS[:16], None, "'ldn-ratio-K16' needs a bank of 17 clips"),
        (slice(30, 58), DOMAINS[30:], 3, "once half of each domain is held out"),
        (slice(0, 58), None, 3, "compares domains"),
    ],
)
def test_too_few_clips_are_counted(rows, domains, n_splits, message):
    with pytest.raises(NotEnoughClipsError, match=message):
        evaluate(X[:, rows], None, GRID, n_splits, domains=domains)


def test_machines_that_cannot_be_computed_are_skipped_where_that_is_asked_for():
    banks, tests = [X[0], X[1][:16], X[2]], [TESTS[0], TESTS[1], None]
    domains = [DOMAINS, DOMAINS[:16], DOMAINS]
    results = evaluate(banks, tests, GRID, 3, domains=domains, skip_errors=True)
    assert results[1] is None
    assert (results[0].scores.shape, results[2].scores) == ((6, 51), None)
    balances = machine_balances(banks, domains, GRID, device="cpu", skip_errors=True)
    assert [each is None for each in balances] == [False, True, False]


@pytest.mark.parametrize("chunk", [0, -1, 2.0, True])
def test_chunks_are_whole_numbers_of_machines(chunk):
    with pytest.raises(InputError, match="chunk must be a whole number"):
        evaluate(X, None, chunk=chunk)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(InputError, match="'cuda:99' cannot be used"):
        evaluate_machines(X, [DOMAINS] * 3, None, GRID, device="cuda:99")
    with pytest.raises(InputError, match="'cuda:99' cannot be used"):
        daco.NormalBank(X[0], DOMAINS, device="cuda:99")


def test_running_out_of_memory_is_explained():
    from daco.method._kernels_torch import exact_products

    with (
        pytest.raises(InputError, match=r"cpu ran out of memory\. Compute fewer machines"),
        exact_products(torch.empty(0)),
    ):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'pip install "daco-asd\[torch\]"'):
        evaluate(X, None)


def test_importing_it_does_not_import_torch():
    code = "import sys, daco.method.machines; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.fixture(scope="module")
def banks():
    (rows,), (clips,) = data(1, 80, 9, 16, np.float64)
    options = {"domains": ["a"] * 60 + ["b"] * 20, "bands": 2}
    return daco.NormalBank(rows, device="cpu:0", **options), daco.NormalBank(rows, **options), clips


def test_a_bank_on_a_device_answers_as_one_on_the_cpu(banks):
    there, here, clips = banks
    for bank in banks[:2]:
        assert repr(bank) == "NormalBank(80 clips: 60 a, 20 b; 2 bands, 16-d float64)"
    np.testing.assert_allclose(there.score(clips, BANDED), here.score(clips, BANDED), atol=1e-9)
    np.testing.assert_allclose(there.leave_one_out(BANDED), here.leave_one_out(BANDED), atol=1e-9)
    for name in ("balance", "uniformity", "balance_splits"):
        got, expected = (
            getattr(bank, name)(BANDED, 3, np.random.default_rng(3)) for bank in (there, here)
        )
        np.testing.assert_allclose(got, expected, atol=1e-9)
    assert there.separability() == pytest.approx(here.separability(), abs=1e-12)
    grid = ["conf-oracle-m30-k1", "raw-k1"]
    got, expected = (bank.score(clips, grid, domains=["b"] * 9) for bank in (there, here))
    np.testing.assert_allclose(got, expected, atol=1e-9)
    again = pickle.loads(pickle.dumps(there))
    assert (again.score(clips, BANDED) == there.score(clips, BANDED)).all()
    with pytest.raises(InputError, match="X has 3 features, but the bank was built with 16"):
        there.score(clips[:, :3], BANDED)


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "conf-hard-m30-beam", "varmin-K4", "beam"])
def test_examining_gives_scores_weights_and_nearest_normals_at_once(banks, config):
    by = config if config.startswith("conf") else "conf-soft-m0-k1"
    for bank, clips in ((banks[0], banks[2]), (banks[1], banks[2])):
        examined = bank.examine(clips, config)
        np.testing.assert_allclose(examined.scores, bank.score(clips, config), atol=1e-12)
        np.testing.assert_allclose(examined.weights, bank.domain_weights(clips, by), atol=1e-12)
        index, distance = bank.nearest(clips)
        assert (examined.nearest == index).all()
        np.testing.assert_allclose(examined.distance, distance, atol=1e-12)


def test_examining_whole_vectors_computes_their_distances_once(banks, monkeypatch):
    from daco.method import geometry

    blocks = []
    original = geometry.cosine_distances
    monkeypatch.setattr(
        geometry, "cosine_distances", lambda *rows: blocks.append(rows) or original(*rows)
    )
    banks[1].examine(banks[2], ["conf-soft-m0-k1", "ldn-ratio-K1"])
    assert len(blocks) == 1
