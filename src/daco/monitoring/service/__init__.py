"""The service: HTTP, people and the page, over a plant's engine.

Read `app` (how it is put together), `connections` and `guard` (what a request passes), `access`
(who it comes from), `context` (what routes are given), `scoring` and `shares` (uploads), `routes`,
`schemas` and `overview` (what clients see and do), `operation` (sessions and health).
"""
