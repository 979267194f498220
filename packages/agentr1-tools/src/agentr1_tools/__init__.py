"""agentr1-tools."""
