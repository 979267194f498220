"""Tools and retrieval over HTTP: the two applications, the gate in front of them, and what runs them."""
