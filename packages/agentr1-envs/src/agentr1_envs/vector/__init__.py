"""Vectors of environments: `ThreadVectorEnv`, what its partial steps return, and how `make_vec` reaches it."""

from agentr1_envs.vector.entry_points import thread_vector
from agentr1_envs.vector.slot import EnvStep
from agentr1_envs.vector.thread_vector import ThreadVectorEnv

__all__ = ["EnvStep", "ThreadVectorEnv", "thread_vector"]
