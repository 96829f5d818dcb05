"""Drives DVC and Prefect: the workspace, dvc.lock, servers and processes, presets and studies."""
