"""Where passes over images run: in the stage's process or in worker processes. It decides no byte of a result."""
