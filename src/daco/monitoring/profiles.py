"""The profile of a model's healthy recordings, and findings of a recording against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daco.audio.decode import Decoder, Source, probe, read_each
from daco.data.sources import list_audio
from daco.detector.model import MachineModel
from daco.errors import AudioError, DataError
from daco.files.remote import Location, parse_location
from daco.monitoring.findings import Finding, findings
from daco.monitoring.healthy import LEAST_RECORDINGS, HealthyProfile, evenly_chosen
from daco.validation import Float32s

HIGHEST_RATE = 48_000  # hertz

Progress = Callable[[int, int], None]


def profile_of_folder(folder: Location, progress: Progress | None = None) -> HealthyProfile:
    """Profile of the recordings in a folder, as `profile_of_normals`."""
    paths = [folder / name for name in list_audio(folder)[0]]
    return _profile(paths, [""] * len(paths), progress)


def profile_of_normals(model: MachineModel, progress: Progress | None = None) -> HealthyProfile:
    """Profile of a model's own normals, where these are still in their place.

    At most 256 recordings of each condition are read, at the sample rate of the first. Those that
    cannot be read are left out. Few or none that can be found raise a `DataError`.
    """
    root = model.provenance.get("root")
    if model.frontend is None or root is None:
        raise DataError("The model was not made from recordings. Name a folder with --healthy.")
    paths = [parse_location(root) / name for name in model.clip_names]
    return _profile(paths, [model.domains[code] for code in model.clip_domains], progress)


def findings_of(
    source: Source | bytes, profile: HealthyProfile, condition: str | None = None
) -> list[Finding]:
    """Findings of a recording (a file, or its bytes) against a profile, at the profile's rate."""
    wave = _near_sound(source, profile.sample_rate)
    return findings(wave, profile.sample_rate, profile, condition=condition)


def _profile(
    paths: Sequence[Location], conditions: Sequence[str], progress: Progress | None
) -> HealthyProfile:
    chosen: Sequence[int] = evenly_chosen(conditions).tolist() if conditions else []
    rate, waves, names = 0, [], []
    for done, row in enumerate(chosen, 1):
        try:
            rate = rate or min(probe(paths[row]).sample_rate, HIGHEST_RATE)
            waves.append(_near_sound(paths[row], rate))
            names.append(conditions[row])
        except (AudioError, OSError):
            continue
        if progress is not None:
            progress(done, len(chosen))
    if len(waves) < LEAST_RECORDINGS:
        raise DataError(
            f"{len(waves)} of {len(paths)} healthy recordings can be read; findings need at least "
            f"{LEAST_RECORDINGS}. Name their folder with --healthy."
        )
    return HealthyProfile.from_recordings(waves, rate, names)


def _near_sound(source: Source | bytes, rate: int) -> Float32s:
    return read_each([Decoder(rate, 0)], source)[1][0]
