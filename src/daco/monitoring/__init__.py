"""A detector at work: watched folders, alarms, drift, notifications, store and service."""
