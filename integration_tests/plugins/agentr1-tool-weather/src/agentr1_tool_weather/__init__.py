"""agentr1-tool-weather: a plugin with two tools, found by agentr1-tools through its entry points."""
