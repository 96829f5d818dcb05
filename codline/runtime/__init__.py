"""Processes, progress, the .codline/ state directory and the paths in dvc.yaml."""
