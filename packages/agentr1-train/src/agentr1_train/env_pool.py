"""Environments: made, reused over episodes, each in its own thread. The only module that imports gymnasium.

It knows nothing of models. A thread cannot be killed: a hung environment is abandoned with its thread and replaced, and
code that holds the interpreter lock for good (a C extension that never returns) stops the process all the same.
"""

import contextlib
import importlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import gymnasium

from agentr1_train.config import EnvConfig
from agentr1_train.errors import ConfigError, EnvironmentLoadError
from agentr1_train.worker_thread import WorkerThread


@dataclass(frozen=True, slots=True)
class EnvAttributes:
    """What an environment may tell beside its observations; a stranger's tells nothing."""

    system_prompt: str = ""
    tool_schemas: tuple[Mapping[str, Any], ...] = ()
    tools_in_template: bool = False
    """True: the schemas go to the chat template. False: they stand in the system text."""
    stop: tuple[str, ...] = ()
    """Strings that end a response."""


class TextEnv(Protocol):
    """What a flow sees of an environment. A flow may put a wrapper of its own in front of the one it was lent."""

    @property
    def env_id(self) -> str: ...
    @property
    def attributes(self) -> EnvAttributes: ...
    async def reset(self, seed: int | None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]: ...
    async def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]: ...
    async def demonstration(self) -> list[str] | None: ...
    async def get_state(self) -> Any: ...
    async def set_state(self, state: Any) -> None: ...


@dataclass(slots=True)
class EnvHandle:
    """One environment in its own thread. ``broken`` once a call failed or was abandoned: its state is unknown."""

    env_id: str
    _env: "gymnasium.Env[Any, Any]"
    _worker: WorkerThread
    _reset_timeout_s: float
    _step_timeout_s: float
    broken: bool = field(default=False)

    async def reset(self, seed: int | None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation and info.

        Raises:
            TimeoutError: it took longer than ``env.reset_timeout_s``.
            Exception: whatever the environment raised.
        """
        given = None if options is None else dict(options)
        return await self._call(lambda: self._env.reset(seed=seed, options=given), self._reset_timeout_s)

    async def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Return ``(observation, reward, terminated, truncated, info)``; raises as ``reset`` does."""
        return await self._call(lambda: self._env.step(action), self._step_timeout_s)

    async def get_state(self) -> Any:
        """Return the episode as data for ``set_state``; ``None`` where it cannot be copied but only played again.

        An environment copies with ``get_state()`` and ``set_state(state)``. A wrapper around it that keeps something of
        the episode (a history, a step count) and copies nothing would be left behind: then there is no copy either.
        """
        if not _copies(self._env):
            return None
        return await self._call(self.attribute("get_state"), self._step_timeout_s)

    async def set_state(self, state: Any) -> None:
        """Take up an episode; the environment must have been reset. Raises as ``reset`` does."""
        take = self.attribute("set_state")
        await self._call(lambda: take(state), self._step_timeout_s)

    async def demonstration(self) -> list[str] | None:
        """Return the actions that solve the current task; ``None`` when the environment has no ``demonstration``."""
        found = self.attribute("demonstration")
        if found is None:
            return None
        return list(await self._call(found if callable(found) else lambda: found, self._reset_timeout_s))

    @property
    def attributes(self) -> EnvAttributes:
        """The optional attributes as they are now: read them after ``reset``, since a task may change them."""
        return EnvAttributes(
            system_prompt=str(self.attribute("system_prompt") or ""),
            tool_schemas=tuple(self.attribute("tool_schemas") or ()),
            tools_in_template=bool(self.attribute("tools_in_template")),
            stop=tuple(self.attribute("stop") or ()),
        )

    def attribute(self, name: str) -> Any:
        """Return an attribute of the environment or of what it wraps, ``None`` where it is absent."""
        try:
            return self._env.get_wrapper_attr(name)
        except AttributeError:
            return None

    def close(self) -> None:
        """Close the environment in its own thread, after the call that may still be running; does not wait."""
        self._worker.close(self._env.close)

    async def _call(self, function: Any, timeout: float) -> Any:
        done = False
        try:
            result = await self._worker.call(function, timeout=timeout)
            done = True
            return result
        finally:
            self.broken = self.broken or not done  # a cancelled call too


class EnvPool:
    """Makes environments of one id and lends them, one for each episode in flight."""

    def __init__(self, config: EnvConfig, *, extra_kwargs: Mapping[str, Any] | None = None) -> None:
        """Make the first environment, so that whatever is wrong is told at once.

        Args:
            config: the section ``env`` of the recipe.
            extra_kwargs: laid over ``config.kwargs`` (``config.eval_kwargs`` for an evaluation).

        Raises:
            ConfigError: no id, or a time limit that is not positive.
            EnvironmentLoadError: a module that cannot be imported, an unknown id, or a constructor that failed.
        """
        if not config.id:
            raise ConfigError("env.id is empty: name a Gymnasium environment, as in agentr1_envs:agentr1/GSM8K-v0.")
        for name in ("reset_timeout_s", "step_timeout_s"):
            if getattr(config, name) <= 0:
                raise ConfigError(f"env.{name} = {getattr(config, name)}: a number of seconds above 0 is needed.")
        self.env_id = config.id
        self.task_ids: tuple[str, ...] | None = None
        """Names of all tasks, where the environment tells them."""
        self.training_only: tuple[str, ...] = ()
        """Settings of the environment that an evaluation refuses, where it tells them."""
        self._config = config
        self._kwargs = {**config.kwargs, **(extra_kwargs or {})}
        self._count = itertools.count()
        self._closed = False
        _import_modules(config.imports)
        first = self._make()
        self._free: list[EnvHandle] = [first]
        try:
            self.task_ids = _task_ids(first)
        except Exception as error:
            raise EnvironmentLoadError(f"{config.id}: its task_ids failed: {type(error).__name__}: {error}") from error
        self.training_only = tuple(first.attribute("training_only") or ())

    def __enter__(self) -> "EnvPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def attributes(self) -> EnvAttributes:
        """The optional attributes of an environment that is free, whatever task it played last.

        Raises:
            EnvironmentLoadError: reading them failed.
        """
        if not self._free:
            self._free.append(self._make())
        try:
            return self._free[-1].attributes
        except Exception as error:
            raise EnvironmentLoadError(
                f"{self.env_id}: its attributes failed: {type(error).__name__}: {error}"
            ) from error

    async def acquire(self) -> EnvHandle:
        """Lend an environment: a free one, or a new one.

        Raises:
            EnvironmentLoadError: a new one could not be made, or not within ``env.reset_timeout_s``.
        """
        if self._free:
            return self._free.pop()
        maker = WorkerThread("agentr1-make")
        try:
            return await maker.call(self._make, timeout=self._config.reset_timeout_s)
        except TimeoutError as error:
            raise EnvironmentLoadError(f"{self.env_id} was not made: {error} (env.reset_timeout_s).") from error
        finally:
            maker.close()

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[EnvHandle]:
        """``acquire`` and ``release`` around a block."""
        handle = await self.acquire()
        try:
            yield handle
        finally:
            self.release(handle)

    def release(self, handle: EnvHandle) -> None:
        """Take an environment back; a broken one is closed and another made when one is needed."""
        if handle.broken or self._closed:
            handle.close()
        else:
            self._free.append(handle)

    def close(self) -> None:
        """Close the free environments; lent ones close on their return. Does not wait for a hung one."""
        self._closed = True
        while self._free:
            self._free.pop().close()

    def _make(self) -> EnvHandle:
        try:
            # The passive checker warns about every text a gymnasium.spaces.Text would refuse.
            env = gymnasium.make(self.env_id, disable_env_checker=True, **self._kwargs)
        except gymnasium.error.UnregisteredEnv as error:
            raise EnvironmentLoadError(
                f"env.id = {self.env_id!r}: {error} Ids are registered by importing their package: "
                "write it before the id (package:namespace/Name-v0) or list it in env.imports."
            ) from error
        except Exception as error:
            given = f" with {self._kwargs}" if self._kwargs else ""
            raise EnvironmentLoadError(
                f"env.id = {self.env_id!r} could not be made{given}: {type(error).__name__}: {error}"
            ) from error
        worker = WorkerThread(f"agentr1-env-{next(self._count)}")
        return EnvHandle(self.env_id, env, worker, self._config.reset_timeout_s, self._config.step_timeout_s)


_STATELESS = (gymnasium.wrappers.OrderEnforcing, gymnasium.wrappers.PassiveEnvChecker)
"""Wrappers that keep nothing of an episode but that it has begun."""


def _copies(env: Any) -> bool:
    """Return True when the outermost layer that keeps something of the episode can copy it."""
    while type(env) in _STATELESS:
        env = env.env
    return callable(getattr(env, "get_state", None)) and callable(getattr(env, "set_state", None))


def _import_modules(names: Sequence[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise EnvironmentLoadError(
                f"env.imports: {name!r} cannot be imported ({error}). Install its package, or put it on PYTHONPATH."
            ) from error


def _task_ids(handle: EnvHandle) -> tuple[str, ...] | None:
    found = handle.attribute("task_ids")
    found = cast(Any, found()) if callable(found) else found
    return None if found is None else tuple(str(task) for task in found)
