"""``daco feedback``: what people say about a machine's recordings and alarms."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated, Literal

from daco.commands.console import Output
from daco.commands.options import argument, flag, option
from daco.commands.plant import PlantOrModel, monitor_packages, read_plant
from daco.errors import InputError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.monitoring.store import Store

_LISTED = 20


def feedback(
    plant: PlantOrModel,
    what: Annotated[
        Literal["false-alarm", "fault"] | None,
        argument("Answer false-alarm or fault. Without it, daco lists alarms, answers and rates."),
    ] = None,
    machine: Annotated[str | None, option("Name the machine, if the plant has several.")] = None,
    clip: Annotated[int | None, option("Answer for the recording with this number.", min=1)] = None,
    alarm: Annotated[int | None, option("Answer for the alarm with this number.", min=1)] = None,
    by: Annotated[str | None, option("Give your name. The default is the user name.")] = None,
    comment: Annotated[str, option("Describe what you found and did.")] = "",
    commission: Annotated[
        int | None, option("Declare the machine healthy for this many recordings.", min=10)
    ] = None,
    reset: Annotated[bool, flag("--reset", "Forget everything learned.")] = False,
) -> None:
    """Answer whether a recording or an alarm was a fault, and show the realised rates.

    The answers move the alarm limit where the machine adapts (adapt = true in daco.toml) or was
    declared healthy. daco never learns from faults. The last answer counts.
    """
    with monitor_packages():
        from daco.detector.model import MachineModel
        from daco.monitoring.store import Person, Store

    console = Output()
    if (what is None) != (clip is None and alarm is None) or (clip and alarm):
        raise InputError("Give false-alarm or fault, and the number of one clip or of one alarm.")
    config = read_plant(plant)
    name = _one_machine(list(config.machine), machine)
    who = Person(by or (_user() if what or commission or reset else ""), "command line")
    model = MachineModel.load(config.machine[name].model)
    with Store.open(config.service.database, create=commission is not None) as store:
        if what is not None:
            found = store.clip(clip) if clip else store.alarm(alarm or 0)
            if found is None or found.machine != name:
                which = f"clip {clip}" if clip else f"alarm {alarm}"
                raise InputError(f"{name} has no {which} in {store.database.label}.")
            record = store.people.answer_clip if clip else store.people.answer_alarm
            record(found.id, what.replace("-", " "), who, comment)
        if reset:
            done = store.people.reset(name, who)
            words = "What was learned is forgotten" if done else "Nothing was learned"
            console.write(f"{words}. The model alone decides.")
        if commission is not None:
            store.people.declare_healthy(
                name, commission, who, model_sha256=model.sha256, rate=model.false_alarm_rate
            )
        _show(console, store, name, model)


def _one_machine(known: list[str], name: str | None) -> str:
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


def _show(console: Output, store: Store, machine: str, model: MachineModel) -> None:
    from daco.monitoring.alarms import FAULT

    console.write(*store.rates(machine, model.sha256).sentences())
    learned = store.adaptations(machine).get(machine)
    if learned is not None and learned.model_sha256 == model.sha256:
        console.write(learned.sentence())
    listed = store.alarms(machine, limit=1000)
    waiting = [each for each in listed if each.answer is None and each.kind == FAULT]
    if waiting:
        numbers = ", ".join(str(each.id) for each in waiting[:_LISTED])
        console.write(f"{quantity(waiting, 'alarm')} without an answer: {numbers}.")
    rows = [
        {
            "when": f"{each.at.astimezone():%Y-%m-%d %H:%M}",
            "about": each.target,
            "answer": each.action.removeprefix("answer "),
            "by": each.who,
            "comment": each.detail or "",
        }
        for each in store.answers(machine, _LISTED)
    ]
    console.table(rows, ["when", "about", "answer", "by", "comment"])
