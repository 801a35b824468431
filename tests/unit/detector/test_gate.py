"""The gate for normals: what is left out, what is not, and models that detect nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from field_models import LOGMEL, normals, small_model

from daco.data.views import Views
from daco.detector.fit import fit_machines
from daco.detector.gate import (
    FEWEST,
    doubtful_normals,
    find_copies,
    list_normals,
    require_detection,
    require_few,
    suspicious_normals,
    unlikeness,
)
from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.embedding.normals import Normals
from daco.errors import DataError

GOOD = {"sample_rate": 16000, "channels": 1, "seconds": 10.0, "reasons": []}
USUAL = np.array([*[-40.0] * 9, 100, -5], np.float32)


def machine(qualities=None, X=None, **fields):
    """40 source and 10 target normals; `qualities` by row differ from good ones."""
    made, domains = normals()
    listed = [GOOD | (qualities or {}).get(row, {}) for row in range(len(made))]
    names = tuple(f"{domain}{row}.wav" for row, domain in enumerate(domains))
    given = {"qualities": tuple(listed), "frontend": LOGMEL, "origin": {}} | fields
    return Normals("press", made if X is None else X, tuple(domains), names, **given)


class TestRecordings:
    @pytest.mark.parametrize(
        ("quality", "reason"),
        [
            ({"seconds": 21.0}, "long: 21 s, the normals have 10 s; cut it into windows"),
            # Another recorder, although the network resamples and takes the first channel.
            (
                {"sample_rate": 44100, "channels": 2},
                "rate: 44100 Hz, the normals have 16000 Hz; channels: 2, the normals have 1",
            ),
            ({"reasons": ["clipped: 2%"], "seconds": 2.0}, "clipped: 2%; short: 2 s, the normals"),
        ],
    )
    def test_a_bad_one_is_named_with_its_reason(self, quality, reason):
        found = suspicious_normals(machine({43: quality}))
        assert list(found) == [43]
        assert found[43].startswith(reason)

    def test_good_ones_and_those_of_unknown_quality_pass(self):
        assert suspicious_normals(machine()) == {}
        bad = machine({43: {"seconds": 1.0}})
        assert suspicious_normals(replace(bad, qualities=())) == {}
        assert suspicious_normals(replace(bad, qualities=(None,) * 50)) == {}

    def test_each_domain_has_its_own_usual_rate_and_length(self):
        other = {row: {"sample_rate": 8000, "seconds": 2.0} for row in range(40, 50)}
        assert suspicious_normals(machine(other)) == {}
        other[45] = GOOD
        assert list(suspicious_normals(machine(other))) == [45]

    def test_new_ones_must_have_the_length_and_the_levels_of_the_model(self):
        known = small_model(frontend=LOGMEL, ranges=learn_ranges(np.stack([USUAL] * 20), [16000]))
        new = machine({44: {"seconds": 1.0}}).take([44, 45, 46])
        new = replace(new, levels=np.stack([USUAL, USUAL - np.float32(30), USUAL]))
        codes = {
            row: reason.partition(":")[0] for row, reason in suspicious_normals(new, known).items()
        }
        assert codes == {0: "short", 1: "off"}
        other_domain = replace(new, domains=("night",) * 3)
        assert list(suspicious_normals(other_domain, known)) == [0]


class TestCopies:
    def test_same_bytes_are_a_copy_of_the_first(self):
        hashes = [f"{row:064}" for row in range(50)]
        hashes[20] = hashes[44] = hashes[3]
        found = suspicious_normals(machine(sha256s=tuple(hashes)))
        assert found == {20: "copy: of source3.wav", 44: "copy: of source3.wav"}
        assert suspicious_normals(machine(sha256s=("",) * 50)) == {}

    def test_same_vectors_are_a_copy_where_they_are_so_in_all_views(self):
        X, _ = normals()
        X[12] = X[4]
        assert suspicious_normals(machine(X=X)) == {12: "copy: of source4.wav"}
        views = Views(("a", "b"), (4, 4))
        assert list(suspicious_normals(machine(X=X, views=views))) == [12]
        X[12, 6] += 0.5
        assert suspicious_normals(machine(X=X, views=views)) == {}

    def test_of_a_model_are_found_by_vector_or_hash(self):
        hashes = [f"{row:064x}" for row in range(50)]
        known = small_model(clip_sha256=hashes)
        new = machine(X=normals(seed=3)[0], sha256s=("f" * 64, hashes[7], *[""] * 48))
        X = new.embeddings.copy()
        X[4] = known.embeddings[9]
        copies = find_copies(replace(new, embeddings=X), known)
        assert copies == {1: known.clip_names[7], 4: known.clip_names[9]}


class TestUnlikeTheOthers:
    def test_a_clip_near_those_of_another_domain_is_not_odd(self):
        X, _ = normals()
        X[40:] = -X[40:]  # a domain on the other side
        X[44] = X[0] + 0.01  # which has a clip that is like the source clips
        assert suspicious_normals(machine(X=X)) == {}

    def test_a_domain_of_few_clips_is_not_judged(self):
        X, _ = normals()
        X[40 + FEWEST - 2] = -X[0]
        assert suspicious_normals(machine(X=X).take(np.arange(40 + FEWEST - 1))) == {}
        assert list(suspicious_normals(machine(X=X).take(np.arange(40 + FEWEST)))) == [46]

    def test_other_levels_in_octave_bands_are_found_whatever_the_vectors_say(self):
        rng = np.random.default_rng(0)
        levels = USUAL + rng.normal(size=(50, 11)).astype(np.float32)
        assert suspicious_normals(machine(levels=levels)) == {}
        levels[45, 1:5] += 30
        found = suspicious_normals(machine(levels=levels))
        assert list(found) == [45]
        assert found[45].startswith("unlike: in its octave bands ")

    def test_it_is_a_ratio_of_chords_and_a_geometric_mean_over_views(self):
        """Written out with loops."""
        X, domains = normals()
        views = Views(("a", "b"), (5, 3))
        odd = unlikeness(X, domains, views)
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
            assert odd[row] == pytest.approx(product**0.5, rel=1e-3)

    def test_new_clips_are_compared_with_those_of_a_model(self):
        """Two clips alone are too few; beside ten of the model one of them is odd."""
        made = machine()
        new = made.take([44, 45])
        new = replace(new, embeddings=np.stack([new.embeddings[0], -new.embeddings[1]]))
        assert suspicious_normals(new) == {}
        rest = made.take(np.r_[0:44, 46:50])
        known = MachineModel.fit(rest.embeddings, list(rest.domains), machine="press")
        assert list(suspicious_normals(new, known)) == [1]


def test_the_three_whose_octave_bands_are_farthest_are_doubtful():
    """In times of what is usual in their domain; few normals tell nothing."""
    levels = np.random.default_rng(0).normal(0, 2, size=(50, 11)).astype(np.float32)
    levels[40:] *= 2
    for row, band, more in ((3, 1, 16), (20, 2, 32), (30, 3, 24), (44, 4, 128)):
        levels[row, band] += more
    found = doubtful_normals(machine(levels=levels))
    assert list(found) == [44, 20, 30]
    bands = levels[:, 1:9]
    second = [np.sort(np.linalg.norm(bands - row, axis=1))[2] for row in bands]
    assert found[20].startswith(f"{second[20] / np.median(second[:40]):.1f} times farther")
    assert doubtful_normals(machine(levels=levels).take(range(44 - FEWEST + 2, 45))) == {}
    assert doubtful_normals(machine()) == {}


def test_recordings_that_sound_alike_are_neither_doubtful_nor_unlike():
    """Octave bands that differ by some 0.3 dB usually, and by 2 dB in one recording."""
    levels = np.random.default_rng(0).normal(0, 0.3, size=(50, 11)).astype(np.float32)
    levels[7, 4] += 2
    normals = machine(levels=levels)
    assert doubtful_normals(normals) == suspicious_normals(normals) == {}
    levels[7, 4] += 30
    assert list(doubtful_normals(normals)) == list(suspicious_normals(normals)) == [7]


def test_more_than_a_third_of_a_domain_is_an_error_that_names_them_and_says_what_to_do():
    bad = machine({row: {"seconds": 1.0} for row in (40, 41, 42)})
    require_few(bad, suspicious_normals(bad))
    bad = machine({row: {"seconds": 1.0} for row in (40, 41, 42, 43)})
    with pytest.raises(DataError, match="4 of 10 normals of target") as caught:
        require_few(bad, suspicious_normals(bad))
    assert "target42.wav, target43.wav (short: 1 s" in str(caught.value)
    assert "--keep-suspicious" in str(caught.value)


class TestFit:
    def test_too_many_are_the_failure_of_one_machine(self):
        bad = machine({row: {"seconds": 1.0} for row in range(40, 45)})
        good, failure = (each for _, each in fit_machines([machine(), bad], config="raw-k1"))
        assert isinstance(good, MachineModel)
        assert isinstance(failure, DataError)
        assert "press: 5 of 10 normals of target" in str(failure)

    def test_a_configuration_can_be_chosen_and_says_why(self):
        ((_, model),) = fit_machines([machine()], config="choose")
        selection = model.provenance["selection"]
        assert selection["config"] == model.config
        assert model.config in selection["criterion"]
        assert model.reason == selection["reason"]
        assert MachineModel.from_bytes(model.to_bytes()).reason == model.reason


class TestDetection:
    @pytest.mark.parametrize("config", ["blend", "raw-k1", "conf-soft-m0-k1"])
    @pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
    def test_models_of_honest_normals_pass(self, config, rate):
        require_detection(small_model(config=config, false_alarm_rate=rate))

    def test_a_model_whose_reference_no_fault_exceeds_is_refused_by_domain(self):
        model = small_model(config="raw-k1")
        muted = replace(model, reference_scores=model.reference_scores + 1.9)
        with pytest.raises(DataError, match="nothing anomalous in source"):
            require_detection(muted)


class TestList:
    def test_scores_are_those_that_clips_are_judged_against(self):
        """Also where a domain has a single session, which cannot be hidden as a whole."""
        X, domains = normals()
        pairs = enumerate(domains)
        sessions = [f"{name}{row % 4}" if name == "source" else "one" for row, name in pairs]
        model = MachineModel.fit(X, domains, machine="press", groups=sessions)
        rows = list_normals(model)
        assert sorted(each.score for each in rows) == sorted(model.reference_scores.tolist())
        assert {each.session for each in rows} == set(sessions)

    def test_suspicious_ones_come_first_with_a_warning(self):
        X, domains = normals()
        X[44] = -X[44]
        model = MachineModel.fit(X, domains, machine="press", provenance={"kept": {"3": "short"}})
        first, second, third, *_ = list_normals(model)
        assert (first.name, first.warning[:7]) == ("44", "unlike:")
        assert first.p_value == pytest.approx(0.1)  # the highest of ten
        assert (second.name, second.warning) == ("3", "short")
        assert third.warning == ""
