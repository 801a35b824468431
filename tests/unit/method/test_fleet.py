"""Fleets: shapes, chunks, what stays on the device, and what is refused in which words."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from tolerances import of_distances

import daco
from daco.errors import ConfigError, InputError, MissingExtraError, NotEnoughClipsError
from daco.method.fleet import Fleet, evaluate_machines

torch = pytest.importorskip("torch")

GRID = daco.paper_grid()
FEW = [config for config in GRID if config.neighbours != 2 and config.prior_strength in (0, 30)]
DOMAINS = ["source"] * 50 + ["target"] * 8


def data(count=3, n=58, n_test=6, dim=10, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, n + n_test, dim)) + 2
    return X[:, :n].astype(dtype), X[:, n:].astype(dtype)


def fleet(X, domains=DOMAINS, **options):
    return Fleet(X, domains, device="cpu", **options)


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


def test_results_have_the_axes_machines_clips_configurations():
    X, tests = data()
    machines = fleet(X)
    assert machines.score(tests, GRID).shape == (3, 6, 51)
    assert machines.leave_one_out(GRID).shape == (3, 58, 51)
    assert machines.balance(GRID, 2).shape == (3, 51)
    assert len(machines) == 3
    assert repr(machines) == "Fleet(3 machines of 58 clips: 50 + 8; 10-d float32 on cpu)"


def test_each_method_gives_what_the_single_pass_gives():
    X, tests = data()
    machines = fleet(X)
    scores, own = machines.score(tests, GRID), machines.leave_one_out(GRID)
    balances = machines.exact_balance(GRID, 3, seed=5)
    for m, each in enumerate(fleet(X).evaluate(tests, GRID, 3, seed=5)):
        np.testing.assert_allclose(each.scores, scores[m], atol=1e-4)
        np.testing.assert_allclose(each.own, own[m], atol=1e-4)
        assert (each.balance.counts == balances[m].counts).all()
        assert (machines.balance(GRID, 3, seed=5)[m] == each.balance.values).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_machine_does_not_depend_on_what_is_computed_beside_it(dtype):
    X, tests = data(5, dim=33, dtype=dtype)
    whole = fleet(X).evaluate(tests, FEW, 3)
    for chunk in (1, 2):
        same(fleet(X, chunk=chunk).evaluate(tests, FEW, 3), whole, dtype)
    same(fleet(X[3:4]).evaluate(tests[3:4], FEW, 3), whole[3:4], dtype)
    same(fleet(X[::-1]).evaluate(tests[::-1], FEW, 3), whole[::-1], dtype)


def test_more_splits_than_are_calibrated_at_once():
    X, _ = data(2)
    got = fleet(X).exact_balance(["raw-k2", "conf-soft-m10-k1"], 37, seed=1)
    for m, each in enumerate(got):
        bank = daco.NormalBank(X[m].astype(np.float64), DOMAINS)
        expected = bank.exact_balance(["raw-k2", "conf-soft-m10-k1"], 37, seed=1)
        assert each.counts.shape == (2, 37, 1)
        assert (each.counts == expected.counts).all()


def test_lists_that_are_too_short_are_completed(monkeypatch):
    X, tests = data()
    expected = fleet(X).evaluate(tests, FEW)
    monkeypatch.setattr("daco.method.fleet.scores.list_length", lambda reach: reach + 1)
    monkeypatch.setattr("daco.method.fleet.scores._SHORT_ELEMENTS", 300)  # a few rows at a time
    same(fleet(X).evaluate(tests, FEW), expected)


def test_many_clips_are_scored_in_parts(monkeypatch):
    X, tests = data(2)
    expected = fleet(X).evaluate(tests, FEW, 2)
    monkeypatch.setattr("daco.method.fleet.work.CLIPS_AT_ONCE", 4)
    same(fleet(X).evaluate(tests, FEW, 2), expected)
    np.testing.assert_allclose(fleet(X).score(tests, FEW)[1], expected[1].scores, atol=1e-4)


def test_uniformity_and_separability_alone():
    X, tests = data(2)
    machines = fleet(X)
    found = fleet(X).evaluate(tests, FEW, 3, seed=2)
    np.testing.assert_allclose(machines.uniformity(FEW, 3, seed=2)[1], found[1].uniformity)
    np.testing.assert_allclose(machines.separability(), [each.separability for each in found])


def test_a_fleet_travels_to_another_process_without_what_lies_on_the_device():
    X, tests = data(2)
    machines = fleet(X, chunk=1)
    expected = machines.score(tests, FEW)
    again = pickle.loads(pickle.dumps(machines))
    assert repr(again) == repr(machines)
    assert (again.score(tests, FEW) == expected).all()


def test_a_grid_without_calibration_or_density():
    X, tests = data()
    assert fleet(X).score(tests, "raw-k1").shape == (3, 6, 1)
    assert fleet(X[:, :1], ["a"]).score(tests, "raw-k1").shape == (3, 6, 1)
    found = fleet(X).evaluate(None, ["raw-k1"], n_splits=None)[0]
    assert found.scores is None
    assert found.balance is None
    assert found.uniformity is None


def test_one_domain_is_calibrated_by_the_pooled_map():
    X, tests = data(2, dtype=np.float64)
    for m, scores in enumerate(fleet(X, None).score(tests, GRID)):
        np.testing.assert_allclose(scores, daco.NormalBank(X[m]).score(tests[m], GRID), atol=1e-9)


def test_domains_may_differ_in_order_and_name_between_machines():
    X, _ = data(2, dtype=np.float64)
    domains = [["b"] * 8 + ["a"] * 50, np.array([2, 1] + [1] * 49 + [2] * 7)]
    machines = fleet(X, domains)
    assert machines.domains == [("a", "b"), (1, 2)]
    for m, own in enumerate(machines.leave_one_out(GRID)):
        bank = daco.NormalBank(X[m], domains[m])
        np.testing.assert_allclose(own, bank.leave_one_out(GRID), atol=1e-9)
        assert (machines.balance(GRID, 2)[m] == bank.balance(GRID, 2)).all()


def test_test_clips_of_another_precision_are_scaled_in_the_wider_one():
    X, tests = data(2)
    huge = tests.astype(np.float64) * 1e60  # beyond float32
    np.testing.assert_allclose(fleet(X).score(huge, GRID), fleet(X).score(tests, GRID), atol=2e-4)


def test_a_fleet_in_one_chunk_stays_on_the_device(monkeypatch):
    X, tests = data()
    machines = fleet(X)
    loaded = []
    load = machines._stager.load
    monkeypatch.setattr(
        machines._stager, "load", lambda parts: loaded.append(set(parts)) or load(parts)
    )
    machines.score(tests, GRID)
    machines.score(tests, GRID)
    machines.balance(GRID, 2)
    assert loaded == [{"X", "tests"}, {"tests"}, set()]


def test_whatever_the_caller_computes_in_shorter_floats_is_not_taken_over():
    X, tests = data()
    expected = fleet(X).score(tests, GRID)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (fleet(X).score(tests, GRID) == expected).all()


def test_machines_of_different_shapes_are_grouped_and_come_back_in_order():
    banks, domains, tests = [], [], []
    for m, (n, n_test, n_target, dtype) in enumerate(
        [(58, 6, 8, "f4"), (40, 6, 8, "f4"), (58, 6, 8, "f4"), (58, 9, 8, "f4"), (58, 6, 9, "f8")]
    ):
        X, X_test = data(1, n, n_test, dtype=dtype, seed=m)
        banks.append(X[0])
        tests.append(X_test[0])
        domains.append(["a"] * (n - n_target) + ["b"] * n_target)
    found = evaluate_machines(banks, domains, tests, GRID, 3, device="cpu")
    for m, each in enumerate(found):
        alone = fleet([banks[m]], [domains[m]]).evaluate([tests[m]], GRID, 3)
        same([each], alone)


def test_machines_without_domains_have_one():
    X, _ = data(2)
    found = evaluate_machines(list(X), [None, None], None, GRID, None, device="cpu")
    np.testing.assert_allclose(found[1].own, fleet(X, None).leave_one_out(GRID)[1], atol=1e-4)


def test_quantile_maps_are_those_of_the_cpu():
    from daco.method.calibration import quantile_maps as expected
    from daco.method.fleet.maps import quantile_maps

    rng = np.random.default_rng(0)
    support = np.sort(rng.integers(-3, 9, (4, 1, 12)) / 4, axis=-1)
    scores = rng.integers(-5, 15, (4, 1, 60)) / 4
    for signed in (False, True):
        got = quantile_maps(torch.from_numpy(support), torch.from_numpy(scores), signed=signed)
        mapped = expected(support[:, 0], scores[:, 0], signed=signed)
        np.testing.assert_allclose(got[:, 0], mapped, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "beam",
        "varmin-K4",
        "ldn-mean-K16",
        "dldn-ratio-K16",
        "genrep",
        "conf-soft-m0-beam",
    ],
)
def test_configurations_of_the_cpu_engine_alone_are_named_with_it(name):
    X, tests = data()
    with pytest.raises(ConfigError, match=rf"{name}.*CPU engine, daco\.NormalBank"):
        fleet(X).score(tests, ["raw-k1", name])


def test_bad_shapes_say_which_machine():
    X, tests = data()
    machines = fleet(X)
    for wrong, message in (
        (X[0], r"X\[None\] for one machine"),
        ([], "at least one"),
        ([X[0], X[1][:-1]], r"Machine 1 has \(57, 10\)"),
        ([X[0], X[1].astype(np.float64)], "Machine 1 has .* float64"),
        ([X[0], [1, 2]], "Machine 1: X must be a 2-D array"),
    ):
        with pytest.raises(InputError, match=message):
            fleet(wrong)
    for wrong, message in (
        (tests[:2], "X has 2 machines, the fleet 3"),
        ([*tests[:2], tests[2][:1]], "Machine 2 has 1, the first 6"),
        ([*tests[:2], tests[2][:, :9]], "Machine 2: X has 9 features"),
    ):
        with pytest.raises(InputError, match=message):
            machines.score(wrong, GRID)
    for wrong, message in (
        (DOMAINS[:-1], "there are 58 clips"),
        ([DOMAINS, DOMAINS], "X has 3 machines, domains 2"),
        ([DOMAINS, DOMAINS, ["target"] * 9 + ["source"] * 49], r"Machine 2 has 49 \+ 9 clips"),
    ):
        with pytest.raises(InputError, match=message):
            fleet(X, wrong)
    with pytest.raises(InputError, match="X has 3 machines, domains 1"):
        evaluate_machines(list(X), [DOMAINS], None, GRID, device="cpu")


def test_values_that_are_no_numbers_say_where():
    X, tests = data()
    X[2, 7, 1] = np.nan
    with pytest.raises(InputError, match=r"Machine 2: the bank contains NaN.* first is row 7"):
        fleet(X, chunk=2).leave_one_out(GRID)
    X, tests = data()
    tests[1, 3] = np.inf
    with pytest.raises(InputError, match=r"Machine 1: X contains NaN or inf.* first is row 3"):
        fleet(X).score(tests, GRID)


def test_too_few_clips_are_counted():
    X, tests = data()
    with pytest.raises(NotEnoughClipsError, match="'ldn-ratio-K16' needs banks of 17 clips"):
        fleet(X[:, :16], DOMAINS[:16]).score(tests, GRID)
    with pytest.raises(NotEnoughClipsError, match="once half of each domain is held out"):
        fleet(X[:, 30:], DOMAINS[30:]).balance(GRID)
    with pytest.raises(NotEnoughClipsError, match="compares domains"):
        fleet(X, None).balance(GRID)


@pytest.mark.parametrize("chunk", [0, -1, 2.0, True])
def test_chunks_are_whole_numbers_of_machines(chunk):
    with pytest.raises(InputError, match="'chunk' parameter"):
        fleet(data()[0], chunk=chunk)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(InputError, match="'cuda:99' cannot be used"):
        Fleet(data()[0], DOMAINS, device="cuda:99")


def test_a_machine_too_large_for_the_device_is_sent_to_the_cpu_engine(monkeypatch):
    from daco.method.fleet.staging import chunk_size

    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (10 * 2**30, 80 * 2**30))
    for name in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(f"torch.cuda.{name}", lambda device: 0)
    gpu = torch.device("cuda")
    assert chunk_size(gpu, 2**30) == 8
    assert chunk_size(gpu, 5 * 2**30) == 1
    with pytest.raises(InputError, match=r"needs about 9\.0 GiB.*8\.0 are free.*NormalBank"):
        chunk_size(gpu, 9 * 2**30)


def test_running_out_of_memory_is_explained():
    from daco.method.fleet.staging import exactly

    with (
        pytest.raises(InputError, match=r"ran out of memory with 64 machines.*smaller chunk="),
        exactly(torch.device("cpu"), 64),
    ):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'pip install "daco-asd\[torch\]"'):
        fleet(data()[0])


def test_importing_it_does_not_import_torch():
    code = "import sys, daco.method.fleet; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
