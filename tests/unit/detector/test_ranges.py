"""Ranges of the normals' levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from field_models import LOGMEL

from daco.backbones.levels import QUANTITIES
from daco.detector.ranges import check_levels, learn_ranges, ranges_of, rate_reasons, widen_ranges
from daco.embedding.normals import Normals

USUAL = np.array([*[-40.0] * 9, 100, -5])
AT = {name: index for index, name in enumerate(QUANTITIES)}


def normals(count=20, spread=1.0, seed=0):
    return USUAL + spread * np.random.default_rng(seed).uniform(-1, 1, (count, 1)) * (USUAL < -5)


def guard(ranges, **changed):
    clip = USUAL.copy()
    for name, value in changed.items():
        clip[AT[name.replace("_", " ")]] = value
    return check_levels(ranges, clip[None], 1)[0]


def test_no_normal_is_outside_what_was_learned_from_it():
    for count in (1, 2, 10, 100):
        levels = normals(count, spread=8, seed=count)
        assert check_levels(learn_ranges(levels), levels, count) == [None] * count


def test_the_margin_is_6_db_and_grows_with_the_spread_and_with_few_clips():
    levels = normals(40, spread=4)
    low, high = learn_ranges(levels)["limits"]["level"]
    spread = levels[:, 0].std() * (1 + 5 / 40)
    assert low == pytest.approx(levels[:, 0].min() - 6 - spread, abs=0.05)
    assert high == pytest.approx(levels[:, 0].max() + 6 + spread, abs=0.05)
    assert learn_ranges(USUAL[None])["limits"]["level"] == [-46, -34]


def test_a_single_odd_normal_of_ten_does_not_set_the_ranges():
    levels = normals(10)
    for odd in (-90.0, -5.0):
        levels[3, :9] = odd
        others = np.delete(levels, 3, axis=0)
        assert learn_ranges(levels)["limits"] == learn_ranges(others)["limits"]
    levels[4, :9] = levels[3, :9]  # two of them are a condition of the machine
    assert learn_ranges(levels)["limits"]["level"][1] > -5
    few = normals(9)
    few[3, :9] = -90
    assert learn_ranges(few)["limits"]["level"][0] < -90


def test_one_loud_band_is_out_of_range_and_named_with_its_figures():
    state, reason = guard(learn_ranges(normals()), **{"2000_Hz": -20})
    assert state == "out of range"
    assert reason.startswith("range: 2000 Hz -20.0, the range of the normals is -47.")
    _, reason = guard(learn_ranges(normals()), **{"2000_Hz": -20, "500_Hz": -25})
    assert reason.endswith("; also 500 Hz")


def test_what_is_quieter_in_every_band_is_off():
    ranges = learn_ranges(normals())
    (off,) = check_levels(ranges, (USUAL - [*[25.0] * 9, 0, 0])[None], 1)
    assert off.state == "off"
    assert off.reason.startswith("off: level -65.0, the range of the normals is ")
    # A quiet machine with one loud band is not one that is switched off.
    (odd,) = check_levels(ranges, (USUAL - [*[25.0] * 8, -20, 0, 0])[None], 1)
    assert odd.state == "out of range"


def test_more_normals_widen_the_ranges_and_never_narrow_them():
    quiet, loud = learn_ranges(normals() - 10, [16000]), learn_ranges(normals() + 10, [48000])
    both = widen_ranges(quiet, loud)
    assert (both["clips"], both["sample_rates"]) == (40, [16000, 48000])
    for name, (low, high) in both["limits"].items():
        assert low == min(quiet["limits"][name][0], loud["limits"][name][0])
        assert high == max(quiet["limits"][name][1], loud["limits"][name][1])
    assert widen_ranges(None, loud) is None
    assert widen_ranges(quiet, None) is None


def test_ranges_of_a_machine_are_those_of_its_levels_and_sample_rates():
    clips = Normals("fan", np.eye(2, dtype="f4"), ("a", "a"), ("x", "y"), None, {})
    assert ranges_of(clips) is None
    quality = {"sample_rate": 16000, "seconds": 10.0, "reasons": []}
    known = replace(clips, levels=normals(2).astype("f4"), qualities=(quality, None))
    assert ranges_of(known) == learn_ranges(known.levels, [16000])


def test_a_sample_rate_is_wrong_where_the_network_gets_less_or_more_of_the_sound():
    assert rate_reasons(44100, [48000], LOGMEL) == []
    assert rate_reasons(8000, [], LOGMEL) == []
    wrong = ["rate: 8000 Hz, the normals have 16000 Hz"]
    assert rate_reasons(8000, [16000], None) == rate_reasons(8000, [16000], LOGMEL) == wrong
    assert len(rate_reasons(48000, [16000], replace(LOGMEL, sample_rate=32000))) == 1
    assert rate_reasons(16000, [16000, 8000], None) == []
