"""What is done, on which files: one module per stage of dvc.yaml."""
