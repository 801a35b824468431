"""The HTTP service: scoring, history and alarms, and the monitoring page.

Read `app` (the application and how it is served), `middleware` (checks of every request),
`scoring` and `routes`, then what they use: `context` (the parts of a running service), `overview`
(what clients see), `registry` (model files), `workers` and `model_server` (processes that decode
and score), `recordings` (files on disk).
"""
