"""The authors' published result files; read where they lie, copied nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from shared_data import shared

FILES = {
    "45": ("e3_config_grid.csv", "e3_per_machine.csv"),
    "beats": ("e45_beats_grid.csv", "e45_beats_per_machine.csv"),
    "eat": ("e45_eat_grid.csv", "e45_eat_per_machine.csv"),
    "panns": ("e45_panns_grid.csv", "e45_panns_per_machine.csv"),
    "2023": ("rep_2023_grid.csv", "rep_2023_per_machine.csv"),
    "2024": ("rep_2024_grid.csv", "rep_2024_per_machine.csv"),
    "2025": ("e45_beats_grid.csv", "e45_beats_per_machine.csv"),
}
POLICIES = ("ch0", "mix")
SETTINGS = ("2023", "2024", "beats", "eat", "panns", *POLICIES)
"""The seven settings whose evaluation scores are published."""


def results(name: str) -> Path:
    return shared("published", "daco-experiments", "results", name)


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(results(name))


def statistics(name: str) -> dict:
    return json.loads(results(name).read_text())


def tables(setting: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Grid and per-machine table; of 2026 one channel policy, dev and evaluation machines."""
    if setting not in POLICIES:
        grid, per_machine = FILES[setting]
        return read(grid), read(per_machine)
    grid = read("e8_2026_grid.csv")
    parts = [
        read(f"{stem}_per_machine_{setting}.csv").assign(split=split)
        for stem, split in (("prereg2026", "dev"), ("e8_2026", "eval"))
    ]
    one = grid[grid["policy"] == setting].drop(columns="policy").reset_index(drop=True)
    return one, pd.concat(parts, ignore_index=True).drop(columns="policy")
