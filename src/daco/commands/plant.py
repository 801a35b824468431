"""What the commands of a plant share: the packages of the monitor, and the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from daco.commands.options import argument
from daco.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from daco.monitoring.config import PlantConfig

PlantPath = Annotated[Path, argument("Use this daco.toml, or the one in this folder.")]
PlantOrModel = Annotated[Path, argument("Use this daco.toml, its folder, or one model file.")]


@contextmanager
def monitor_packages() -> Iterator[None]:
    """Name the extra whose packages are missing."""
    try:
        yield
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f'The monitor needs more packages ({error.name}): pip install "daco-asd[serve]".'
        ) from None


def read_plant(plant: Path, machine: Mapping[str, Any] | None = None) -> PlantConfig:
    """The configuration of a plant; or of one machine: its model file and keys of its table."""
    from daco.detector.modelfile import SUFFIX
    from daco.monitoring.config import PlantConfig

    given = {key: value for key, value in (machine or {}).items() if value is not None}
    if plant.suffix != SUFFIX or plant.is_dir():
        if given:
            raise InputError(f"{next(iter(given))!r} is for one model. Write it into daco.toml.")
        return PlantConfig.load(plant)
    folder = plant.absolute().parent
    service = {"database": f"sqlite:///{folder / 'daco.db'}", "recordings": folder / "kept"}
    table = {"model": plant, **given}
    return PlantConfig.load(None, service=service, machine={plant.name.removesuffix(SUFFIX): table})
