"""Train the autoencoder baselines of DCASE Task 2 and write their score files.

    python benchmarks/autoencoders.py dcase2025/dev_data --out baselines [--device cuda]
    daco study --dev dev.parquet --system ae_mse=baselines/ae-mse --out run

One network per machine is trained on its normal clips; its residuals give three scores, each in a
folder of its own below --out:

ae-mse       mean squared error of a clip (the challenge's Simple Autoencoder mode)
ae-maha      Selective Mahalanobis mode, with the distance as the published code computes it
ae-maha-row  the same with the distance of the textbook

Machines whose score files exist are skipped, so an interrupted run continues. docs/evidence.md has
the published scores. The script follows a description of the published code (version 5.1.1) and
shares no code with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import rfft
from torch import Tensor, nn

from daco.audio.decode import probe, read_audio
from daco.data.clips import Clip
from daco.data.sources import read_clips
from daco.errors import AudioError, DataError, NotEnoughClipsError
from daco.evaluation.scorefiles import score_file_name, write_scores

SYSTEMS = ("ae-mse", "ae-maha", "ae-maha-row")
FRAME, HOP, MELS, CONTEXT = 1024, 512, 128, 5
DIM = CONTEXT * MELS
WIDTHS = (DIM, 128, 128, 128, 128, 8, 128, 128, 128, 128, DIM)
BATCH = 256
SEED = 13711  # as published
SMALLEST_EIGENVALUE = 1e-12  # relative to the largest; below it float32 residuals are rounding

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]


# --- features -------------------------------------------------------------------------------


def mel_bank(sample_rate: int) -> Matrix:
    """Triangular filters on Slaney's mel scale, each of area 1 in hertz, (128, 513)."""
    log_step = np.log(6.4) / 27  # the scale is linear up to 1 kHz (15 mel), logarithmic above
    top = sample_rate / 2
    top_mel = top * 3 / 200 if top < 1000 else 15 + np.log(top / 1000) / log_step
    mel = np.linspace(0, top_mel, MELS + 2)
    edges = np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(log_step * (mel - 15)))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hertz = np.arange(FRAME // 2 + 1) * sample_rate / FRAME
    rising, falling = (hertz - low) / (centre - low), (high - hertz) / (high - centre)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)


def log_mel(waveform: Floats, bank: Matrix) -> Floats:
    """Mel bands in decibels, (frames, 128), as librosa 0.10 and later compute them by default."""
    window = np.hanning(FRAME + 1)[:-1].astype(np.float32)
    padded = np.pad(np.asarray(waveform, np.float32), FRAME // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    spectrum = rfft(frames * window)
    bands = (spectrum.real**2 + spectrum.imag**2) @ bank.T.astype(np.float32)
    return np.ascontiguousarray(10 * np.log10(np.maximum(bands, np.float32(2.2e-16))))


def read_frames(paths: Sequence[Path]) -> list[Floats]:
    """Log-mel frames of all clips of a machine, which must have one sample rate."""
    rate = probe(paths[0]).sample_rate
    bank = mel_bank(rate)
    frames = []
    for path in paths:
        if probe(path).sample_rate != rate:
            raise AudioError(f"not recorded at {rate} Hz, as {paths[0].name} is.", path=path)
        frames.append(log_mel(read_audio(path), bank))
        if len(frames[-1]) < CONTEXT:
            raise AudioError(f"shorter than {(CONTEXT - 1) * HOP} samples.", path=path)
    return frames


# --- network --------------------------------------------------------------------------------


def build_network() -> nn.Sequential:
    """The untrained network; every layer but the last has batch normalisation and ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS[:-1]):
        layers += [
            nn.Linear(inputs, outputs),
            nn.BatchNorm1d(outputs, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.Linear(*WIDTHS[-2:]))


def train(
    clips: Sequence[Floats], domains: Sequence[str], epochs: int, seed: int, device: str
) -> tuple[nn.Sequential, dict[str, Matrix], float]:
    """The network of the last epoch, the inverse covariance of each domain, the last loss.

    Weights and batches are drawn on the CPU: two devices start with the same network and see the
    same batches. One vector in ten is held out, as published.
    """
    # All frames are on the device once; a context vector is five consecutive rows of them.
    contexts = context_vectors(torch.from_numpy(np.concatenate(clips)).to(device))
    counts = [len(clip) - CONTEXT + 1 for clip in clips]
    offsets = np.cumsum([0, *map(len, clips[:-1])])
    starts = torch.from_numpy(
        np.concatenate([np.arange(at, at + n) for at, n in zip(offsets, counts, strict=True)])
    )
    domain_of = np.repeat(np.asarray(domains), counts)
    torch.manual_seed(seed)
    model = build_network().to(device)
    order = torch.Generator().manual_seed(seed)
    learned = torch.randperm(len(starts), generator=order)[len(starts) // 10 :]
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        for batch in shuffled_batches(learned, order):
            vectors = contexts[starts[batch].to(device)]
            loss = nn.functional.mse_loss(model(vectors), vectors)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach() * len(batch)
    if not torch.isfinite(total):
        raise DataError("Training diverged: the loss of the last epoch is not finite.")
    model.eval().requires_grad_(False)
    residuals = (
        (residual(model, contexts[starts[batch].to(device)]), domain_of[batch])
        for batch in shuffled_batches(learned, order)
    )
    return model, inverse_covariances(residuals), float(total) / len(learned)


def context_vectors(frames: Tensor) -> Tensor:
    """Every five consecutive frames side by side, (frames - 4, 640); a view."""
    return frames.reshape(-1).unfold(0, DIM, MELS)


def shuffled_batches(indices: Tensor, order: torch.Generator) -> Iterator[Tensor]:
    """Batches in random order; batch normalisation cannot train on a single vector."""
    shuffled = indices[torch.randperm(len(indices), generator=order)]
    return (batch for batch in torch.split(shuffled, BATCH) if len(batch) > 1)


def residual(model: nn.Sequential, vectors: Tensor) -> Floats:
    """Input less reconstruction, (vectors, 640)."""
    return (vectors - model(vectors)).cpu().numpy()


# --- scores ---------------------------------------------------------------------------------


def inverse_covariances(batches: Iterable[tuple[Floats, NDArray[np.str_]]]) -> dict[str, Matrix]:
    """Inverse covariance of each domain's residual rows (of 128 mel bands), as published.

    Rows are centred on the mean of their domain in their batch, and the sum is divided by the
    number of vectors (five rows each) less one. A domain whose covariance has no inverse is left
    out; the published code uses the source's covariance then, which gives the same smallest
    distance.
    """
    sums: dict[str, Matrix] = {}
    counts: dict[str, int] = {}
    for residuals, domains in batches:
        for domain in np.unique(domains).tolist():
            rows = residuals[domains == domain].reshape(-1, MELS).astype(np.float64)
            rows -= rows.mean(axis=0)
            sums[domain] = sums.get(domain, 0) + rows.T @ rows
            counts[domain] = counts.get(domain, 0) + len(rows) // CONTEXT
    inverses = {}
    for domain, total in sums.items():
        values = np.linalg.eigvalsh(total)
        if values[0] > SMALLEST_EIGENVALUE * values[-1]:
            inverses[domain] = np.linalg.inv(total / (counts[domain] - 1))
    if not inverses:
        raise NotEnoughClipsError(
            f"The covariance of the {MELS} mel bands cannot be inverted in any domain (vectors: "
            f"{counts}). Add training clips, or longer ones, of the full bandwidth."
        )
    return inverses


def clip_scores(residuals: Floats, inverses: Mapping[str, Matrix]) -> dict[str, float]:
    """The three scores of one clip; higher is more anomalous.

    The published code averages all entries of ``E P E'``, with the residual rows E and a domain's
    inverse covariance P, which is the distance of the mean row: residuals of opposite signs
    cancel. The textbook averages the diagonal alone. Both take the smallest over the domains.
    """
    rows = residuals.reshape(-1, MELS).astype(np.float64)
    mean, moment = rows.mean(axis=0), rows.T @ rows / len(rows)
    return {
        "ae-mse": float(np.trace(moment) / MELS),
        "ae-maha": min(float(mean @ inverse @ mean) for inverse in inverses.values()),
        "ae-maha-row": min(float((inverse * moment).sum()) for inverse in inverses.values()),
    }


def score_machine(
    clips: Sequence[tuple[Clip, Path]], out: Path, epochs: int, seed: int, device: str
) -> float:
    """Train on the machine's training clips and write scores of its test clips; the last loss."""
    tests = [clip for clip, _ in clips if clip.split == "test"]
    normals = [clip for clip, _ in clips if clip.split == "train"]
    if any(clip.label == 1 for clip in normals):
        raise DataError(f"{normals[0].machine}: a training clip is labelled as an anomaly.")
    if not normals or not tests:
        raise NotEnoughClipsError(f"{clips[0][0].machine} needs training clips and test clips.")
    frames = dict(
        zip((clip.path for clip, _ in clips), read_frames([path for _, path in clips]), strict=True)
    )
    model, inverses, loss = train(
        [frames[clip.path] for clip in normals],
        [clip.domain or "all" for clip in normals],
        epochs,
        seed,
        device,
    )
    for section in dict.fromkeys(clip.section for clip in tests):
        mine = [clip for clip in tests if clip.section == section]
        scores = [
            clip_scores(
                residual(model, context_vectors(torch.from_numpy(frames[clip.path]).to(device))),
                inverses,
            )
            for clip in mine
        ]
        for system in SYSTEMS:
            names, values = [clip.path for clip in mine], [each[system] for each in scores]
            write_scores(out / system, clips[0][0].machine, section, names, values)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", help="DCASE data set, folder of recordings, or manifest")
    parser.add_argument("--out", type=Path, required=True, help="folder of the score files")
    parser.add_argument("--machine", action="append", help="only this machine; repeat for more")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)  # the layers are small: with more threads a step takes longer
    for (year, machine), group in read_clips(given.clips).by_machine().items():
        if given.machine and machine not in given.machine:
            continue
        clips = list(zip(group, group.paths(), strict=True))
        sections = {clip.section for clip in group if clip.split == "test"}
        files = [given.out / s / score_file_name(machine, n) for s in SYSTEMS for n in sections]
        if files and all(file.exists() for file in files):
            print(f"{machine}: scored already")
            continue
        loss = score_machine(clips, given.out, given.epochs, given.seed, given.device)
        print(
            f"{machine}{f' ({year})' if year else ''}: loss {loss:.2f} after {given.epochs} epochs"
        )


if __name__ == "__main__":
    main()
