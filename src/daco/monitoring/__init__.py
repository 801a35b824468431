"""A detector in the field: new recordings are judged, stored and turned into alarms.

Read `alarms` (the rule), `adaptation`, `feedback` and `drift` first, then `store` (the database),
`arrivals` and `watch` (recordings in a folder), `notify` (webhooks), and `service` (scoring over
HTTP, and the page).
"""
