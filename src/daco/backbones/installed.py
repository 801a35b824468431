"""Networks of other packages, found by their entry points.

A package names its network in the group ``daco.backbones``: a class, or a callable that returns a
network as :func:`daco.backbones.wrapper.wrap` takes it. Packages are looked at only where a name is
none of daco's own.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from daco.backbones.protocol import NAMES, Backbone, plugin_error
from daco.backbones.wrapper import wrap
from daco.errors import InputError, WeightsError
from daco.files.hashing import sha256_of_file
from daco.text import suggestion

GROUP = "daco.backbones"


def network_names() -> tuple[str, ...]:
    """List the names of daco's networks, then those of other packages.

    >>> network_names()[0]
    'logmel'
    """
    return (*NAMES, *sorted(entry_points(group=GROUP).names - set(NAMES)))


def load_installed(name: str, weights: Any, device: str | None, precision: str) -> Backbone:
    """The network of another package, tried out; it is given those arguments that it has."""
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        known = network_names()
        raise InputError(
            f"The backbone must be one of {', '.join(known)}, or have an entry point in the group "
            f"{GROUP} of an installed package. Got {name!r}.{suggestion(name, known)}"
        )
    package = " and ".join(f"{each.dist.name} {each.dist.version}" for each in points if each.dist)
    whose = f"The network {name!r} of {package}"
    if len(points) > 1:
        raise InputError(f"{whose} is installed more than once. Uninstall one of these packages.")
    given = {"device": device or "cpu"}
    if weights is not None:
        if not isinstance(weights, str | Path) or not Path(weights).is_file():
            raise WeightsError(f"The weights of {name!r} must be a file. Got {str(weights)!r:.99}.")
        given["weights"] = str(weights)
    try:
        with redirect_stdout(sys.stderr):  # results of commands are in stdout, such as JSON
            make = points[0].load()
            taken = inspect.signature(make).parameters
            if precision != "fp32" or ("weights" in given and "weights" not in taken):
                raise InputError(f"{whose} takes no weights, or no such precision. Leave them out.")
            given = {key: value for key, value in given.items() if key in taken}
            net = wrap(make(**given), name, package=package)
    except (Exception, SystemExit) as error:
        raise plugin_error(name, package, error) from None
    if "weights" in given:
        net.weights_sha256 = sha256_of_file(Path(weights))
    net.device = given.get("device", net.device)
    return net
