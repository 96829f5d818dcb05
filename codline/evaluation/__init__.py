"""Metrics of models, diagnosis of scores against true losses, and statistics of studies."""
