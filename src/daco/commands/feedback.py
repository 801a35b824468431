"""``daco feedback``: what people say about a machine's clips and alarms."""

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
    from daco.monitoring.store import Store

_LISTED = 20


class What(StrEnum):
    """What a clip or an alarm was."""

    false_alarm = "false-alarm"
    fault = "fault"


def feedback(
    model: shared.ModelPath,
    what: Annotated[
        What | None,
        argument("Answer false-alarm or fault. Without it, daco lists alarms, answers and rates."),
    ] = None,
    clip: Annotated[int | None, option("Answer for the clip with this number.", min=1)] = None,
    alarm: Annotated[
        int | None, option("Answer for the alarm with this number and all its clips.", min=1)
    ] = None,
    by: Annotated[str | None, option("Give your name. The default is the user name.")] = None,
    comment: Annotated[str, option("Describe what you found and did.")] = "",
    commission: Annotated[
        int | None,
        option("Declare the machine healthy for this number of clips from now on.", min=10),
    ] = None,
    reset: Annotated[
        bool, flag("--reset", "Reset the adaptation, so that the model alone decides again.")
    ] = False,
    manifest: Annotated[
        Path | None, option("Write a manifest of false alarms that daco update can add.")
    ] = None,
    clips: Annotated[
        Path | None,
        option(
            "Find kept uploads in this folder of daco serve. The default is clips beside MODEL."
        ),
    ] = None,
    db: shared.Database = None,
) -> None:
    """Answer whether a clip or an alarm was a fault, and show the realised rates.

    With --adapt, daco watch and daco serve use the answers: false alarms move the threshold if
    too many clips are anomalous. daco never learns from faults. The last answer counts. To add
    false alarms to the normals, write their manifest and give it to daco update.
    """
    from daco.detector.model import MachineModel
    from daco.detector.modelfile import SUFFIX
    from daco.monitoring.store import Store

    console = Output()
    if (what is None) != (clip is None and alarm is None) or (clip and alarm):
        raise InputError("Give false-alarm or fault, and the number of one clip or of one alarm.")
    require_folder(manifest)
    machine = model.name.removesuffix(SUFFIX)
    who = by or (_user() if what or commission else "")
    loaded = MachineModel.load(model)
    beside = shared.database_file(model)
    if db is None and commission is None and not beside.is_file():
        raise InputError(
            f"{beside} does not exist. daco watch and daco serve write it. Name another database "
            "with --db."
        )
    with Store.open(shared.database_of(db, model)) as store:
        people = store.people
        if what is not None:
            answer = what.value.replace("-", " ")
            of_machine = store.clip(clip) if clip else store.alarm(alarm or 0)
            if of_machine is None or of_machine.machine != machine:
                which = f"clip {clip}" if clip else f"alarm {alarm}"
                raise InputError(f"{machine} has no {which} in {store.database.label}.")
            if clip is not None:
                people.answer_clip(clip, answer, who, comment)
            else:
                people.answer_alarm(of_machine.id, answer, who, comment)
        if reset:
            done = "The adaptation was reset" if people.reset(machine) else "Nothing was adapted"
            console.write(f"{done}. The model alone decides.")
        if commission is not None:
            rate = loaded.false_alarm_rate
            people.declare_healthy(machine, commission, who, model_sha256=loaded.sha256, rate=rate)
        if manifest is not None:
            _write_manifest(console, store, machine, clips or model.parent / "clips", manifest)
        _show(console, store, machine, loaded)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        raise InputError("Your user name is not known. Give a name with --by.") from None


def _write_manifest(
    console: Output, store: Store, machine: str, kept: Path, manifest: Path
) -> None:
    """List recordings of false alarms; those of daco serve are in the folder `kept`."""
    import pandas as pd

    rows = []
    for clip in store.people.false_alarms(machine):
        path = kept.absolute() / (clip.audio_path or "")
        weights = clip.domain_weights
        if clip.audio_path and path.is_file():
            domain = max(weights, key=lambda name: weights[name])
            rows.append({"path": str(path), "machine": machine, "domain": domain})
    if not rows:
        raise InputError(
            f"This computer has no recording of a false alarm of {machine}. Run daco feedback "
            "where the recordings are, or name the folder of daco serve with --clips."
        )
    pd.DataFrame(rows).to_csv(manifest, index=False)
    console.write(f"{manifest}: {quantity(rows, 'recording')}", wrap=False)


def _show(console: Output, store: Store, machine: str, model: MachineModel) -> None:
    for sentence in feedback_sentences(store, machine, model):
        console.write(sentence)
    from daco.detector.ranges import ANOMALOUS

    listed = store.alarms(machine, limit=1000)
    waiting = [each for each in listed if each.answer is None and each.kind == ANOMALOUS]
    if waiting:
        numbers = ", ".join(str(each.id) for each in waiting[:_LISTED])
        console.write(f"{quantity(waiting, 'alarm')} without an answer: {numbers}.")
    answers = store.people.answers(machine, _LISTED)
    if answers:
        table = Table("when", "clip", "alarm", "answer", "by", "comment", box=None)
        for each in answers:
            about = [str(each.clip_id), "" if each.alarm_id is None else str(each.alarm_id)]
            words = map(printable, (each.answer, each.answered_by, each.comment))
            table.add_row(f"{each.answered_at:%Y-%m-%d %H:%M}", *about, *words)
        console.print(table)


def feedback_sentences(store: Store, machine: str, model: MachineModel) -> list[str]:
    """Realised rates of a machine's model by the answers of people, and what was learned."""
    sentences = store.people.rates(machine, model.sha256).sentences()
    state = store.people.adaptation(machine)
    if state is None or state.model_sha256 != model.sha256:
        return sentences
    return [*sentences, state.sentence()]
