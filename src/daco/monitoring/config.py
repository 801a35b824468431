"""The configuration of a plant: ``daco.toml``, environment variables and options.

Later layers override earlier ones: defaults, the file, the environment (such as
``DACO_SERVICE__ADDRESS``), options of a command. Relative paths start at the file's folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ByteSize, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from daco.errors import InputError
from daco.monitoring.addresses import masked
from daco.monitoring.tables import MachineConfig, NotifyConfig, ServiceConfig, Token
from daco.monitoring.units import duration_text
from daco.text import suggestion

FILE_NAME = "daco.toml"

_PATHS = {"recordings", "token_file", "webhook_secret_file", "model", "folder", "healthy"}
_SECRET_KEYS = re.compile(r"secret$|sha256$|urls?$|webhook$|mqtt$|database$|stream$|\.notify$")

Tables = Mapping[str, Any]


class Origin(NamedTuple):
    """A value in force and the layer it comes from."""

    key: str
    value: str
    origin: str


class PlantConfig(BaseSettings):
    """Everything that a plant's monitor needs to know.

    Examples
    --------
    >>> config = PlantConfig(machine={"fan": {"model": "models/fan.daco", "alarm": "2 of 3"}})
    >>> config.machine["fan"].name, config.service.port, config.notify.cooldown.total_seconds()
    ('fan', 8477, 1800.0)
    """

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix="DACO_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        validate_default=True,
    )

    service: ServiceConfig = Field(default_factory=ServiceConfig)
    notify: NotifyConfig = Field(default_factory=NotifyConfig)
    machine: dict[str, MachineConfig] = {}
    _origins: dict[str, str] = {}

    @classmethod
    def settings_customise_sources(cls, *_: Any, **sources: Any) -> Any:
        """Only arguments: `load` reads the file and the environment."""
        return (sources["init_settings"],)

    @field_validator("machine", mode="before")
    @classmethod
    def _name_machines(cls, tables: Any) -> Any:
        if not isinstance(tables, Mapping):
            return tables
        return {
            name: {**table, "id": name} if isinstance(table, Mapping) else table
            for name, table in tables.items()
        }

    @classmethod
    def load(cls, path: Path | None = None, **options: Any) -> PlantConfig:
        """Read the configuration.

        Parameters
        ----------
        path : Path, optional
            A ``daco.toml``; or a folder that has one, or has models (``*.daco``), each of which is
            then a machine whose recordings come over HTTP.
        **options : dict
            Tables that override all others, such as ``service={"address": "127.0.0.1:0"}``; values
            that are None are left out. Relative paths in them start at the working directory.

        Raises
        ------
        InputError
            With all mistakes, and the key that was probably meant.
        """
        file, origin, tables = _read(path)
        base = (path if path.is_dir() else path.parent).absolute() if path else Path.cwd()
        try:
            environment = _with_names(EnvSettingsSource(cls)(), tables)
        except SettingsError as error:
            table = re.search(r'field "(\w+)"', str(error))
            name = f"DACO_{table[1].upper() if table else ''}"
            raise InputError(
                f"A variable {name}... of the environment cannot be read. Lists and tables are "
                'JSON there, such as ["json://host"].'
            ) from None
        layers = {
            origin: _absolute(tables, base),
            "environment": _absolute(environment, base),
            "option": _absolute(_without_none(options), Path.cwd()),
        }
        merged: Tables = {}
        for layer in layers.values():
            merged = _merge(merged, layer)
        machines = merged.get("machine")
        names = machines if isinstance(machines, Mapping) else ()
        defaults = {
            "service": {"database": f"sqlite:///{base / 'daco.db'}", "recordings": base / "kept"},
            "machine": {name: {"model": base / "models" / f"{name}.daco"} for name in names},
        }
        try:
            config = cls(**_merge(defaults, merged))
        except ValidationError as error:
            mistakes = "\n".join(_mistake(each) for each in error.errors())
            raise InputError(mistakes, path=file) from None
        for name, layer in layers.items():
            config._origins.update({key: name for key, value in _values(layer) if value != {}})
        return config

    def keep_of(self, machine: str) -> timedelta:
        """Return how long the recordings of a machine are kept."""
        found = self.machine.get(machine)
        return self.service.keep if found is None or found.keep is None else found.keep

    def origins(self) -> list[Origin]:
        """Return every value in force with its origin; secrets are masked."""
        found = []
        for key, value in _values(self):
            layer = key  # a list or a table given as a whole counts for its entries
            while layer not in self._origins and "." in layer:
                layer = layer.rpartition(".")[0]
            found.append(Origin(key, _shown(key, value), self._origins.get(layer, "default")))
        return found


def _read(path: Path | None) -> tuple[Path | None, str, dict[str, Any]]:
    """The file that was read, the name of its layer, and its tables."""
    if path is None:
        return None, FILE_NAME, {}
    if path.is_dir() and not (path / FILE_NAME).is_file():
        models = sorted(path.glob("*.daco"))
        if not models:
            raise InputError(
                f"there is neither a {FILE_NAME} nor a model (*.daco) in this folder. Make both "
                "from recordings of healthy machines: daco start RECORDINGS.",
                path=path,
            )
        return None, "folder of models", {"machine": {m.stem: {"model": m.name} for m in models}}
    file = path / FILE_NAME if path.is_dir() else path
    try:
        return file, FILE_NAME, tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is not valid TOML: {error}.", path=file) from None
    except FileNotFoundError:
        raise InputError(
            "there is no such file. daco start RECORDINGS makes one.", path=file
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}).", path=file) from None


# --- layers --------------------------------------------------------------------------------------


def _with_names(environment: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """Give machines of the environment, which are in lower case, the names of the file."""
    given, machines = environment.get("machine"), tables.get("machine")
    if isinstance(given, Mapping) and isinstance(machines, Mapping):
        known = {re.sub(r"\W", "_", name).lower(): name for name in machines}
        named = {known.get(name, name): table for name, table in given.items()}
        return {**environment, "machine": named}
    return environment


def _absolute(layer: Tables, base: Path) -> dict[str, Any]:
    """The layer with its relative paths joined to a folder."""

    def resolved(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            if key == "weights":
                return {name: base / str(file) for name, file in value.items()}
            return {name: resolved(name, each) for name, each in value.items()}
        if key in _PATHS and isinstance(value, str | Path) and str(value):
            return base / Path(value).expanduser()
        if key == "database" and isinstance(value, str):
            scheme, slashes, file = value.partition(":///")
            if scheme == "sqlite" and slashes and file and not Path(file).is_absolute():
                return f"sqlite:///{base / file}"
        return value

    return {name: resolved(name, value) for name, value in layer.items()}


def _without_none(table: Tables) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def _merge(below: Tables, above: Tables) -> dict[str, Any]:
    """Tables merged key by key; a value of the upper one wins."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _values(table: Tables | BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys and values of a table and of those in it."""
    for key, value in dict(table).items():
        if isinstance(value, Mapping | BaseModel) and dict(value):
            yield from _values(value, f"{prefix}{key}.")
        elif key != "id":
            yield prefix + key, value


# --- what people see -----------------------------------------------------------------------------


def _shown(key: str, value: Any) -> str:
    """A value as the file would have it; addresses and secrets without their secrets."""
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, ByteSize):
        return value.human_readable(decimal=True, separator=" ").replace(".0 ", " ")
    if isinstance(value, SecretStr):
        return "(secret)"
    if isinstance(value, tuple):
        return ", ".join(masked(str(each)) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return masked(str(value)) if _SECRET_KEYS.search(key) else str(value)


def _mistake(mistake: Any) -> str:
    """A mistake in the file's own words."""
    *where, key = map(str, mistake["loc"])
    table = f"[{'.'.join(where)}] " if where else ""
    if mistake["type"] == "extra_forbidden":
        return f"{table}{key} is not a known key.{suggestion(key, _keys(where))}"
    if "error" in mistake.get("ctx", ()):
        return f"{table}{key}: {str(mistake['ctx']['error']).rstrip('.')}."
    if mistake["type"] in ("model_type", "dict_type"):
        return f"{table}{key} must be a table: [{'.'.join([*where, key])}]."
    got = "" if mistake["type"] == "missing" else f" Got {masked(str(mistake['input']))!r}."
    return f"{table}{key}: {mistake['msg']}.{got}"


def _keys(where: list[str]) -> list[str]:
    """The keys of a table."""
    tables: dict[str, type[BaseModel]] = {"service": ServiceConfig, "notify": NotifyConfig}
    tables["machine"] = MachineConfig
    table = Token if "tokens" in where else tables.get(where[0] if where else "", PlantConfig)
    return [key for key in table.model_fields if key != "id"]
