"""Settings of the whole suite."""

from __future__ import annotations

import os

# scikit-learn skips one of its estimator checks without it; SciPy reads it at import.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

from hypothesis import HealthCheck, settings

# The same examples on every computer: what `make test` says does not depend on luck.
settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
# New examples on every run: `make fuzz`.
settings.register_profile(
    "fuzz", settings.get_profile("default"), derandomize=False, print_blob=True
)
settings.load_profile("default")
