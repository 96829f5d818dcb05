"""Faults and bad inputs, each with what must come of it. `make faults` tries every case, `make test` a few of each."""

LONG = "CODLINE_FAULTS"  # environment variable: `all` tries every case
