"""Channel policies: their names, what of a file they take, and every way from file to vector."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from field_models import LOGMEL
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from two_microphones import POLICIES, RATE, both, write

from daco.audio.decode import Decoder, read_audio
from daco.audio.microphones import needs_both, parse_channel, residual
from daco.audio.subtraction import least_squares, spectral_subtraction
from daco.backbones.levels import LEVELS, parse_levels
from daco.backbones.logmel import LogMel
from daco.data.clips import Clip, ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.frontend import Listener
from daco.errors import AudioError, InputError

RECIPES = (("lsq", least_squares, 1024), ("specsub", spectral_subtraction, 512))
OF_BOTH = tuple(policy for policy in POLICIES if needs_both(policy))


class TestNames:
    @pytest.mark.parametrize(
        ("text", "policy"),
        [
            *(("0", 0), ("7", 7), (3, 3), (" Mix ", "mix"), ("near", 0), ("FAR", 1)),
            *(("SpecSub", "specsub"), ("residual-proj", "residual-proj")),
            ("residual-C0.5", "residual-c0.5"),
        ],
    )
    def test_each_policy_has_one_spelling(self, text, policy):
        found = parse_channel(text)
        assert found == policy
        assert type(found) is type(policy)
        assert parse_channel(found) == parse_channel(str(found)) == policy

    @pytest.mark.parametrize(
        "text",
        [
            *("-1", "left", "", "1.0", -1, True, None, "²", 1.5, "lsq2"),
            *("residual", "residual-c", "residual-c1"),
        ],
    )
    def test_other_names_are_refused(self, text):
        with pytest.raises(InputError, match="index"):
            parse_channel(text)

    def test_a_name_that_is_near_is_offered(self):
        with pytest.raises(InputError, match="Did you mean 'specsub'"):
            parse_channel("spec-sub")


class TestReading:
    @pytest.fixture
    def waves(self):
        return both().astype(np.float32)

    @pytest.mark.parametrize(
        ("name", "rate"),
        [("a.wav", RATE), ("a.flac", RATE), ("a.wav", 8000), ("a.wav", 32000), ("a.wav", 44100)],
    )
    def test_the_far_one_is_subtracted_at_the_networks_rate(self, tmp_path, waves, name, rate):
        path = write(tmp_path / name, waves)

        def read(channel):
            return read_audio(path, channel=channel, sample_rate=rate)

        near, far = read("near"), read("far")
        for policy, subtract, window in RECIPES:  # windows of 64 and 32 ms
            expected = subtract(near, far, 2 * round(window / 32_000 * rate))
            np.testing.assert_array_equal(read(policy), expected)
        for policy in ("residual-c0.5", "residual-proj"):
            np.testing.assert_array_equal(read(policy), [near, far])

    def test_of_more_channels_the_first_two_count(self, tmp_path, waves):
        more = np.vstack([waves, np.random.default_rng(0).normal(0, 0.1, waves.shape)])
        two = write(tmp_path / "two.wav", waves, subtype="FLOAT")
        four = write(tmp_path / "four.wav", more, subtype="FLOAT")
        for policy in OF_BOTH:
            np.testing.assert_array_equal(
                read_audio(four, channel=policy), read_audio(two, channel=policy)
            )

    def test_one_channel_is_near_and_nothing_else(self, tmp_path, waves):
        path = write(tmp_path / "a.wav", waves[0], subtype="FLOAT")
        np.testing.assert_array_equal(read_audio(path, channel="near"), waves[0])
        for policy in ("far", *OF_BOTH):
            with pytest.raises(AudioError, match=r"a\.wav: there is no channel 1, .* has 1"):
                read_audio(path, channel=policy)

    def test_damage_in_the_far_microphone_is_found(self, tmp_path, waves):
        waves[1, 700] = np.nan
        path = write(tmp_path / "a.wav", waves, subtype="FLOAT")
        with pytest.raises(AudioError, match="NaN or inf, the first is sample 700"):
            read_audio(path, channel="lsq")
        assert np.isfinite(read_audio(path)).all()

    def test_a_clip_that_is_too_short_is_named(self, tmp_path, waves):
        path = write(tmp_path / "a.wav", waves[:, :512])
        with pytest.raises(AudioError, match=r"a\.wav: 512 samples are too few"):
            read_audio(path, channel="lsq")
        assert read_audio(path, channel="residual-proj").shape == (2, 512)


MATRIX = arrays(np.float32, (3, 4), elements=st.floats(-100, 100, width=32))


class TestResidual:
    @given(MATRIX, MATRIX)
    def test_half_of_far_is_subtracted(self, near, far):
        expected = near - far / 2
        np.testing.assert_allclose(residual(near, far, "residual-c0.5"), expected, atol=1e-4)

    @given(MATRIX, MATRIX)
    def test_a_projection_leaves_nothing_along_far_and_the_shortest_rest(self, near, far):
        left = residual(near, far, "residual-proj").astype(np.float64)
        length = np.linalg.norm(far, axis=1)
        along = (left * far).sum(axis=1)[length > 0.01] / length[length > 0.01]
        np.testing.assert_allclose(along, 0, atol=1e-4)  # 1e-6 of values up to 200
        for share in (0.0, 0.5, 1.0):
            other = near - share * far
            assert (np.linalg.norm(left, axis=1) <= np.linalg.norm(other, axis=1) + 1e-4).all()


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Two-channel recordings as WAV of 16 bits and as FLAC, some at another rate."""
    root = tmp_path_factory.mktemp("clips")
    names = []
    for seed, (suffix, rate) in enumerate([("wav", RATE), ("flac", RATE), ("wav", 44100)] * 2):
        names.append(f"{seed}.{suffix}")
        write(root / names[-1], both(seed, rate=rate), rate)
    return ClipTable(root, tuple(Clip(name, "press") for name in names))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_table_and_a_listener_hear_a_file_alike(clips, tmp_path, policy):
    embed_clips(clips, LogMel(), tmp_path / "e.parquet", channel=policy, readouts=["mod", "mean"])
    table = EmbeddingTable.read(tmp_path / "e.parquet")
    assert table.metadata["channel"] == str(policy)
    levels = parse_levels(table.columns[LEVELS])
    for readout in table.readouts:
        frontend = dataclasses.replace(LOGMEL, channel=policy, readout=readout)
        listener = Listener(frontend)
        for path, row, level in zip(clips.paths(), table.matrix(readout), levels, strict=True):
            heard = listener.embed(path)
            vector = heard.embeddings[0]
            np.testing.assert_allclose(vector, row, rtol=1e-5, atol=1e-5)
            # Two decimals in the column.
            np.testing.assert_allclose(heard.levels[0], level, atol=0.02)
            waves = Decoder(RATE, policy).decode(path).waves
            if str(policy).startswith("residual"):
                near, far = LogMel().embed(waves, readout)[:, None]
                expected = residual(near, far, policy)[0]
                np.testing.assert_allclose(vector, expected, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(
                listener.embed_waveform(waves, RATE).embeddings[0], vector
            )


class TestListening:
    def listener(self, policy):
        return Listener(dataclasses.replace(LOGMEL, channel=policy, seconds=None))

    def test_a_window_is_a_clip_to_the_policy(self, tmp_path):
        """The gain of a window is its own, as that of each normal was."""
        waves = np.concatenate([both(seed, seconds=1) for seed in range(4)], axis=1)
        waves[:, RATE:] *= np.float32([[1], [-1]])  # another path from the second second on
        path = write(tmp_path / "a.wav", waves, subtype="FLOAT")
        for policy in OF_BOTH:
            listener = self.listener(policy)
            found = listener.embed(path, window=1.0)
            assert found.seconds == 4
            for index, vector in enumerate(found.embeddings):
                part = waves[:, index * RATE : (index + 1) * RATE]
                alone = listener.embed_waveform(part, RATE).embeddings[0]
                np.testing.assert_allclose(vector, alone, rtol=1e-5, atol=1e-5)

    def test_oddities_are_those_of_the_microphones(self, tmp_path):
        """What is left after subtraction may be nearly silent without anything being wrong."""
        near, far = both(seconds=2)
        alike = self.listener("lsq").embed(write(tmp_path / "alike.wav", [far, far]))
        assert alike.reasons == ()
        dead = self.listener("lsq").embed(write(tmp_path / "dead.wav", [near, 0 * far]))
        assert dead.reasons == ("silent: far microphone, -inf dB of full scale",)
        loud = np.clip(20 * far, -0.999, 0.999)
        clipped = self.listener("residual-proj").embed(write(tmp_path / "clip.wav", [near, loud]))
        assert len(clipped.reasons) == 1
        assert clipped.reasons[0].startswith("clipped: far microphone, ")
