"""``daco feedback``: what people say about a machine's recordings and alarms."""

from __future__ import annotations

import getpass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from daco.commands import options as shared
from daco.commands.console import Output
from daco.commands.options import argument, flag, option, require_folder
from daco.errors import InputError
from daco.text import printable, quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.monitoring.config import PlantConfig
    from daco.monitoring.store import Store

_LISTED = 20


class What(StrEnum):
    """What a recording or an alarm was."""

    false_alarm = "false-alarm"
    fault = "fault"


def feedback(
    plant: Annotated[
        Path, argument("Use this daco.toml, a folder with one, or the model file of one machine.")
    ],
    what: Annotated[
        What | None,
        argument("Answer false-alarm or fault. Without it, daco lists alarms, answers and rates."),
    ] = None,
    machine: Annotated[str | None, option("Name the machine, if the plant has several.")] = None,
    clip: Annotated[int | None, option("Answer for the recording with this number.", min=1)] = None,
    alarm: Annotated[
        int | None, option("Answer for the alarm with this number and its recordings.", min=1)
    ] = None,
    by: Annotated[str | None, option("Give your name. The default is the user name.")] = None,
    comment: Annotated[str, option("Describe what you found and did.")] = "",
    commission: Annotated[
        int | None,
        option("Declare the machine healthy for this number of recordings from now on.", min=10),
    ] = None,
    reset: Annotated[
        bool, flag("--reset", "Forget everything learned, so that the model alone decides again.")
    ] = False,
    manifest: Annotated[
        Path | None, option("Write a manifest of false alarms that daco update can add.")
    ] = None,
    db: shared.Database = None,
) -> None:
    """Answer whether a recording or an alarm was a fault, and show the realised rates.

    The answers move the alarm limit where the machine adapts (adapt = true in daco.toml) or was
    declared healthy. daco never learns from faults. The last answer counts. To add false alarms
    to the healthy recordings, write their manifest and give it to daco update.
    """
    from daco.detector.model import MachineModel
    from daco.monitoring.store import Person, Store

    console = Output()
    if (what is None) != (clip is None and alarm is None) or (clip and alarm):
        raise InputError("Give false-alarm or fault, and the number of one clip or of one alarm.")
    require_folder(manifest)
    config = _config(plant, db)
    name = _machine(config, machine)
    who = Person(by or (_user() if what or commission or reset else ""), "command line")
    loaded = MachineModel.load(config.machine[name].model)
    with Store.open(config.service.database, create=commission is not None) as store:
        if what is not None:
            found = store.clip(clip) if clip else store.alarm(alarm or 0)
            if found is None or found.machine != name:
                which = f"clip {clip}" if clip else f"alarm {alarm}"
                raise InputError(f"{name} has no {which} in {store.database.label}.")
            record = store.people.answer_clip if clip else store.people.answer_alarm
            record(found.id, what.value.replace("-", " "), who, comment)
        if reset:
            done = store.people.reset(name, who)
            words = "What was learned is forgotten" if done else "Nothing was learned"
            console.write(f"{words}. The model alone decides.")
        if commission is not None:
            sha256, rate = loaded.sha256, loaded.false_alarm_rate
            store.people.declare_healthy(name, commission, who, model_sha256=sha256, rate=rate)
        if manifest is not None:
            _write_manifest(console, config, store, name, manifest)
        _show(console, store, name, loaded)


def _config(plant: Path, db: str | None) -> PlantConfig:
    from daco.detector.modelfile import SUFFIX
    from daco.monitoring.config import PlantConfig

    if plant.suffix != SUFFIX or plant.is_dir():
        return PlantConfig.load(plant, service={"database": db})
    service = {
        "database": shared.database_of(db, plant),
        "recordings": plant.absolute().parent / "kept",
    }
    name = plant.name.removesuffix(SUFFIX)
    return PlantConfig.load(None, service=service, machine={name: {"model": plant}})


def _machine(config: PlantConfig, name: str | None) -> str:
    known = list(config.machine)
    if name is None and len(known) == 1:
        return known[0]
    if name not in known:
        raise InputError(f"Name one of the machines with --machine: {', '.join(known)}.")
    return name


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        raise InputError("Your user name is not known. Give a name with --by.") from None


def _write_manifest(
    console: Output, config: PlantConfig, store: Store, machine: str, manifest: Path
) -> None:
    """List recordings of false alarms: the files they came from, or kept ones."""
    import pandas as pd

    rows, kept = [], config.service.recordings.absolute()
    for clip in store.false_alarms(machine):
        sha256 = clip.audio_sha256 or "-"
        files = [Path(clip.audio_path or "-"), *kept.glob(f"{sha256[:2]}/{sha256}.*")]
        path = next((file for file in files if file.is_file()), None)
        if path is not None:
            domain, _ = max(clip.domain_weights.items(), key=lambda each: each[1])
            rows.append({"path": str(path), "machine": machine, "domain": domain})
    if not rows:
        raise InputError(
            f"This computer has no recording of a false alarm of {machine}. Run daco feedback "
            "where the recordings are."
        )
    pd.DataFrame(rows).to_csv(manifest, index=False)
    console.write(f"{manifest}: {quantity(rows, 'recording')}", wrap=False)


def _show(console: Output, store: Store, machine: str, model: MachineModel) -> None:
    from daco.monitoring.alarms import FAULT

    for sentence in feedback_sentences(store, machine, model):
        console.write(sentence)
    listed = store.alarms(machine, limit=1000)
    waiting = [each for each in listed if each.answer is None and each.kind == FAULT]
    if waiting:
        numbers = ", ".join(str(each.id) for each in waiting[:_LISTED])
        console.write(f"{quantity(waiting, 'alarm')} without an answer: {numbers}.")
    answers = store.answers(machine, _LISTED)
    if answers:
        table = Table("when", "about", "answer", "by", "comment", box=None)
        for each in answers:
            words = [each.target, each.action.removeprefix("answer "), each.who, each.detail]
            table.add_row(f"{each.at:%Y-%m-%d %H:%M}", *(printable(word or "") for word in words))
        console.print(table)


def feedback_sentences(store: Store, machine: str, model: MachineModel) -> list[str]:
    """Realised rates of a machine's model by the answers of people, and what was learned."""
    sentences = store.rates(machine, model.sha256).sentences()
    state = store.adaptations(machine).get(machine)
    if state is None or state.model_sha256 != model.sha256:
        return sentences
    return [*sentences, state.sentence()]
