"""Training and evaluating a pack: its data, its programs, its loop and its checkpoints."""
