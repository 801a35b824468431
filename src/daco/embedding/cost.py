"""What embedding a table took, noted beside it: time does not belong into the table's bytes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from daco.errors import DataError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, parse_location

if TYPE_CHECKING:  # a study reads what embedding took, and needs no libraries of sound for it
    from daco.backbones.protocol import Backbone
    from daco.embedding.embed import EmbedReport

SUFFIX = ".cost.json"


def cost_file(table: Location | str) -> Location:
    """Where the cost of a table is noted: ``emb.cost.json`` for ``emb.parquet``."""
    return parse_location(table).with_suffix(SUFFIX)


def write_cost(report: EmbedReport, net: Backbone) -> None:
    """Note what a run took; one that found everything done has measured nothing."""
    if not report.embedded:
        return
    cost = {
        "backbone": net.name,
        "parameters": net.parameters,
        "device": net.device,
        "precision": net.precision,
        "clips": report.embedded,
        "seconds": round(report.seconds, 3),
        "ms_per_clip": round(1000 * report.seconds / report.embedded, 4),
        "peak_memory": peak_memory(),
    }
    with atomic_write(cost_file(report.out)) as temporary:
        temporary.write_text(json.dumps(cost, indent=1) + "\n", encoding="utf-8")


def read_cost(table: Location | str) -> dict[str, Any] | None:
    """What was noted beside a table, or None."""
    path = cost_file(table)
    if not path.is_file():
        return None
    try:
        cost = json.loads(path.read_text(encoding="utf-8"))
        return {**cost, "ms_per_clip": float(cost["ms_per_clip"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} was not written by 'daco embed' ({error}). Delete it.") from None


def peak_memory() -> int:
    """Bytes this process has held at most; 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
