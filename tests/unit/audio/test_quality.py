"""What is known of a recording's quality, and how it travels through a table."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from daco.audio.quality import parse_quality
from daco.backbones import load
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.normals import normals_of_table

RATE = 16000


def noise(seconds=2.0, level=0.05):
    wave = level * np.random.default_rng(0).normal(size=round(seconds * RATE))
    return wave.astype(np.float32)


def test_a_table_has_them_for_every_clip_and_a_fit_reads_them(tmp_path):
    folder = tmp_path / "press"
    folder.mkdir()
    soundfile.write(folder / "a.wav", noise(), RATE)
    soundfile.write(folder / "b.wav", noise(3.0)[::2], RATE // 2)
    soundfile.write(folder / "c.wav", 0 * noise(), RATE)
    (folder / "d.wav").write_bytes(b"RIFF")
    out = tmp_path / "e.parquet"
    report = embed_clips(read_clips(folder), load("logmel"), out)
    assert [path for path, _ in report.skipped] == ["d.wav"]
    told = [json.loads(text) for text in EmbeddingTable.read(out).columns["quality"]]
    assert [each["sample_rate"] for each in told] == [RATE, RATE // 2, RATE]
    assert [each["channels"] for each in told] == [1, 1, 1]
    assert [each["seconds"] for each in told] == [2.0, 3.0, 2.0]
    assert [each["reasons"] for each in told] == [[], [], ["silent: -inf dB of full scale"]]
    (normals,) = normals_of_table(out).machines
    assert list(normals.qualities) == told


@pytest.mark.parametrize(
    "text",
    [
        "", None, 3, "[]", "{}", "nonsense", "[" * 100_000,
        '{"sample_rate": Infinity, "seconds": 1, "reasons": []}',
        '{"sample_rate": 0, "seconds": 1, "reasons": []}',
        '{"sample_rate": 8000, "seconds": NaN, "reasons": []}',
        '{"sample_rate": 8000, "seconds": 1, "reasons": null}',
    ],
)  # fmt: skip
def test_what_is_no_quality_is_not_known(text):
    assert parse_quality(text) is None
