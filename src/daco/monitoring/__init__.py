"""A detector in the field: new recordings are judged, stored and turned into alarms.

Read `alarms` (the rule) and `engine` (the one way of every recording) first, then `store` (the
database), `sources`, `notify` (messages) and `service` (HTTP and the page).
"""
