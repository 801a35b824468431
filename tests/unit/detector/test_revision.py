"""Adding, removing and calibrating: what a model becomes, and what it says about it."""

from __future__ import annotations

import numpy as np
import pytest
from field_models import normals, small_model

from daco.detector.model import MachineModel
from daco.detector.revision import add_normals, calibrate_with, remove_normals
from daco.errors import DacoError, InputError

CONFIGS = ["raw-k1", "conf-soft-m0-k1", "varmin-K4", "vote"]
GROUPS = [f"shift {row // 5}" for row in range(50)]


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1778572800")  # 12 May 2026, 8 o'clock


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


def assert_same_decisions(first, second, clips):
    assert first.domains == second.domains
    assert first.sessions == second.sessions
    np.testing.assert_array_equal(first.reference_scores, second.reference_scores)
    np.testing.assert_array_equal(first.reference_domains, second.reference_domains)
    for name, values in vars(first.score(clips)).items():
        np.testing.assert_array_equal(values, vars(second.score(clips))[name])
    assert first.thresholds == second.thresholds
    kinds = [{name: each["kind"] for name, each in m.basis.items()} for m in (first, second)]
    assert kinds[0] == kinds[1]


def assert_same_after_loading(model, clips):
    loaded = MachineModel.from_bytes(model.to_bytes())
    assert loaded.sha256 == model.sha256
    assert dict(loaded.basis) == dict(model.basis)
    assert loaded.new_names == model.new_names
    assert_same_decisions(loaded, model, clips)


class TestAdding:
    @pytest.mark.parametrize("config", CONFIGS)
    @pytest.mark.parametrize("groups", [None, GROUPS])
    def test_is_a_fit_with_more_clips(self, config, groups, clips, night):
        X, domains = normals()
        model = small_model(config=config, groups=groups)
        added = None if groups is None else ["night 1"] * 6 + ["night 2"] * 6
        grown = add_normals(model, night, "target", names_of(12), sessions=added)
        fresh = MachineModel.fit(
            np.vstack([X, night]),
            [*domains, *["target"] * 12],
            machine="press",
            config=config,
            groups=None if groups is None else [*groups, *added],
        )
        assert_same_decisions(grown, fresh, clips)
        assert grown.domain_sizes == {"source": 40, "target": 22}
        assert grown.clip_names[-1] == "new11.wav"
        assert (grown.config, grown.false_alarm_rate) == (model.config, model.false_alarm_rate)
        assert len(model) == 50  # the old one stays as it was
        assert_same_after_loading(grown, clips)

    def test_may_bring_a_new_domain(self, model):
        more, _ = normals(seed=4, n_source=6, n_target=0)
        grown = add_normals(model, more, "night shift", names_of(6))
        assert grown.domains == ("night shift", "source", "target")
        assert grown.domain_sizes == {"night shift": 6, "source": 40, "target": 10}
        assert grown.reference.sizes == grown.domain_sizes
        assert grown.score(more).weights.shape == (6, 3)

    def test_keeps_new_clips_with_their_domains(self, model, clips, night):
        """Codes of domains move when one with a smaller name comes: the clips' names do not."""
        calibrated = calibrate_with(model, night, ["target"] * 12, names_of(12))
        more, _ = normals(seed=4, n_source=6, n_target=0)
        grown = add_normals(calibrated, more, "attic", names_of(6, "a"))
        assert grown.domains == ("attic", "source", "target")
        assert grown.new_domains.tolist() == [2] * 12
        assert grown.basis["target"] == calibrated.basis["target"]
        target = grown.reference_scores[grown.reference_domains == 2]
        expected = grown.bank.score(night, grown.config)[:, 0]
        np.testing.assert_array_equal(target, expected)  # by the larger bank
        assert_same_after_loading(grown, clips)

    def test_clips_of_unknown_sessions_beside_known_ones(self, night):
        model = small_model(groups=GROUPS)
        grown = add_normals(model, night, "target", names_of(12))
        assert grown.sessions == (*GROUPS, *[""] * 12)
        assert grown.reference.sizes == {"source": 40, "target": 10}  # those with a session
        late = add_normals(small_model(), night, "target", names_of(12), sessions=["a", "b"] * 6)
        assert late.sessions == (*[""] * 50, *["a", "b"] * 6)
        assert late.reference.kinds == {"source": "training", "target": "sessions"}
        with pytest.raises(InputError, match="each of the 12 clips"):
            add_normals(model, night, "target", names_of(12), sessions=["a"])
        with pytest.raises(InputError, match="each of the 12 clips"):
            add_normals(model, night, "target", ["x"])

    def test_is_recorded_and_of_a_long_history_the_last_updates_are_kept(self, model):
        clip = model.embeddings[:1]
        few = MachineModel.fit(clip.repeat(2, 0) + np.eye(2, 8), machine="m", config="raw-k1")
        for number in range(103):
            few = add_normals(few, clip + number, "all", [f"{number}"], note={"source": "x"})
        assert len(few.provenance["updates"]) == 100
        assert few.provenance["earlier_updates"] == 3
        last = few.provenance["updates"][-1]
        assert (last["action"], last["domain"], last["clips"]) == ("added", "all", 1)
        assert (last["when"], last["source"]) == ("2026-05-12T08:00:00Z", "x")


class TestAddingAndCalibrating:
    @pytest.mark.parametrize("config", CONFIGS)
    def test_judges_either_half_by_the_bank_with_the_other_half(self, config, clips, night):
        X, domains = normals()
        model = add_normals(
            small_model(config=config), night, "target", names_of(12), calibrate=True
        )
        halves = [f"half {row // 6}" for row in range(12)]
        fresh = MachineModel.fit(
            np.vstack([X, night]),
            [*domains, *["target"] * 12],
            machine="press",
            config=config,
            groups=[*[""] * 50, *halves],
        )
        assert model.reference.sizes == {"source": 40, "target": 12}
        np.testing.assert_array_equal(model.reference_scores, fresh.reference_scores)
        assert model.basis["target"]["when"] == "2026-05-12T08:00:00Z"
        assert "12 recordings of 12 May 2026" in model.basis_sentence()
        assert len(model) == 62  # both halves are in the bank
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

    def test_of_two_domains_at_the_same_time_are_two_sessions(self, clips, night):
        """Halves of one domain are hidden from that domain, and not from the other."""
        both = add_normals(small_model(), night, "target", names_of(12), calibrate=True)
        both = add_normals(both, clips[:6], "source", names_of(6, "s"), calibrate=True)
        assert len(set(both.sessions) - {""}) == 4
        alone = add_normals(small_model(), clips[:6], "source", names_of(6, "s"))
        alone = add_normals(alone, night, "target", names_of(12), calibrate=True)
        scores = [m.reference_scores[m.reference_domains == 1] for m in (both, alone)]
        np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)

    def test_in_a_new_domain(self, model):
        more, _ = normals(seed=4, n_source=8, n_target=0)
        grown = add_normals(model, more, "attic", names_of(8), calibrate=True)
        assert grown.reference.sizes == {"attic": 8, "source": 40, "target": 10}
        assert grown.basis["attic"]["kind"] == "sessions"


class TestRemoving:
    @pytest.mark.parametrize("groups", [None, GROUPS])
    def test_is_a_fit_without_them(self, groups, clips):
        X, domains = normals()
        model = small_model(groups=groups, clip_sha256=[f"{row:064x}" for row in range(50)])
        gone = [3, 17, 44]
        stays = np.setdiff1d(np.arange(50), gone)
        less = remove_normals(model, [model.clip_names[row] for row in gone], note={"by": "me"})
        fresh = MachineModel.fit(
            X[stays],
            [domains[row] for row in stays],
            machine="press",
            config=model.config,
            groups=None if groups is None else [groups[row] for row in stays],
        )
        assert_same_decisions(less, fresh, clips)
        assert less.clip_names == tuple(model.clip_names[row] for row in stays)
        assert less.clip_sha256 == tuple(f"{row:064x}" for row in stays)
        (record,) = less.provenance["updates"]
        assert (record["action"], record["clips"], record["by"]) == ("removed", 3, "me")
        assert record["names"] == [model.clip_names[row] for row in gone]
        assert_same_after_loading(less, clips)

    def test_adding_and_removing_again_is_the_model_before(self, model, clips, night):
        grown = add_normals(model, night, "target", names_of(12))
        assert_same_decisions(remove_normals(grown, names_of(12)), model, clips)

    def test_keeps_new_clips(self, model, night):
        calibrated = calibrate_with(model, night, ["target"] * 12)
        less = remove_normals(calibrated, [model.clip_names[0]])
        assert less.basis["target"] == calibrated.basis["target"]
        np.testing.assert_array_equal(less.new_embeddings, calibrated.new_embeddings)

    def test_names_that_are_not_there_and_whole_domains_are_refused(self, model):
        with pytest.raises(InputError, match="no normal called gone"):
            remove_normals(model, ["gone", model.clip_names[0]])
        with pytest.raises(InputError, match="target would have no normals"):
            remove_normals(model, model.clip_names[40:])
        few = MachineModel.fit(np.eye(2, 5), machine="m", config="raw-k1")
        with pytest.raises(DacoError):
            remove_normals(few, ["0"])


class TestCalibrating:
    @pytest.mark.parametrize("config", CONFIGS)
    def test_judges_by_scores_of_the_new_clips(self, config, clips, night):
        model = small_model(config=config)
        calibrated = calibrate_with(model, night, ["target"] * 12, names_of(12))
        target = calibrated.reference_scores[calibrated.reference_domains == 1]
        np.testing.assert_array_equal(target, model.score(night).scores)
        source = [m.reference_scores[m.reference_domains == 0] for m in (model, calibrated)]
        np.testing.assert_array_equal(*source)
        np.testing.assert_array_equal(calibrated.score(clips).scores, model.score(clips).scores)
        assert calibrated.bank is model.bank  # nothing entered it
        assert calibrated.basis["target"] == {
            "kind": "new",
            "clips": 12,
            "when": "2026-05-12T08:00:00Z",
        }
        assert calibrated.basis["source"] == model.basis["source"]
        assert calibrated.basis_sentence() == (
            "for source from the training recordings only, so it may be far off; "
            "for target from 12 new recordings of 12 May 2026"
        )
        (record,) = calibrated.provenance["updates"]
        assert (record["action"], record["clips"]) == ("calibrated", {"target": 12})
        assert_same_after_loading(calibrated, clips)

    def test_replaces_earlier_clips_of_the_same_domains_alone(self, model, clips, night):
        first = calibrate_with(model, clips[:8], ["source"] * 8, names_of(8, "s"))
        both = calibrate_with(first, night, ["target"] * 12, names_of(12))
        assert both.reference.sizes == {"source": 8, "target": 12}
        again = calibrate_with(both, clips[10:13], ["source"] * 3, names_of(3, "t"))
        assert again.reference.sizes == {"source": 3, "target": 12}
        assert sorted(again.new_names) == sorted([*names_of(12), *names_of(3, "t")])
        direct = calibrate_with(
            model, np.vstack([night, clips[10:13]]), ["target"] * 12 + ["source"] * 3
        )
        assert_same_decisions(again, direct, clips)
        assert_same_after_loading(again, clips)

    def test_clips_that_enter_the_bank_are_no_longer_new_to_it(self, model, clips, night):
        first = calibrate_with(model, night, ["target"] * 12, names_of(12))
        fewer = add_normals(first, night[:5], "target", names_of(5, "n"))
        assert fewer.reference.sizes["target"] == 7
        assert fewer.new_names == tuple(names_of(12)[5:])
        none = add_normals(first, night, "target", names_of(12, "n"))
        assert none.basis["target"]["kind"] == "training"
        direct = add_normals(model, night, "target", names_of(12, "n"))
        assert_same_decisions(none, direct, clips)

    def test_without_domains_each_clip_counts_where_it_fits_best(self, model, clips):
        weights = model.score(clips).weights
        calibrated = calibrate_with(model, clips)
        assert calibrated.new_domains.tolist() == weights.argmax(axis=1).tolist()
        sizes = {name: int((weights.argmax(axis=1) == code).sum())
                 for code, name in enumerate(model.domains)}  # fmt: skip
        assert calibrated.reference.sizes == sizes
        assert calibrated.new_names == tuple(map(str, range(50)))

    def test_copies_of_the_bank_are_refused_by_name(self, model, night):
        both = np.vstack([night, model.embeddings[5:7]])
        with pytest.raises(InputError, match=r"The bank has 2 clips of these already: a12, a13\."):
            calibrate_with(model, both, ["target"] * 14, [f"a{row}" for row in range(14)])

    def test_other_domains_and_names_are_refused(self, model, night):
        with pytest.raises(InputError, match="night"):
            calibrate_with(model, night, ["night"] * 12)
        with pytest.raises(InputError):
            calibrate_with(model, night, ["target"])
        with pytest.raises(InputError, match="each of the 12 clips"):
            calibrate_with(model, night, ["target"] * 12, ["a"])
        with pytest.raises(DacoError):
            calibrate_with(model, night[:0])

    def test_a_single_clip_is_enough_to_be_judged_by_and_cautioned_about(self, model, night):
        calibrated = calibrate_with(model, night[:1], ["target"])
        assert "from 1 new recording of" in calibrated.basis_sentence()
        (caution,) = calibrated.at_rate(0.05).cautions()
        assert "1 clip of target can support" in caution

    def test_a_model_of_many_new_clips_is_refused(self, model):
        many = np.random.default_rng(0).normal(size=(9_951, 8))
        with pytest.raises(InputError, match="at most 10,000"):
            calibrate_with(model, many, ["source"] * 9_951)
