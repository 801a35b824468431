"""Adding, removing and calibrating: what a model becomes, and what it says about it."""

from __future__ import annotations

import numpy as np
import pytest
from field_models import normals, small_model

from daco.detector.model import MachineModel
from daco.detector.revision import add_normals, calibrate_with, remove_normals
from daco.errors import DacoError, InputError

CONFIGS = ["blend", "raw-k1", "conf-soft-m0-k1"]
GROUPS = [f"shift {row // 5}" for row in range(50)]
TODAY = "2026-05-12T08:00:00Z"


@pytest.fixture(autouse=True)
def _fixed_time(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1778572800")


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def clips():
    return normals(seed=7)[0]


@pytest.fixture(scope="module")
def night():
    """Twelve more clips of the target domain."""
    return normals(seed=3, n_source=2, n_target=12)[0][2:]


def names_of(count, prefix="new"):
    return [f"{prefix}{row}.wav" for row in range(count)]


def fit(X, domains, config="blend", groups=None):
    return MachineModel.fit(X, domains, machine="press", config=config, groups=groups)


def assert_same_decisions(first, second, clips):
    assert first.domains == second.domains
    assert first.sessions == second.sessions
    assert first.reference.kinds == second.reference.kinds
    np.testing.assert_array_equal(first.reference_domains, second.reference_domains)
    for name, values in vars(first.score(clips)).items():
        np.testing.assert_array_equal(values, vars(second.score(clips))[name])
    assert first.thresholds == second.thresholds


def assert_same_after_loading(model, clips):
    loaded = MachineModel.from_bytes(model.to_bytes())
    assert loaded.sha256 == model.sha256
    assert loaded.basis == model.basis
    assert_same_decisions(loaded, model, clips)


class TestAdding:
    @pytest.mark.parametrize("config", CONFIGS)
    @pytest.mark.parametrize("groups", [None, GROUPS])
    def test_is_a_fit_with_more_clips(self, config, groups, clips, night):
        X, domains = normals()
        model = small_model(config=config, groups=groups)
        added = None if groups is None else ["night 1"] * 6 + ["night 2"] * 6
        grown = add_normals(model, night, "target", names_of(12), sessions=added)
        all_groups = None if groups is None else [*groups, *added]
        expected = fit(np.vstack([X, night]), [*domains, *["target"] * 12], config, all_groups)
        assert_same_decisions(grown, expected, clips)
        assert grown.domain_sizes == {"source": 40, "target": 22}
        assert grown.clip_names[-1] == "new11.wav"
        assert len(model) == 50
        assert_same_after_loading(grown, clips)

    def test_may_bring_a_new_domain_and_keeps_the_domains_of_new_clips(self, model, clips, night):
        """Numbers of domains change when one with a smaller name comes."""
        calibrated = calibrate_with(model, night, ["target"] * 12, names_of(12))
        more, _ = normals(seed=4, n_source=6, n_target=0)
        grown = add_normals(calibrated, more, "attic", names_of(6, "a"))
        assert grown.domain_sizes == {"attic": 6, "source": 40, "target": 10}
        assert grown.reference.sizes == {"attic": 6, "source": 40, "target": 12}
        assert grown.new_domains.tolist() == [2] * 12
        assert grown.basis["target"]["when"] == TODAY
        target = grown.reference_scores[grown.reference_domains == 2]
        np.testing.assert_array_equal(target, grown.score(night).scores)  # by the larger bank
        assert_same_after_loading(grown, clips)

    def test_of_unknown_sessions_and_hashes_beside_known_ones(self, night):
        hashes = [f"{row:064x}" for row in range(50)]
        model = small_model(groups=GROUPS, clip_sha256=hashes)
        grown = add_normals(model, night, "target", names_of(12))
        assert grown.sessions == (*GROUPS, *[""] * 12)
        assert grown.clip_sha256 == (*hashes, *[""] * 12)
        assert grown.reference.sizes == {"source": 40, "target": 10}  # those with a session
        late = add_normals(small_model(), night, "target", names_of(12), sessions=["a", "b"] * 6)
        assert late.sessions == (*[""] * 50, *["a", "b"] * 6)
        assert late.clip_sha256 == ()
        assert late.reference.kinds == {"source": "training", "target": "sessions"}

    def test_is_recorded_and_of_a_long_history_the_last_updates_are_kept(self, model):
        clip = model.embeddings[:1]
        few = fit(clip.repeat(2, 0) + np.eye(2, 8), None, "raw-k1")
        for number in range(103):
            few = add_normals(few, clip + number, "all", [f"{number}"], note={"source": "x"})
        assert len(few.provenance["updates"]) == 100
        assert few.provenance["earlier_updates"] == 3
        last = few.provenance["updates"][-1]
        assert (last["action"], last["domain"], last["clips"]) == ("added", "all", 1)
        assert (last["when"], last["source"]) == (TODAY, "x")


class TestAddingAndCalibrating:
    @pytest.mark.parametrize("config", CONFIGS)
    def test_judges_either_half_by_the_bank_with_the_other_half(self, config, clips, night):
        X, domains = normals()
        model = small_model(config=config)
        model = add_normals(model, night, "target", names_of(12), calibrate=True)
        halves = [*[""] * 50, *(f"half {row // 6}" for row in range(12))]
        expected = fit(np.vstack([X, night]), [*domains, *["target"] * 12], config, halves)
        np.testing.assert_array_equal(model.reference_scores, expected.reference_scores)
        assert model.reference.sizes == {"source": 40, "target": 12}
        assert model.basis["target"]["when"] == TODAY
        assert model.basis["target"]["sessions"] is None  # two halves of one are no sessions
        assert "12 recordings of 12 May 2026" in model.basis_sentence
        assert len(model) == 62
        assert_same_after_loading(model, clips)

    def test_replaces_earlier_sessions_and_new_clips_of_the_domain_alone(self, clips, night):
        model = small_model(groups=GROUPS)
        model = calibrate_with(model, clips[:4], ["source"] * 2 + ["target"] * 2)
        model = add_normals(model, night, "target", names_of(12), calibrate=True)
        assert model.reference.kinds == {"source": "new", "target": "sessions"}
        assert model.reference.sizes == {"source": 2, "target": 12}
        assert model.sessions[:40] == tuple(GROUPS[:40])
        assert set(model.sessions[40:50]) == {""}
        assert len(set(model.sessions[50:])) == 2


class TestRemoving:
    @pytest.mark.parametrize("groups", [None, GROUPS])
    def test_is_a_fit_without_them(self, groups, clips):
        X, domains = normals()
        model = small_model(groups=groups, clip_sha256=[f"{row:064x}" for row in range(50)])
        gone = [3, 17, 44]
        stays = np.setdiff1d(np.arange(50), gone)
        less = remove_normals(model, [model.clip_names[row] for row in gone])
        left = None if groups is None else [groups[row] for row in stays]
        expected = fit(X[stays], [domains[row] for row in stays], groups=left)
        assert_same_decisions(less, expected, clips)
        assert less.clip_names == tuple(model.clip_names[row] for row in stays)
        assert less.clip_sha256 == tuple(f"{row:064x}" for row in stays)
        (record,) = less.provenance["updates"]
        assert (record["action"], record["clips"]) == ("removed", 3)
        assert record["names"] == [model.clip_names[row] for row in gone]
        assert_same_after_loading(less, clips)

    def test_takes_back_what_was_added_and_keeps_new_clips(self, model, clips, night):
        grown = add_normals(model, night, "target", names_of(12))
        assert_same_decisions(remove_normals(grown, names_of(12)), model, clips)
        calibrated = calibrate_with(model, night, ["target"] * 12)
        less = remove_normals(calibrated, [model.clip_names[0]])
        assert less.basis["target"]["when"] == TODAY
        np.testing.assert_array_equal(less.new_embeddings, calibrated.new_embeddings)

    def test_unknown_names_and_whole_domains_are_refused(self, model):
        with pytest.raises(InputError, match="gone"):
            remove_normals(model, ["gone", model.clip_names[0]])
        with pytest.raises(InputError, match="target"):
            remove_normals(model, model.clip_names[40:])
        with pytest.raises(DacoError):
            remove_normals(fit(np.eye(2, 5), None, "raw-k1"), ["0"])


class TestCalibrating:
    @pytest.mark.parametrize("config", CONFIGS)
    def test_judges_by_scores_of_the_new_clips(self, config, clips, night):
        model = small_model(config=config)
        calibrated = calibrate_with(model, night, ["target"] * 12, names_of(12))
        before, after = (
            [m.reference_scores[m.reference_domains == code] for code in (0, 1)]
            for m in (model, calibrated)
        )
        np.testing.assert_array_equal(after[1], model.score(night).scores)
        np.testing.assert_array_equal(after[0], before[0])
        np.testing.assert_array_equal(calibrated.score(clips).scores, model.score(clips).scores)
        assert calibrated.bank is model.bank  # nothing entered it
        basis = calibrated.basis["target"]
        assert (basis["kind"], basis["clips"], basis["when"]) == ("new", 12, TODAY)
        assert calibrated.basis["source"]["kind"] == "training"
        assert "for target from 12 new recordings of 12 May 2026" in calibrated.basis_sentence
        (record,) = calibrated.provenance["updates"]
        assert (record["action"], record["clips"]) == ("calibrated", {"target": 12})
        assert_same_after_loading(calibrated, clips)

    def test_what_cannot_be_new_is_refused_and_the_model_stays(self, model, night):
        before = model.sha256
        both = np.vstack([night, model.embeddings[5:7]])
        with pytest.raises(InputError, match=r"2 clips of these already: a12, a13\."):
            calibrate_with(model, both, ["target"] * 14, [f"a{row}" for row in range(14)])
        for domains, names in ((["night"] * 12, None), (["target"], None), (["target"] * 12, "a")):
            with pytest.raises(InputError):
                calibrate_with(model, night, domains, names)
        with pytest.raises(DacoError):
            calibrate_with(model, night[:0])
        with pytest.raises(InputError, match="9 features"):
            calibrate_with(model, np.zeros((1, 9)))
        many = np.random.default_rng(0).normal(size=(9_951, 8))
        with pytest.raises(InputError, match="10,000"):
            calibrate_with(model, many, ["source"] * 9_951)
        assert model.sha256 == before
