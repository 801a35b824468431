"""Which configuration a machine gets, from its normal clips alone, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from daco.errors import NotEnoughClipsError
from daco.method.bank import NormalBank
from daco.method.config import DEFAULT_CONFIG, blind_pool
from daco.method.criterion import CHOICE_SPLITS
from daco.text import quantity

SEED = 0


@dataclass(frozen=True)
class Choice:
    """A configuration and the evidence.

    Attributes
    ----------
    config, reason : str
    criterion : dict
        Balance criterion by configuration, in the order of the pool; empty where it could not
        be computed. Small is balanced.
    floor, noise : float or None
        What the criterion averages when the domains do not differ at all, and its sd.
    """

    config: str
    reason: str
    criterion: dict[str, float]
    floor: float | None = None
    noise: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The choice as plain JSON."""
        return {
            "pool": [{"config": name, "criterion": c} for name, c in self.criterion.items()],
            "floor": self.floor,
            "noise": self.noise,
            "n_splits": CHOICE_SPLITS,
            "seed": SEED,
        }


def choose_config(bank: NormalBank) -> Choice:
    """The pool configuration of smallest balance criterion, if the default is clearly worse.

    The pool is `daco.method.config.blind_pool`. On the paper's data no label-free pick beat the
    fixed default by more than chance, so that the default stays unless its criterion is above the
    smallest one by more than the noise: the sd of the criterion when the domains do not differ
    (:func:`daco.method.criterion.h0_floor` with ``reuse_clips``). With one domain, or one clip in a
    domain, there is nothing to compare.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.bank import NormalBank
    >>> from daco.method.autoconfig import choose_config
    >>> choose_config(NormalBank(np.random.default_rng(0).normal(size=(20, 4)))).reason
    'one domain: nothing to balance, so the fixed default'
    """
    from daco.method.floor import choice_floor

    if len(bank.domains) == 1:
        return Choice(DEFAULT_CONFIG, "one domain: nothing to balance, so the fixed default", {})
    pool = blind_pool()
    try:
        balance = bank.exact_balance(pool, CHOICE_SPLITS, SEED)
    except NotEnoughClipsError:
        name, size = min(bank.domain_sizes.items(), key=lambda item: item[1])
        few = f"{quantity(size, 'clip')} of {name}"
        return Choice(DEFAULT_CONFIG, f"too few clips to compare ({few}), so the fixed default", {})
    criterion = {
        config.name: float(value) for config, value in zip(pool, balance.values, strict=True)
    }
    floor = choice_floor(list(bank.domain_sizes.values()), CHOICE_SPLITS, SEED)
    assert floor is not None  # there are halves, so there are two clips in each of two domains
    best = pool[balance.best()].name
    default, smallest = criterion[DEFAULT_CONFIG], criterion[best]
    figures = f"floor {floor.mean:.3f}, noise {floor.sd:.3f}"
    if best == DEFAULT_CONFIG:
        chosen = best
        reason = f"smallest balance criterion of {len(pool)}: {smallest:.3f} ({figures})"
    elif default - smallest <= floor.sd:
        chosen = DEFAULT_CONFIG
        reason = (
            f"the fixed default: its balance criterion {default:.3f} is within the noise of the "
            f"smallest of {len(pool)}, {smallest:.3f} of {best} ({figures})"
        )
    else:
        chosen = best
        reason = (
            f"smallest balance criterion of {len(pool)}: {smallest:.3f}; the default has "
            f"{default:.3f} ({figures})"
        )
    return Choice(chosen, reason, criterion, floor.mean, floor.sd)
