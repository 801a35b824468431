"""Writes htk.npz with librosa and kaldi-native-fbank, which the project does not use otherwise.

Run in an environment with ``librosa==0.11.0`` and ``kaldi-native-fbank==1.22.4``. Nothing of daco
is imported: the values are what others compute from the recipes of the manual.
"""

from pathlib import Path

import kaldi_native_fbank as knf
import librosa
import numpy as np

RATES = {"16000_1024_128": (16000, 1024, 128), "16000_512_64": (16000, 512, 64)}


def wave(seconds: float = 3.0, rate: int = 16000) -> np.ndarray:
    """A hum with two harmonics, knocking five times a second, and noise."""
    t = np.arange(round(seconds * rate)) / rate
    hum = np.sin(2 * np.pi * 120 * t) + 0.5 * np.sin(2 * np.pi * 240 * t + 1)
    knock = np.exp(-40 * (t % 0.2)) * np.sin(2 * np.pi * 2500 * t)
    noise = np.random.RandomState(7).standard_normal(len(t))
    return (0.05 * hum + 0.1 * knock + 0.01 * noise).astype(np.float32)


def log_mel(x: np.ndarray, size: int, hop: int, bands: int) -> np.ndarray:
    """Decibels of unnormalised HTK bands, frames that are not centred, symmetric Hann window."""
    mel = librosa.feature.melspectrogram(
        y=x.astype(np.float64), sr=16000, n_fft=size, hop_length=hop, window=np.hanning(size),
        center=False, power=2.0, n_mels=bands, fmin=0, fmax=8000, htk=True, norm=None,
    )  # fmt: skip
    return 10 * np.log10(mel + 1e-10)


def fbank(x: np.ndarray, window: str) -> np.ndarray:
    """Kaldi's filter bank as BEATs (povey) and EAT (hanning) use it."""
    options = knf.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = window
    options.mel_opts.num_bins = 128
    options.use_energy = False
    options.htk_compat = window == "hanning"
    bank = knf.OnlineFbank(options)
    bank.accept_waveform(16000, (x * (2.0**15 if window == "povey" else 1.0)).tolist())
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


if __name__ == "__main__":
    x = wave()
    filters = {
        f"filters_{name}": librosa.filters.mel(
            sr=rate, n_fft=size, n_mels=bands, fmin=0, fmax=rate / 2, htk=True, norm=None
        )
        for name, (rate, size, bands) in RATES.items()
    }
    np.savez_compressed(
        Path(__file__).with_name("htk.npz"),
        wave=x,
        levels=log_mel(x, 1024, 512, 128).astype(np.float32),
        povey=fbank(x, "povey").astype(np.float32)[::10],
        hanning=fbank(x - x.mean(), "hanning").astype(np.float32)[::10],
        **filters,
    )
