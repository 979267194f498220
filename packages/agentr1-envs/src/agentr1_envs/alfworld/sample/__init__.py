"""Games written by this project: rules, four homes, hand-made games, and a generator of more."""
