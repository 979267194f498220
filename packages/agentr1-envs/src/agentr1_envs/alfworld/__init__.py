"""ALFWorld: household text games, played by an engine of this package or by the original one."""
