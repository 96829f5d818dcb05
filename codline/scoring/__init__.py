"""The score stage's work: what a strategy needs, streamed over the pool, turned into one score per image."""
