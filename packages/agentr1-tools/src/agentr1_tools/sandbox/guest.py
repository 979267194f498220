"""What runs first inside a sandbox: it sets the limits, then runs the code that stands on its stdin.

Its text is handed to the interpreter there (3.8 or later), which knows nothing of this package. The limits are hard
ones, set before any of the code is read, so the code cannot raise them. It is no part of the isolation beyond that.
"""

import _ast  # `ast` takes milliseconds to import, and only two names are needed
import os
import sys
import types

READY = b"\x06\n"  # written before the code runs: what starts without it never left the launcher
_CODE = "<code>"


def main() -> None:
    """`NAME=VALUE` limits stand in the arguments, the code on stdin."""
    for argument in sys.argv[1:]:
        _limit(*argument.split("="))
    code = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.write(1, READY)
    _run(code)


def _limit(name: str, value: str) -> None:
    import resource

    if name == "AS" and sys.platform == "darwin":
        return  # that system refuses to set it
    kind = getattr(resource, "RLIMIT_" + name)
    hard = int(value) + (name == "CPU")  # one second later SIGKILL follows SIGXCPU, which can be ignored
    present = resource.getrlimit(kind)[1]
    if present != resource.RLIM_INFINITY:
        hard = min(hard, present)
    resource.setrlimit(kind, (min(int(value), hard), hard))


def _run(code: str) -> None:
    """Run the code as the main module; the value of a last expression is shown as a prompt would show it."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = [_CODE]
    try:
        tree = compile(code, _CODE, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
        assert isinstance(tree, _ast.Module)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        exec(compile(tree, _CODE, "exec", dont_inherit=True), module.__dict__)
        if isinstance(last, _ast.Expr):
            value = compile(_ast.Expression(last.value), _CODE, "eval", dont_inherit=True)
            sys.displayhook(eval(value, module.__dict__))
    except SystemExit:
        raise
    except BaseException as error:
        _show(error, code)
        sys.exit(1)


def _show(error: BaseException, code: str) -> None:
    """The traceback on stderr, without the frames of this file."""
    import linecache
    import traceback

    linecache.cache[_CODE] = (len(code), None, code.splitlines(True), _CODE)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != _CODE:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames)


if __name__ == "__main__":
    main()
