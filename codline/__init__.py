"""codline decides which images are worth labelling."""
