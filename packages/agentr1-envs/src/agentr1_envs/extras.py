"""The optional extras for environments over the wire: what each brings, and the one line that says how to get it."""

from importlib.util import find_spec

from agentr1_envs.errors import DependencyMissingError

EXTRAS = {
    "remote": ("websockets",),
    "serve": ("fastapi", "uvicorn", "websockets"),
}


def require(extra: str, purpose: str) -> None:
    """Raise DependencyMissingError, with the command that installs it, unless all packages of the extra are here."""
    missing = [package for package in EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise DependencyMissingError(
            f"{purpose} needs {' and '.join(missing)}; install it with: pip install 'agentr1-envs[{extra}]'"
        )
