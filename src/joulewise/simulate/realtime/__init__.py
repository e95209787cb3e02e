"""``joulewise sim``: a command among GPUs that live as long as it does."""
