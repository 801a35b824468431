"""The service: scoring over HTTP, history and alarms, and the page to look at.

``create_app`` of `daco.monitoring.service.app` makes the application, `daco.monitoring.service.run`
serves it. Decoding and scoring happen in worker processes (`worker`, forked by `nursery`, handed
out by `pool`), every answer is committed before it is given (`writer`), and `guard` stands before
all of it.
"""
