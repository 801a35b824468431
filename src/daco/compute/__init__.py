"""Where work is done: in this process, in others on this computer, or on a Ray cluster.

`run` calls a function for many items; `device` names the torch device of a network.
"""

from daco.compute.parallel import jobs_for as jobs_for
from daco.compute.parallel import require_engine as require_engine
from daco.compute.parallel import run as run
