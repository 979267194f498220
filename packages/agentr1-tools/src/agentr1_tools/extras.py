"""The optional extras of this package: what each brings, and the one line that says how to get it."""

from importlib.util import find_spec

from agentr1_tools.errors import MissingExtraError

EXTRAS = {
    "dense": ("torch", "transformers", "tokenizers", "safetensors"),
    "mcp": ("mcp",),
    "serve": ("fastapi", "uvicorn"),
}


def require(extra: str, purpose: str) -> None:
    """Raise MissingExtraError, with the command that installs it, unless all packages of the extra are here."""
    missing = [package for package in EXTRAS[extra] if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(missing)}; install it with: pip install 'agentr1-tools[{extra}]'"
        )
