"""agentr1-envs."""
