"""Training and inference: device setup, augmentation, fit(), checkpoints, model files."""
