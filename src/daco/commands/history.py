"""``daco history``: the database of a plant: counts, backup, restore, old recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from daco.commands.console import Output
from daco.commands.options import flag, option
from daco.commands.plant import PlantPath, monitor_packages
from daco.text import quantity


def history(
    plant: PlantPath = Path("."),
    backup: Annotated[Path | None, option("Copy the database to this file.")] = None,
    restore: Annotated[Path | None, option("Restore this copy. Stop the monitor before.")] = None,
    prune: Annotated[bool, flag("--prune", "Delete what daco.toml keeps no longer.")] = False,
) -> None:
    """Show how many recordings a plant has judged, and save, restore or shorten its history.

    The monitor deletes old recordings on its own. It refuses to delete most of them at once, since
    a wrong clock would have the same effect. If that is what you want, --prune does it.
    """
    with monitor_packages():
        from daco.monitoring.config import PlantConfig
        from daco.monitoring.store import Store, retention

    console = Output()
    config = PlantConfig.load(plant)
    if restore is not None:
        retention.restore(restore, config.service.database)
        console.write(f"Restored from {restore}.", wrap=False)
    with Store.open(config.service.database, create=False) as store:
        if backup is not None:
            retention.backup(store.database, backup)
            console.write(f"{backup}: copied.", wrap=False)
        if prune:
            removal = retention.prune(store.database, config.keep_of, force=True)
            console.write(f"Deleted {quantity(removal.clips, 'recording')}.")
        rows = [vars(each) for each in store.machines_summary()]
    numbers = {"clips": "recordings", "anomalous": "anomalous", "open_alarms": "open alarms"}
    console.table(rows, ["machine"], numbers)
    if not rows:
        console.write("No recording has been judged yet.")
