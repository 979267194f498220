"""The other side of `serving`: an environment that is played elsewhere, and looks as if it were here."""
