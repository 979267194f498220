"""agentr1-train."""
