"""Ranges of the normals' levels."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from field_models import LOGMEL

from daco.backbones.levels import QUANTITIES
from daco.detector.ranges import (
    check_levels,
    check_ranges,
    learn_ranges,
    rate_reasons,
    widen_ranges,
)
from daco.errors import InputError

USUAL = np.array([*[-40.0] * 9, 100, -5])
AT = {name: index for index, name in enumerate(QUANTITIES)}


def normals(count=20, spread=1.0, seed=0):
    return USUAL + spread * np.random.default_rng(seed).uniform(-1, 1, (count, 1)) * (USUAL < -5)


def one(ranges, **changed):
    clip = USUAL.copy()
    for name, value in changed.items():
        clip[AT[name.replace("_", " ")]] = value
    return check_levels(ranges, clip[None], 1)[0]


def test_no_normal_is_outside_what_was_learned_from_it():
    for count in (1, 2, 10, 100):
        levels = normals(count, spread=8, seed=count)
        assert check_levels(learn_ranges(levels), levels, count) == [None] * count


def test_without_ranges_or_levels_every_clip_can_be_judged():
    assert check_levels(None, normals(3), 3) == [None] * 3
    assert check_levels(learn_ranges(normals()), None, 2) == [None] * 2


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
        learned = learn_ranges(levels)["limits"]
        clean = learn_ranges(np.delete(levels, 3, axis=0))["limits"]
        for name in QUANTITIES:
            assert learned[name] == clean[name]
    levels[4, :9] = levels[3, :9]  # two of them are a condition of the machine
    assert learn_ranges(levels)["limits"]["level"][1] > -5
    few = normals(9)
    few[3, :9] = -90
    assert learn_ranges(few)["limits"]["level"][0] < -90


def test_one_loud_band_is_out_of_range_and_named_with_its_figures():
    guard = one(learn_ranges(normals()), **{"2000_Hz": -20})
    assert guard.state == "out of range"
    assert guard.reason.startswith("range: 2000 Hz -20.0, the range of the normals is -47.")
    assert guard.reason.endswith(" dB")


def test_what_is_quieter_in_every_band_is_off():
    ranges = learn_ranges(normals())
    (off,) = check_levels(ranges, (USUAL - [*[25.0] * 9, 0, 0])[None], 1)
    assert off.state == "off"
    assert off.reason.startswith("off: level -65.0, the range of the normals is ")
    # A quiet machine with one loud band is not one that is switched off.
    (odd,) = check_levels(ranges, (USUAL - [*[25.0] * 8, -20, 0, 0])[None], 1)
    assert odd.state == "out of range"


def test_white_noise_and_pauses_are_out_of_range():
    ranges = learn_ranges(normals())
    assert one(ranges, flatness=0).reason.startswith("range: flatness 0.0")
    assert one(ranges, duty=40).reason.endswith("70 to 100 %")
    assert one(ranges, flatness=-30) is None


def test_more_normals_widen_the_ranges_and_never_narrow_them():
    quiet, loud = learn_ranges(normals() - 10, [16000]), learn_ranges(normals() + 10, [48000])
    both = widen_ranges(quiet, loud)
    assert both["clips"] == 40
    assert both["sample_rates"] == [16000, 48000]
    for name, (low, high) in both["limits"].items():
        assert low == min(quiet["limits"][name][0], loud["limits"][name][0])
        assert high == max(quiet["limits"][name][1], loud["limits"][name][1])
    assert widen_ranges(None, loud) is None
    assert widen_ranges(quiet, None) is None


def test_ranges_are_plain_json_that_is_checked():
    ranges = json.loads(json.dumps(learn_ranges(normals(), [16000]), allow_nan=False))
    check_ranges(ranges)
    for wrong in [
        {},
        [],
        "x",
        {**ranges, "more": 1},
        {**ranges, "clips": "20"},
        {**ranges, "clips": 10**400},
        {**ranges, "clips": True},
        {**ranges, "sample_rates": [None]},
        {**ranges, "limits": {**ranges["limits"], "level": [1]}},
        {**ranges, "limits": {**ranges["limits"], "level": [1, float("nan")]}},
        {**ranges, "limits": {**ranges["limits"], "other": [1, 2]}},
    ]:
        with pytest.raises(InputError, match="ranges of a model"):
            check_ranges(wrong)


def test_a_sample_rate_is_wrong_where_the_network_hears_less_or_more():
    assert rate_reasons(44100, [48000], LOGMEL) == []
    assert rate_reasons(8000, [], LOGMEL) == []
    assert rate_reasons(8000, [16000], None) == ["rate: 8000 Hz, the normals have 16000 Hz"]
    assert rate_reasons(8000, [16000], LOGMEL) == ["rate: 8000 Hz, the normals have 16000 Hz"]
    assert rate_reasons(48000, [16000], replace(LOGMEL, sample_rate=32000)) == [
        "rate: 48000 Hz, the normals have 16000 Hz"
    ]
