"""The gate for normals: what is left out, what is not, and models that hear nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from field_models import LOGMEL, normals, small_model

from daco.data.views import Views
from daco.detector.fit import fit_machines
from daco.detector.gate import (
    FAR,
    FEWEST,
    list_normals,
    oddness,
    require_few,
    require_hearing,
    suspicious_normals,
)
from daco.detector.model import MachineModel
from daco.detector.normals import Normals
from daco.errors import DataError

GOOD = {"sample_rate": 16000, "seconds": 10.0, "reasons": []}


def machine(qualities=None, X=None, **fields):
    """40 source and 10 target normals; `qualities` by row differ from good ones."""
    made, domains = normals()
    listed = [GOOD | (qualities or {}).get(row, {}) for row in range(len(made))]
    names = tuple(f"{domain}{row}.wav" for row, domain in enumerate(domains))
    given = {"qualities": tuple(listed), "frontend": LOGMEL, "origin": {}} | fields
    return Normals("press", made if X is None else X, tuple(domains), names, **given)


class TestRecordings:
    def test_good_ones_pass(self):
        assert suspicious_normals(machine()) == {}

    @pytest.mark.parametrize(
        ("quality", "reason"),
        [
            ({"reasons": ["silent: -inf dB of full scale"]}, "silent: -inf dB of full scale"),
            ({"seconds": 1.0}, "short: 1 s, the normals have 10 s"),
            ({"seconds": 21.0}, "long: 21 s, the normals have 10 s; cut it into windows"),
            ({"sample_rate": 8000}, "rate: 8000 Hz, the normals have 16000 Hz"),
            (
                {"reasons": ["clipped: 2.0%"], "seconds": 2.0},
                "clipped: 2.0%; short: 2 s, the normals have 10 s",
            ),
        ],
    )
    def test_a_bad_one_is_named_with_its_reason(self, quality, reason):
        assert suspicious_normals(machine({43: quality})) == {43: reason}

    def test_rates_above_that_of_the_network_do_not_matter(self):
        assert suspicious_normals(machine({43: {"sample_rate": 48000}})) == {}
        own = machine({43: {"sample_rate": 48000}}, frontend=None)
        assert suspicious_normals(own) == {43: "rate: 48000 Hz, the normals have 16000 Hz"}

    def test_each_domain_has_its_own_usual_rate_and_length(self):
        other = {row: {"sample_rate": 8000, "seconds": 2.0} for row in range(40, 50)}
        assert suspicious_normals(machine(other)) == {}
        other[45] = GOOD
        assert list(suspicious_normals(machine(other))) == [45]

    def test_of_two_clips_with_two_rates_that_of_the_machine_is_usual(self):
        made = machine({49: {"sample_rate": 8000}}).take(np.r_[0:40, 48, 49])
        assert suspicious_normals(made) == {41: "rate: 8000 Hz, the normals have 16000 Hz"}

    def test_clips_of_unknown_quality_are_judged_by_their_vectors(self):
        made = replace(machine({43: {"seconds": 1.0}}), qualities=())
        assert suspicious_normals(made) == {}
        unknown = replace(machine(), qualities=(None,) * 50)
        assert suspicious_normals(unknown) == {}


class TestCopies:
    def test_same_bytes_are_a_copy_of_the_first(self):
        hashes = [f"{row:064}" for row in range(50)]
        hashes[20] = hashes[44] = hashes[3]
        found = suspicious_normals(machine(sha256s=tuple(hashes)))
        assert found == {20: "copy: of source3.wav", 44: "copy: of source3.wav"}

    def test_unknown_hashes_are_no_copies(self):
        assert suspicious_normals(machine(sha256s=("",) * 50)) == {}

    def test_same_vectors_are_a_copy_where_they_are_so_in_all_views(self):
        X, _ = normals()
        X[12] = X[4]
        assert suspicious_normals(machine(X=X)) == {12: "copy: of source4.wav"}
        views = Views(("a", "b"), (4, 4), (1, 1))
        assert list(suspicious_normals(machine(X=X, bands=views))) == [12]
        X[12, 6] += 0.5
        assert suspicious_normals(machine(X=X, bands=views)) == {}


class TestUnlikeTheOthers:
    @pytest.mark.parametrize("row", [5, 44])
    def test_a_clip_far_from_all_others_is_found_in_every_domain(self, row):
        X, _ = normals()
        X[row] = -X[row]
        found = suspicious_normals(machine(X=X))
        assert list(found) == [row]
        assert found[row].startswith("unlike: ")

    def test_two_of_ten_that_are_alike_do_not_hide_each_other(self):
        X, _ = normals()
        X[44] = -X[44]
        X[46] = X[44] + 0.01
        assert list(suspicious_normals(machine(X=X))) == [44, 46]

    def test_a_clip_near_those_of_another_domain_is_not_odd(self):
        X, _ = normals()
        X[40:] = -X[40:]  # a domain on the other side
        X[44] = X[0] + 0.01  # which has a clip that is like the source clips
        assert suspicious_normals(machine(X=X)) == {}

    def test_a_domain_of_few_clips_is_not_judged(self):
        X, _ = normals()
        made = machine(X=np.concatenate([X[:40], X[40 : 40 + FEWEST - 2], -X[:1]]).astype("f4"))
        made = replace(machine(), embeddings=made.embeddings).take(np.arange(40 + FEWEST - 1))
        assert suspicious_normals(made) == {}

    def test_it_is_a_ratio_of_chords_and_a_geometric_mean_over_views(self):
        """Written out with loops."""
        X, domains = normals()
        views = Views(("a", "b"), (5, 3), (1, 1))
        told = oddness(X, domains, views)
        for row in (0, 17, 41, 49):
            product = 1.0
            for part in views.split(X.astype(np.float64)):
                unit = part / np.linalg.norm(part, axis=1, keepdims=True)
                chords = np.linalg.norm(unit[:, None] - unit[None], axis=-1)
                mine = [at for at in range(50) if domains[at] == domains[row]]
                pairs = [chords[a, b] for a in mine for b in mine if a < b]
                second = np.sort(np.delete(chords[row], row))[1]
                product *= second / np.sqrt(np.median(np.square(pairs)))
            # chords of float32 vectors: 1e-7 of a cosine near 1 is 1e-4 of a small distance
            assert told[row] == pytest.approx(product**0.5, rel=1e-3)

    def test_equal_vectors_are_finite(self):
        same = np.ones((12, 4), np.float32)
        assert np.isfinite(oddness(same, ["a"] * 12)).all()
        assert np.isfinite(oddness(np.eye(2, dtype=np.float32), ["a", "b"])).all()

    def test_large_banks_are_worked_off_in_blocks(self):
        rng = np.random.default_rng(0)
        X = (rng.normal(size=(2100, 8)) + 3).astype(np.float32)
        X[2050] = -X[2050]
        told = oddness(X, ["a"] * 2100)
        assert np.flatnonzero(told > FAR).tolist() == [2050]

    def test_new_clips_are_compared_with_those_of_a_model(self):
        """Two clips alone are too few; beside ten of the model one of them is odd."""
        made = machine()
        new = made.take(np.array([44, 45]))
        new = replace(new, embeddings=np.stack([new.embeddings[0], -new.embeddings[1]]))
        assert suspicious_normals(new) == {}
        rest = made.take(np.r_[0:44, 46:50])
        known = MachineModel.fit(
            rest.embeddings, list(rest.domains), machine="press", config="raw-k1"
        )
        assert list(suspicious_normals(new, known)) == [1]

    def test_the_usual_length_of_new_clips_is_that_of_the_model(self):
        known = small_model(config="raw-k1", frontend=LOGMEL)
        new = machine({44: {"seconds": 1.0}, 45: {"seconds": 1.0}}).take([44, 45])
        short = "short: 1 s, the normals have 10 s"
        assert suspicious_normals(new, known) == {0: short, 1: short}


class TestMoreThanAThird:
    def test_four_of_ten_are_an_error_that_names_them_and_says_what_to_do(self):
        bad = machine({row: {"seconds": 1.0} for row in (40, 41, 42, 43)})
        with pytest.raises(DataError, match=r"4 of 10 normals of target") as caught:
            require_few(bad, suspicious_normals(bad))
        message = str(caught.value)
        assert "target42.wav, target43.wav (short: 1 s" in message
        assert "--keep-suspicious" in message

    def test_three_of_ten_are_not(self):
        bad = machine({row: {"seconds": 1.0} for row in (40, 41, 42)})
        require_few(bad, suspicious_normals(bad))


class TestFit:
    def test_bad_normals_are_left_out_and_recorded(self):
        bad = machine({43: {"reasons": ["silent: -inf dB of full scale"]}})
        ((_, model),) = fit_machines([bad], config="raw-k1")
        assert "target43.wav" not in model.clip_names
        assert len(model) == 49
        assert model.provenance["left_out"] == {"target43.wav": "silent: -inf dB of full scale"}
        assert "kept" not in model.provenance
        clean = machine().take(np.delete(np.arange(50), 43))
        ((_, expected),) = fit_machines([clean], config="raw-k1")
        np.testing.assert_array_equal(model.embeddings, expected.embeddings)
        assert model.thresholds == expected.thresholds

    def test_they_are_kept_on_request_and_recorded(self):
        bad = machine({43: {"seconds": 1.0}})
        ((_, model),) = fit_machines([bad], config="raw-k1", keep_suspicious=True)
        assert len(model) == 50
        assert list(model.provenance["kept"]) == ["target43.wav"]

    def test_too_many_are_the_failure_of_one_machine(self):
        bad = machine({row: {"seconds": 1.0} for row in range(40, 45)})
        good, failure = (each for _, each in fit_machines([machine(), bad], config="raw-k1"))
        assert isinstance(good, MachineModel)
        assert isinstance(failure, DataError)
        assert "press: 5 of 10 normals of target" in str(failure)

    def test_thinning_chooses_among_the_others(self):
        bad = machine({3: {"seconds": 1.0}})
        ((_, model),) = fit_machines([bad], config="raw-k1", max_normals=30)
        assert len(model) == 30
        assert "source3.wav" not in model.clip_names
        assert model.provenance["thinned_from"] == 49
        rows = [machine().names.index(name) for name in model.clip_names]
        np.testing.assert_array_equal(model.embeddings, bad.embeddings[rows])


class TestHearing:
    @pytest.mark.parametrize("config", ["raw-k1", "conf-soft-m0-k1", "vote"])
    @pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
    def test_models_of_honest_normals_hear(self, config, rate):
        require_hearing(small_model(config=config, false_alarm_rate=rate))

    def test_a_model_whose_reference_no_fault_exceeds_is_refused_by_domain(self):
        model = small_model(config="raw-k1")
        high = np.where(model.reference_domains == model.domains.index("target"), 1.9, 0)
        muted = replace(model, reference_scores=np.maximum(model.reference_scores, high))
        muted = replace(muted, reference_scores=muted.reference_scores + 1.9)
        with pytest.raises(DataError, match="finds nothing anomalous in source"):
            require_hearing(muted)

    def test_a_bank_in_all_directions_is_not_refused(self):
        X = np.random.default_rng(0).normal(size=(30, 5))
        model = MachineModel.fit(X, ["a"] * 20 + ["b"] * 10, machine="m", config="raw-k2")
        require_hearing(model)


def test_listed_scores_are_those_that_clips_are_judged_against():
    """Also where a domain has a single session, which cannot be hidden as a whole."""
    X, domains = normals()
    sessions = [
        f"{name}{row % 4}" if name == "source" else "one" for row, name in enumerate(domains)
    ]
    model = MachineModel.fit(X, domains, machine="press", config="raw-k1", groups=sessions)
    listed = sorted(each.score for each in list_normals(model))
    assert listed == sorted(model.reference_scores.tolist())
