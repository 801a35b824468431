BEGIN TRANSACTION;
CREATE TABLE daco_alarms (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	machine_id INTEGER, 
	changed INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	rule TEXT NOT NULL, 
	clip_id INTEGER, 
	clip_ids JSON NOT NULL, 
	n_clips INTEGER NOT NULL, 
	opened_at DATETIME NOT NULL, 
	last_at DATETIME NOT NULL, 
	cleared_at DATETIME, 
	acknowledged_at DATETIME, 
	shelved_until DATETIME, 
	cleared_by TEXT, 
	acknowledged_by TEXT, 
	comment TEXT, 
	answer TEXT, 
	cause TEXT NOT NULL, 
	detail TEXT, 
	FOREIGN KEY(machine_id) REFERENCES daco_machines (id)
);
INSERT INTO "daco_alarms" VALUES(1,1,7,'fault','2 of 3',4,'[3, 4]',3,'2026-03-01 12:03:00.000000','2026-03-01 12:04:00.000000',NULL,'2026-11-18 20:37:16.324103',NULL,NULL,'Kim','bearing 2','fault','',NULL);
INSERT INTO "daco_alarms" VALUES(2,1,11,'no recordings','',NULL,'[]',0,'2026-11-18 20:37:16.422485','2026-11-18 20:37:16.422485',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'recordings','Nothing came.');
INSERT INTO "daco_alarms" VALUES(3,NULL,12,'daco','',NULL,'[]',0,'2026-11-18 20:37:16.443675','2026-11-18 20:37:16.443675',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'disk','The disk is full.');
CREATE TABLE daco_audit (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DATETIME NOT NULL, 
	who TEXT NOT NULL, 
	role TEXT NOT NULL, 
	action TEXT NOT NULL, 
	machine TEXT, 
	target TEXT, 
	detail TEXT
);
INSERT INTO "daco_audit" VALUES(1,'2026-11-18 20:37:16.323526','Kim','operator','acknowledge','press','alarm 1','bearing 2');
INSERT INTO "daco_audit" VALUES(2,'2026-11-18 20:37:16.340049','Kim','operator','answer fault','press','alarm 1','bearing 2');
INSERT INTO "daco_audit" VALUES(3,'2026-11-18 20:37:16.355571','Kim','operator','note','press','note 1','bearing changed: Lager getauscht – 100 µm');
INSERT INTO "daco_audit" VALUES(4,'2026-11-18 20:37:16.371068','Kim','operator','out of service','fan',NULL,'overhaul');
INSERT INTO "daco_audit" VALUES(5,'2026-11-18 20:37:16.478983','Kim','operator','declare healthy','press',NULL,'for 20 recordings');
CREATE TABLE daco_clips (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	machine_id INTEGER NOT NULL, 
	changed INTEGER NOT NULL, 
	time DATETIME NOT NULL, 
	received_at DATETIME NOT NULL, 
	recorded_at DATETIME, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	nearest TEXT NOT NULL, 
	basis TEXT NOT NULL, 
	model_sha256 TEXT NOT NULL, 
	anomalous BOOLEAN NOT NULL, 
	extrapolated BOOLEAN NOT NULL, 
	oddness DOUBLE NOT NULL, 
	p_value DOUBLE NOT NULL, 
	score DOUBLE NOT NULL, 
	threshold DOUBLE NOT NULL, 
	nearest_distance DOUBLE NOT NULL, 
	supported_rate DOUBLE NOT NULL, 
	seconds DOUBLE, 
	worst_window DOUBLE, 
	windows INTEGER NOT NULL, 
	domain_weights JSON NOT NULL, 
	reasons JSON NOT NULL, 
	views JSON NOT NULL, 
	findings JSON, 
	audio_sha256 TEXT, 
	audio_path TEXT, 
	answer TEXT, 
	FOREIGN KEY(machine_id) REFERENCES daco_machines (id)
);
INSERT INTO "daco_clips" VALUES(1,1,1,'2026-03-01 11:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 11:00:00.000000','0.wav','normal','normal_7.wav','of 60 normals','abababababababababababababababababababababababababababababababab',0,0,0.301,0.5,1.0,2.5,0.125,0.0,10.0,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{"mod": 1.5}',NULL,'0000000000000000000000000000000000000000000000000000000000000000',NULL,NULL);
INSERT INTO "daco_clips" VALUES(2,1,2,'2026-03-01 11:01:00.000000','2026-03-01 12:01:00.000000','2026-03-01 11:01:00.000000','1.wav','normal','normal_7.wav','of 60 normals','abababababababababababababababababababababababababababababababab',0,0,0.301,0.5,1.0,2.5,0.125,0.0,10.0,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{"mod": 1.5}',NULL,'0000000000000000000000000000000000000000000000000000000000000001',NULL,NULL);
INSERT INTO "daco_clips" VALUES(3,1,7,'2026-03-01 11:02:00.000000','2026-03-01 12:02:00.000000','2026-03-01 11:02:00.000000','2.wav','anomalous','normal_7.wav','of 60 normals','abababababababababababababababababababababababababababababababab',1,0,2.0,0.01,3.0,2.5,0.125,0.0,10.0,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{"mod": 1.5}',NULL,'0000000000000000000000000000000000000000000000000000000000000002',NULL,'fault');
INSERT INTO "daco_clips" VALUES(4,1,7,'2026-03-01 11:03:00.000000','2026-03-01 12:03:00.000000','2026-03-01 11:03:00.000000','3.wav','anomalous','normal_7.wav','of 60 normals','abababababababababababababababababababababababababababababababab',1,0,2.0,0.01,3.0,2.5,0.125,0.0,10.0,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{"mod": 1.5}','[{"kind": "tone", "text": "A tone at 5 kHz."}]','0000000000000000000000000000000000000000000000000000000000000003',NULL,'fault');
INSERT INTO "daco_clips" VALUES(5,1,7,'2026-03-01 11:04:00.000000','2026-03-01 12:04:00.000000','2026-03-01 11:04:00.000000','4.wav','anomalous','normal_7.wav','of 60 normals','abababababababababababababababababababababababababababababababab',1,0,2.0,0.01,3.0,2.5,0.125,0.0,10.0,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{"mod": 1.5}',NULL,'0000000000000000000000000000000000000000000000000000000000000004',NULL,'fault');
INSERT INTO "daco_clips" VALUES(6,1,6,'2026-03-01 11:05:00.000000','2026-03-01 12:05:00.000000','2026-03-01 11:05:00.000000','5.wav','normal','normal_7.wav','of 60 normals','abababababababababababababababababababababababababababababababab',0,0,0.301,0.5,1.0,2.5,0.125,0.0,10.0,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{"mod": 1.5}',NULL,'0000000000000000000000000000000000000000000000000000000000000005',NULL,NULL);
INSERT INTO "daco_clips" VALUES(7,2,10,'2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,'a.wav','out of range','normal_7.wav','','abababababababababababababababababababababababababababababababab',1,0,2.0,0.01,3.0,2.5,0.125,0.0,NULL,NULL,1,'{"source": 0.25, "target": 0.75}','["clipped"]','{}',NULL,NULL,NULL,NULL);
INSERT INTO "daco_clips" VALUES(8,1,15,'2026-03-01 12:10:00.000000','2026-03-01 12:10:00.000000',NULL,'a.wav','normal','normal_7.wav','','abababababababababababababababababababababababababababababababab',0,0,0.0,1.0,1.0,91.0,0.125,9.90099009900990111032e-03,10.0,NULL,1,'{"source": 1.0}','["clipped"]','{}',NULL,NULL,NULL,NULL);
CREATE TABLE daco_machines (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	clips INTEGER NOT NULL, 
	anomalous INTEGER NOT NULL, 
	changed INTEGER NOT NULL, 
	last_clip_id INTEGER, 
	recent JSON NOT NULL, 
	evidence JSON NOT NULL, 
	adaptation JSON, 
	out_of_service_since DATETIME, 
	out_of_service_by TEXT, 
	UNIQUE (name)
);
INSERT INTO "daco_machines" VALUES(1,'press',7,3,15,8,'{"fault": [[5, true], [6, false], [8, false]]}','{"model": "abababababababababababababababababababababababababababababababab"}','{"model_sha256": "abababababababababababababababababababababababababababababababab", "rate": 0.1, "shifts": {"source": -0.005000000000000001}, "clips": 1, "since": "2026-03-01T12:10:00Z", "healthy": [[8, 1.0, "source"]], "left": 19, "declared_after": 6, "declared_at": "2026-11-18T20:37:16Z", "declared_by": "Kim", "recent": 0.098, "normals_to_wait": 0, "last_fault": 0, "moves": {}}',NULL,NULL);
INSERT INTO "daco_machines" VALUES(2,'fan',1,1,10,7,'{}','{}',NULL,'2026-11-18 20:37:16.371060','Kim');
CREATE TABLE daco_notes (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	machine_id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	text TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	FOREIGN KEY(machine_id) REFERENCES daco_machines (id)
);
INSERT INTO "daco_notes" VALUES(1,1,'2026-03-01 12:00:00.000000','bearing changed: Lager getauscht – 100 µm','Kim');
CREATE TABLE daco_outbox (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	"key" TEXT NOT NULL, 
	receiver TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	priority INTEGER NOT NULL, 
	body JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	due_at DATETIME NOT NULL, 
	attempts INTEGER NOT NULL, 
	refused_at DATETIME, 
	last_error TEXT, 
	UNIQUE ("key")
);
INSERT INTO "daco_outbox" VALUES(1,'c558cd89be6d4b44ba618928cd1c7ed0','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:00:00Z", "data": {"machine": "press", "clip": {"name": "0.wav", "machine": "press", "score": 1.0, "p_value": 0.5, "oddness": 0.301, "anomalous": false, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "normal", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 1, "time": "2026-03-01T11:00:00Z", "received_at": "2026-03-01T12:00:00Z", "recorded_at": "2026-03-01T11:00:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000000", "answer": null, "findings": null, "changed": 1}}}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(2,'c8b866ef32524511a964307cc58926d9','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:00:00Z", "data": {"machine": "press", "clip": {"name": "0.wav", "machine": "press", "score": 1.0, "p_value": 0.5, "oddness": 0.301, "anomalous": false, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "normal", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 1, "time": "2026-03-01T11:00:00Z", "received_at": "2026-03-01T12:00:00Z", "recorded_at": "2026-03-01T11:00:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000000", "answer": null, "findings": null, "changed": 1}}}','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(3,'0dcf47e283bb407f9c12c0229e4cd3c7','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:01:00Z", "data": {"machine": "press", "clip": {"name": "1.wav", "machine": "press", "score": 1.0, "p_value": 0.5, "oddness": 0.301, "anomalous": false, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "normal", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 2, "time": "2026-03-01T11:01:00Z", "received_at": "2026-03-01T12:01:00Z", "recorded_at": "2026-03-01T11:01:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000001", "answer": null, "findings": null, "changed": 2}}}','2026-03-01 12:01:00.000000','2026-03-01 12:01:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(4,'6500bdccfcc14b5facfedb446e33fef0','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:01:00Z", "data": {"machine": "press", "clip": {"name": "1.wav", "machine": "press", "score": 1.0, "p_value": 0.5, "oddness": 0.301, "anomalous": false, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "normal", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 2, "time": "2026-03-01T11:01:00Z", "received_at": "2026-03-01T12:01:00Z", "recorded_at": "2026-03-01T11:01:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000001", "answer": null, "findings": null, "changed": 2}}}','2026-03-01 12:01:00.000000','2026-03-01 12:01:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(5,'1ed8b4be9abc42158f7cf957988b9d13','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:02:00Z", "data": {"machine": "press", "clip": {"name": "2.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 3, "time": "2026-03-01T11:02:00Z", "received_at": "2026-03-01T12:02:00Z", "recorded_at": "2026-03-01T11:02:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000002", "answer": null, "findings": null, "changed": 3}}}','2026-03-01 12:02:00.000000','2026-03-01 12:02:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(6,'1cf277b7dd86428793287455f3e3fc62','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:02:00Z", "data": {"machine": "press", "clip": {"name": "2.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 3, "time": "2026-03-01T11:02:00Z", "received_at": "2026-03-01T12:02:00Z", "recorded_at": "2026-03-01T11:02:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000002", "answer": null, "findings": null, "changed": 3}}}','2026-03-01 12:02:00.000000','2026-03-01 12:02:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(7,'16845dccad464258a46eafdea731ff9f','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:03:00Z", "data": {"machine": "press", "clip": {"name": "3.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 4, "time": "2026-03-01T11:03:00Z", "received_at": "2026-03-01T12:03:00Z", "recorded_at": "2026-03-01T11:03:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000003", "answer": null, "findings": [{"kind": "tone", "text": "A tone at 5 kHz."}], "changed": 4}}}','2026-03-01 12:03:00.000000','2026-03-01 12:03:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(8,'33a1c7a6f1a0433e9bdbe10b65d53556','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:03:00Z", "data": {"machine": "press", "clip": {"name": "3.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 4, "time": "2026-03-01T11:03:00Z", "received_at": "2026-03-01T12:03:00Z", "recorded_at": "2026-03-01T11:03:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000003", "answer": null, "findings": [{"kind": "tone", "text": "A tone at 5 kHz."}], "changed": 4}}}','2026-03-01 12:03:00.000000','2026-03-01 12:03:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(9,'e63a9d852c7d48d99ea4ae031a8f88b2','mail','alarm.opened',0,'{"type": "alarm.opened", "timestamp": "2026-03-01T12:03:00Z", "data": {"alarm": {"id": 1, "machine": "press", "kind": "fault", "state": "active", "rule": "2 of 3", "clip_id": 4, "clip_ids": [3, 4], "n_clips": 2, "opened_at": "2026-03-01T12:03:00Z", "last_at": "2026-03-01T12:03:00Z", "cleared_at": null, "cleared_by": null, "acknowledged_at": null, "acknowledged_by": null, "shelved_until": null, "comment": null, "answer": null, "detail": null, "changed": 4}, "machine": "press", "clip": {"name": "3.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 4, "time": "2026-03-01T11:03:00Z", "received_at": "2026-03-01T12:03:00Z", "recorded_at": "2026-03-01T11:03:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000003", "answer": null, "findings": [{"kind": "tone", "text": "A tone at 5 kHz."}], "changed": 4}}}','2026-03-01 12:03:00.000000','2026-11-18 20:38:16.526444',1,'2026-11-18 20:37:16.537038','answered 410');
INSERT INTO "daco_outbox" VALUES(10,'3028cbe55b8c48e79030ae8bf70b4299','hook','alarm.opened',0,'{"type": "alarm.opened", "timestamp": "2026-03-01T12:03:00Z", "data": {"alarm": {"id": 1, "machine": "press", "kind": "fault", "state": "active", "rule": "2 of 3", "clip_id": 4, "clip_ids": [3, 4], "n_clips": 2, "opened_at": "2026-03-01T12:03:00Z", "last_at": "2026-03-01T12:03:00Z", "cleared_at": null, "cleared_by": null, "acknowledged_at": null, "acknowledged_by": null, "shelved_until": null, "comment": null, "answer": null, "detail": null, "changed": 4}, "machine": "press", "clip": {"name": "3.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 4, "time": "2026-03-01T11:03:00Z", "received_at": "2026-03-01T12:03:00Z", "recorded_at": "2026-03-01T11:03:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000003", "answer": null, "findings": [{"kind": "tone", "text": "A tone at 5 kHz."}], "changed": 4}}}','2026-03-01 12:03:00.000000','2026-03-01 12:03:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(11,'ae31938f373a4fc1917ac4c5e5105c69','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:04:00Z", "data": {"machine": "press", "clip": {"name": "4.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 5, "time": "2026-03-01T11:04:00Z", "received_at": "2026-03-01T12:04:00Z", "recorded_at": "2026-03-01T11:04:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000004", "answer": null, "findings": null, "changed": 5}}}','2026-03-01 12:04:00.000000','2026-03-01 12:04:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(12,'d99041ef10ca48f29fc1878a9702fe33','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:04:00Z", "data": {"machine": "press", "clip": {"name": "4.wav", "machine": "press", "score": 3.0, "p_value": 0.01, "oddness": 2.0, "anomalous": true, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "anomalous", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 5, "time": "2026-03-01T11:04:00Z", "received_at": "2026-03-01T12:04:00Z", "recorded_at": "2026-03-01T11:04:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000004", "answer": null, "findings": null, "changed": 5}}}','2026-03-01 12:04:00.000000','2026-03-01 12:04:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(13,'7aed98aad1d740b4af6f7bd7e57031a2','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:05:00Z", "data": {"machine": "press", "clip": {"name": "5.wav", "machine": "press", "score": 1.0, "p_value": 0.5, "oddness": 0.301, "anomalous": false, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "normal", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 6, "time": "2026-03-01T11:05:00Z", "received_at": "2026-03-01T12:05:00Z", "recorded_at": "2026-03-01T11:05:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000005", "answer": null, "findings": null, "changed": 6}}}','2026-03-01 12:05:00.000000','2026-03-01 12:05:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(14,'bad9c494df374bc79160917b28856bd7','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:05:00Z", "data": {"machine": "press", "clip": {"name": "5.wav", "machine": "press", "score": 1.0, "p_value": 0.5, "oddness": 0.301, "anomalous": false, "threshold": 2.5, "domain_weights": {"source": 0.25, "target": 0.75}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "of 60 normals", "state": "normal", "views": {"mod": 1.5}, "extrapolated": false, "supported_rate": 0.0, "id": 6, "time": "2026-03-01T11:05:00Z", "received_at": "2026-03-01T12:05:00Z", "recorded_at": "2026-03-01T11:05:00Z", "audio_sha256": "0000000000000000000000000000000000000000000000000000000000000005", "answer": null, "findings": null, "changed": 6}}}','2026-03-01 12:05:00.000000','2026-03-01 12:05:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(15,'4dce42b442694627a13df20ad9737d79','mail','alarm.opened',0,'{"type": "alarm.opened", "timestamp": "2026-11-18T20:37:16.422485Z", "data": {"machine": "press", "alarm": {"id": 2, "machine": "press", "kind": "no recordings", "state": "active", "rule": "", "clip_id": null, "clip_ids": [], "n_clips": 0, "opened_at": "2026-11-18T20:37:16.422485Z", "last_at": "2026-11-18T20:37:16.422485Z", "cleared_at": null, "cleared_by": null, "acknowledged_at": null, "acknowledged_by": null, "shelved_until": null, "comment": null, "answer": null, "detail": "Nothing came.", "changed": 11}}}','2026-11-18 20:37:16.422485','2026-11-18 20:37:16.422485',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(16,'4ec2ea4c1a524398aab57c8c30e45b5f','hook','alarm.opened',0,'{"type": "alarm.opened", "timestamp": "2026-11-18T20:37:16.422485Z", "data": {"machine": "press", "alarm": {"id": 2, "machine": "press", "kind": "no recordings", "state": "active", "rule": "", "clip_id": null, "clip_ids": [], "n_clips": 0, "opened_at": "2026-11-18T20:37:16.422485Z", "last_at": "2026-11-18T20:37:16.422485Z", "cleared_at": null, "cleared_by": null, "acknowledged_at": null, "acknowledged_by": null, "shelved_until": null, "comment": null, "answer": null, "detail": "Nothing came.", "changed": 11}}}','2026-11-18 20:37:16.422485','2026-11-18 20:37:16.422485',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(17,'739424facb164460a406728fc321d30d','mail','alarm.opened',0,'{"type": "alarm.opened", "timestamp": "2026-11-18T20:37:16.443675Z", "data": {"machine": null, "alarm": {"id": 3, "machine": null, "kind": "daco", "state": "active", "rule": "", "clip_id": null, "clip_ids": [], "n_clips": 0, "opened_at": "2026-11-18T20:37:16.443675Z", "last_at": "2026-11-18T20:37:16.443675Z", "cleared_at": null, "cleared_by": null, "acknowledged_at": null, "acknowledged_by": null, "shelved_until": null, "comment": null, "answer": null, "detail": "The disk is full.", "changed": 12}}}','2026-11-18 20:37:16.443675','2026-11-18 20:37:16.443675',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(18,'678236aabda74956ace3956c1c09c237','hook','alarm.opened',0,'{"type": "alarm.opened", "timestamp": "2026-11-18T20:37:16.443675Z", "data": {"machine": null, "alarm": {"id": 3, "machine": null, "kind": "daco", "state": "active", "rule": "", "clip_id": null, "clip_ids": [], "n_clips": 0, "opened_at": "2026-11-18T20:37:16.443675Z", "last_at": "2026-11-18T20:37:16.443675Z", "cleared_at": null, "cleared_by": null, "acknowledged_at": null, "acknowledged_by": null, "shelved_until": null, "comment": null, "answer": null, "detail": "The disk is full.", "changed": 12}}}','2026-11-18 20:37:16.443675','2026-11-18 20:37:16.443675',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(19,'db2994a3130f4f8a9344cc778a6e68a7','mail','recording.refused',2,'{"type": "recording.refused", "timestamp": "2026-11-18T20:37:16.465157Z", "data": {"machine": "press", "name": "x.wav", "reason": "It is empty."}}','2026-11-18 20:37:16.465157','2026-11-18 20:37:16.465157',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(20,'23d5cbcab73447db8b87a3a71548a4ca','hook','recording.refused',2,'{"type": "recording.refused", "timestamp": "2026-11-18T20:37:16.465157Z", "data": {"machine": "press", "name": "x.wav", "reason": "It is empty."}}','2026-11-18 20:37:16.465157','2026-11-18 20:37:16.465157',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(21,'9f3f21545310417bb657227534aa091d','mail','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:10:00Z", "data": {"machine": "press", "clip": {"name": "a.wav", "machine": "press", "score": 1.0, "p_value": 1.0, "oddness": 0.0, "anomalous": false, "threshold": 91.0, "domain_weights": {"source": 1.0}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "", "state": "normal", "views": {}, "extrapolated": false, "supported_rate": 0.009900990099009901, "id": 8, "time": "2026-03-01T12:10:00Z", "received_at": "2026-03-01T12:10:00Z", "recorded_at": null, "audio_sha256": null, "answer": null, "findings": null, "changed": 15}}}','2026-03-01 12:10:00.000000','2026-03-01 12:10:00.000000',0,NULL,NULL);
INSERT INTO "daco_outbox" VALUES(22,'d814970d9bb84c2daa348a2c554cd0b3','hook','clip.scored',2,'{"type": "clip.scored", "timestamp": "2026-03-01T12:10:00Z", "data": {"machine": "press", "clip": {"name": "a.wav", "machine": "press", "score": 1.0, "p_value": 1.0, "oddness": 0.0, "anomalous": false, "threshold": 91.0, "domain_weights": {"source": 1.0}, "nearest": "normal_7.wav", "nearest_distance": 0.125, "reasons": ["clipped"], "seconds": 10.0, "windows": 1, "worst_window": null, "model_sha256": "abababababababababababababababababababababababababababababababab", "basis": "", "state": "normal", "views": {}, "extrapolated": false, "supported_rate": 0.009900990099009901, "id": 8, "time": "2026-03-01T12:10:00Z", "received_at": "2026-03-01T12:10:00Z", "recorded_at": null, "audio_sha256": null, "answer": null, "findings": null, "changed": 15}}}','2026-03-01 12:10:00.000000','2026-03-01 12:10:00.000000',0,NULL,NULL);
CREATE TABLE daco_schema (
	name TEXT NOT NULL, 
	value INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "daco_schema" VALUES('version',3);
INSERT INTO "daco_schema" VALUES('change',15);
INSERT INTO "daco_schema" VALUES('heartbeat',0);
CREATE TABLE daco_sources (
	machine_id INTEGER NOT NULL, 
	source_key TEXT NOT NULL, 
	audio_sha256 TEXT, 
	stamp TEXT, 
	reason TEXT, 
	clip_id INTEGER, 
	seen_at DATETIME NOT NULL, 
	PRIMARY KEY (machine_id, source_key), 
	FOREIGN KEY(machine_id) REFERENCES daco_machines (id)
)
 WITHOUT ROWID

;
INSERT INTO "daco_sources" VALUES(1,'in/0.wav','0000000000000000000000000000000000000000000000000000000000000000','0:1:1',NULL,1,'2026-03-01 12:00:00.000000');
INSERT INTO "daco_sources" VALUES(1,'in/1.wav','0000000000000000000000000000000000000000000000000000000000000001','1:1:1',NULL,2,'2026-03-01 12:01:00.000000');
INSERT INTO "daco_sources" VALUES(1,'in/2.wav','0000000000000000000000000000000000000000000000000000000000000002','2:1:1',NULL,3,'2026-03-01 12:02:00.000000');
INSERT INTO "daco_sources" VALUES(1,'in/3.wav','0000000000000000000000000000000000000000000000000000000000000003','3:1:1',NULL,4,'2026-03-01 12:03:00.000000');
INSERT INTO "daco_sources" VALUES(1,'in/4.wav','0000000000000000000000000000000000000000000000000000000000000004','4:1:1',NULL,5,'2026-03-01 12:04:00.000000');
INSERT INTO "daco_sources" VALUES(1,'in/5.wav','0000000000000000000000000000000000000000000000000000000000000005','5:1:1',NULL,6,'2026-03-01 12:05:00.000000');
INSERT INTO "daco_sources" VALUES(1,'in/x.wav',NULL,'9:9:9','It is empty.',NULL,'2026-11-18 20:37:16.465157');
CREATE TABLE daco_trends (
	machine_id INTEGER NOT NULL, 
	period TEXT NOT NULL, 
	start DATETIME NOT NULL, 
	clips INTEGER NOT NULL, 
	judged INTEGER NOT NULL, 
	anomalous INTEGER NOT NULL, 
	oddness_sum DOUBLE NOT NULL, 
	oddness_max DOUBLE, 
	PRIMARY KEY (machine_id, period, start), 
	FOREIGN KEY(machine_id) REFERENCES daco_machines (id)
)
 WITHOUT ROWID

;
INSERT INTO "daco_trends" VALUES(1,'day','2026-03-01 00:00:00.000000',7,7,3,6.90300000000000046895e+00,2.0);
INSERT INTO "daco_trends" VALUES(1,'hour','2026-03-01 11:00:00.000000',6,6,3,6.90300000000000046895e+00,2.0);
INSERT INTO "daco_trends" VALUES(1,'hour','2026-03-01 12:00:00.000000',1,1,0,0.0,0.0);
INSERT INTO "daco_trends" VALUES(2,'day','2026-03-01 00:00:00.000000',1,0,0,0.0,NULL);
INSERT INTO "daco_trends" VALUES(2,'hour','2026-03-01 12:00:00.000000',1,0,0,0.0,NULL);
CREATE INDEX daco_outbox_next ON daco_outbox (receiver, priority, id);
CREATE INDEX daco_clips_by_time ON daco_clips (machine_id, time, anomalous, id);
CREATE INDEX ix_daco_clips_changed ON daco_clips (changed);
CREATE INDEX ix_daco_clips_audio_sha256 ON daco_clips (audio_sha256);
CREATE INDEX daco_clips_by_arrival ON daco_clips (machine_id, id);
CREATE INDEX ix_daco_alarms_changed ON daco_alarms (changed);
CREATE INDEX daco_alarms_by_machine ON daco_alarms (machine_id, id);
CREATE INDEX daco_alarms_open ON daco_alarms (machine_id) WHERE cleared_at IS NULL;
CREATE INDEX daco_notes_by_time ON daco_notes (machine_id, at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('daco_machines',2);
INSERT INTO "sqlite_sequence" VALUES('daco_clips',8);
INSERT INTO "sqlite_sequence" VALUES('daco_outbox',22);
INSERT INTO "sqlite_sequence" VALUES('daco_alarms',3);
INSERT INTO "sqlite_sequence" VALUES('daco_audit',5);
INSERT INTO "sqlite_sequence" VALUES('daco_notes',1);
COMMIT;
