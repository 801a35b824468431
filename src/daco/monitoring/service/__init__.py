"""The HTTP service: scoring, history and alarms, and the monitoring page.

Read `app` (the application and how it is served), `middleware` (checks of every request),
`scoring`, `reading` and `operation` (the routes), then what they use: `registry` (model files),
`workers` and `model_server` (processes that decode and score), `writer` (commits), `events` (live
events) and `overview` (what clients see).
"""
