"""The tasks that come with the package, written by this project: no download needed."""
