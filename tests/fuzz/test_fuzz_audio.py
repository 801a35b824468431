"""No recording, however damaged, crashes the process, hangs, or takes more than its share."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile
from fuzz.harness import check
from hypothesis import given
from hypothesis import strategies as st

KINDS = ("wav", "flac", "ogg", "aiff", "mp3")


@pytest.mark.parametrize("kind", KINDS)
def test_every_recording_is_judged_or_refused_with_a_reason(child, kind):
    check(child, kind)


def _short(least=0):
    return st.integers(least, 0xFFFF)


def _long():
    return st.integers(0, 0xFFFFFFFF) | st.sampled_from((0, 8, 16_000, 2**31, 2**32 - 1))


@given(
    code=st.sampled_from((1, 2, 3, 6, 7, 17, 49, 85, 0xFFFE)) | _short(),
    channels=st.sampled_from((1, 2)) | _short(),
    rate=st.sampled_from((1000, 8000, 16_000, 383_999)) | _long(),
    byte_rate=_long(),
    block=st.sampled_from((1, 2, 4)) | _short(),
    bits=st.sampled_from((8, 16, 24, 32, 64)) | _short(),
    claimed=_long(),
    sound=st.binary(max_size=2000),
    extra=st.binary(max_size=40),
)
def test_any_wave_header_is_judged_or_refused(
    child, code, channels, rate, byte_rate, block, bits, claimed, sound, extra
):
    form = struct.pack("<HHIIHH", code, channels, rate, byte_rate, block, bits) + extra
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", claimed) + sound
    data = b"RIFF" + struct.pack("<I", len(body)) + body
    assert child.feed("wav", data) in ("accepted", "AudioError")


@given(
    st.sampled_from((b"RIFF", b"RF64", b"fLaC", b"OggS", b"FORM", b"ID3", b"\xff\xfb")), st.binary()
)
def test_any_bytes_after_a_known_mark_are_judged_or_refused(child, mark, rest):
    assert child.feed("wav", mark + rest) in ("accepted", "AudioError")


@pytest.mark.parametrize("rate", [383_999, 100_003, 1009])
def test_a_rate_that_no_recorder_has_costs_no_more_than_others(child, rate):
    # A polyphase filter has twenty taps for each step of the ratio, here of two coprime numbers.
    wave = io.BytesIO()
    soundfile.write(wave, np.full(400, 0.1), rate, format="WAV")
    assert child.feed("wav", wave.getvalue()) in ("accepted", "AudioError")


@pytest.mark.parametrize("frames", [2**27, 2**27 - 1, 2**36 - 1, 3600 * 16_000])
def test_a_header_that_claims_hours_costs_nothing(child, frames):
    flac = io.BytesIO()
    soundfile.write(flac, np.full(4800, 0.1), 16_000, format="FLAC")
    data = bytearray(flac.getvalue())
    packed = int.from_bytes(data[18:26], "big") >> 36 << 36 | frames
    data[18:26] = packed.to_bytes(8, "big")
    assert child.feed("flac", bytes(data)) == "AudioError"


def test_minutes_of_silence_in_few_bytes_are_within_the_bound(child):
    flac = io.BytesIO()
    soundfile.write(flac, np.zeros(300 * 16_000, np.int16), 16_000, format="FLAC")
    assert len(flac.getvalue()) < 20_000
    assert child.feed("flac", flac.getvalue()) == "accepted"
