"""The service's answers, a module for each kind."""
