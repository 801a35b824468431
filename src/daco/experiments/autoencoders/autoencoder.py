"""The challenge's autoencoder: its network, its training, its residuals. Needs torch.

Log-mel frames of all training clips lie on the device once; a batch of context vectors is gathered
by index, so that the fivefold copy of the frames is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from daco.compute.device import tf32, torch_device
from daco.errors import DataError, InputError, NotEnoughClipsError
from daco.experiments.autoencoders import EPOCHS, SEED
from daco.experiments.autoencoders.features import CONTEXT, DIM, MELS, Floats
from daco.experiments.autoencoders.scoring import Matrix, Residual, covariances, precisions

WIDTHS = (DIM, 128, 128, 128, 128, 8, 128, 128, 128, 128, DIM)
BATCH = 256
LEARNING_RATE = 1e-3
VALIDATION = 10
"""One vector in so many is held out. Nothing but a logged loss comes of it."""


@dataclass(frozen=True, eq=False)
class Autoencoder:
    """A trained network of one machine, and what its scores need.

    Attributes
    ----------
    model : Sequential
    losses : tuple of float
        Mean squared error of the training vectors in every epoch, while it learned.
    validation_loss : float
        Of the held-out vectors after the last epoch; nan where there are none.
    inverses : dict
        Inverse covariance of the residual rows by domain.
    missing : tuple of str
        Domains of the training clips whose covariance has no inverse.
    """

    model: nn.Sequential
    losses: tuple[float, ...]
    validation_loss: float
    inverses: dict[str, Matrix]
    missing: tuple[str, ...]

    def residual(self, frames: Floats) -> Residual:
        """Input less reconstruction of a clip's context vectors, (frames - 4, 640)."""
        device = next(self.model.parameters()).device
        with torch.inference_mode(), tf32(device, False), _undivided(device):
            vectors = _contexts(_on(device, frames))
            return _numpy(vectors - self.model(vectors))


def build_network() -> nn.Sequential:
    """The network, untrained: each layer but the last with batch normalisation and ReLU."""
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(WIDTHS[:-1]):
        layers += [
            nn.Linear(wide, narrow),
            nn.BatchNorm1d(narrow, eps=1e-3, momentum=0.01),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers, nn.Linear(*WIDTHS[-2:]))


def train(
    clips: Sequence[Floats],
    domains: Sequence[str],
    *,
    epochs: int = EPOCHS,
    seed: int = SEED,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Autoencoder:
    """Train on the normal clips of one machine; the network of the last epoch is kept.

    Everything random comes from `seed` and is drawn on the CPU: two runs on one device are the
    same, and two devices begin with the same weights and see the same batches.

    Parameters
    ----------
    clips : sequence of (frames, 128) arrays
        Of :func:`daco.experiments.autoencoders.features.log_mel`.
    domains : sequence of str
        One per clip.
    epochs, seed : int
    device : str
        Such as ``"cpu"`` or ``"cuda"``.
    progress : callable, optional
        Called with the epochs done and their number.

    Raises
    ------
    NotEnoughClipsError
        There are too few vectors to train on, or for a covariance.
    """
    if len(clips) != len(domains):
        raise InputError(f"There are {len(clips)} clips and {len(domains)} domains.")
    if epochs < 1:
        raise InputError(f"The 'epochs' parameter must be at least 1. Got {epochs!r} instead.")
    place = torch_device(device)
    starts, codes, names = _vectors(clips, domains)
    order = torch.Generator().manual_seed(seed)
    held_out, learned = _split(len(starts), order)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_network().to(place)
    contexts = _contexts(_on(place, np.concatenate(clips)))
    with tf32(place, False), _undivided(place):
        losses = _descend(model, contexts, starts[learned], epochs, order, progress)
        model.eval().requires_grad_(False)
        found = covariances(
            _residuals(model, contexts, starts, codes, _shuffled(learned, order)), names
        )
        validation = _squared_error(model, contexts, starts[held_out])
    if not np.isfinite(losses[-1]):
        raise DataError(f"Training diverged: the loss of epoch {len(losses)} is {losses[-1]}.")
    inverses = precisions(found)
    missing = tuple(name for name in names if name not in inverses)
    return Autoencoder(model, losses, validation, inverses, missing)


def _vectors(
    clips: Sequence[Floats], domains: Sequence[str]
) -> tuple[Tensor, NDArray[np.intp], list[str]]:
    """Where each context vector begins among all frames, its domain's index, the domains."""
    lengths = np.array([len(clip) for clip in clips], dtype=np.int64)
    if len(lengths) and lengths.min() < CONTEXT:
        raise InputError(f"A clip needs at least {CONTEXT} frames. Got {lengths.min()} instead.")
    first = np.concatenate([[0], np.cumsum(lengths)])
    counts = lengths - CONTEXT + 1
    starts = [np.arange(begin, begin + n) for begin, n in zip(first, counts, strict=False)]
    names, codes = np.unique(np.asarray(domains, dtype=np.str_), return_inverse=True)
    if sum(counts) < 3:
        raise NotEnoughClipsError(
            f"An autoencoder needs normal clips to train on. Got {len(clips)} of {sum(counts)} "
            "vectors in all."
        )
    return torch.from_numpy(np.concatenate(starts)), np.repeat(codes, counts), names.tolist()


def _split(n: int, order: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the vectors that are held out and of those that are learned."""
    shuffled = torch.randperm(n, generator=order)
    return shuffled[: n // VALIDATION], shuffled[n // VALIDATION :]


def _descend(
    model: nn.Sequential,
    contexts: Tensor,
    starts: Tensor,
    epochs: int,
    order: torch.Generator,
    progress: Callable[[int, int], None] | None,
) -> tuple[float, ...]:
    """Train in place; the mean loss of every epoch."""
    device = contexts.device
    on_gpu = device.type == "cuda"
    optimiser = torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, fused=True, capturable=on_gpu
    )
    loss_of = nn.MSELoss()
    total = torch.zeros((), device=device)

    def step(batch: Tensor) -> None:
        vectors = contexts.index_select(0, batch)
        optimiser.zero_grad()
        loss = loss_of(model(vectors), vectors)
        loss.backward()
        optimiser.step()
        total.add_(loss.detach() * len(batch))

    model.train()
    full_step: Callable[[Tensor], None] = step
    if on_gpu and len(starts) >= BATCH:
        full_step = _recorded(step, starts[:BATCH].to(device), model, optimiser)
    losses = []
    for epoch in range(1, epochs + 1):
        total.zero_()
        seen = 0
        for batch in _batches(_shuffled(starts, order).to(device)):
            (full_step if len(batch) == BATCH else step)(batch)
            seen += len(batch)
        losses.append(float(total) / seen)
        if progress is not None:
            progress(epoch, epochs)
    return tuple(losses)


def _recorded(
    step: Callable[[Tensor], None],
    batch: Tensor,
    model: nn.Sequential,
    optimiser: torch.optim.Adam,
) -> Callable[[Tensor], None]:
    """The step as a CUDA graph: the same bits in a sixth of the time, which went into launches."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    aside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # torch wants some steps before it records one
        for _ in range(3):
            step(batch)
    torch.cuda.current_stream().wait_stream(aside)
    optimiser.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(batch)
    model.load_state_dict(before)
    for state in optimiser.state.values():
        for value in state.values():
            value.zero_()

    def replay(other: Tensor) -> None:
        batch.copy_(other)
        graph.replay()

    return replay


def _residuals(
    model: nn.Sequential,
    contexts: Tensor,
    starts: Tensor,
    codes: NDArray[np.intp],
    learned: Tensor,
) -> Iterator[tuple[Residual, NDArray[np.intp]]]:
    """Residuals of the learned vectors and their domains, in batches as during training."""
    with torch.inference_mode():
        for batch in _batches(learned):
            vectors = contexts.index_select(0, starts[batch].to(contexts.device))
            yield _numpy(vectors - model(vectors)), codes[batch.numpy()]


def _squared_error(model: nn.Sequential, contexts: Tensor, starts: Tensor) -> float:
    total = 0.0
    with torch.inference_mode():
        for batch in torch.split(starts, BATCH):
            vectors = contexts.index_select(0, batch.to(contexts.device))
            total += float((vectors - model(vectors)).square().mean()) * len(batch)
    return total / len(starts) if len(starts) else float("nan")


def _batches(indices: Tensor) -> Iterator[Tensor]:
    """Batches in order; batch normalisation knows no spread of a single vector."""
    return (batch for batch in torch.split(indices, BATCH) if len(batch) > 1)


def _shuffled(indices: Tensor, order: torch.Generator) -> Tensor:
    return indices[torch.randperm(len(indices), generator=order)]


@contextmanager
def _undivided(device: torch.device) -> Iterator[None]:
    """Make a GPU the current one, and keep a CPU from dividing the work among threads.

    For layers this small that costs more than it gains (5.3 ms a step with one thread, 8.6 ms with
    eight), and results would depend on the number of threads.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _contexts(frames: Tensor) -> Tensor:
    """Every five consecutive frames, (frames - 4, 640): a view; some straddle two clips."""
    return frames.reshape(-1).unfold(0, DIM, MELS)


def _on(device: torch.device, frames: Floats) -> Tensor:
    return torch.from_numpy(np.require(frames, np.float32, ["C", "W"])).to(device)


def _numpy(values: Tensor) -> Residual:
    return values.cpu().numpy()
