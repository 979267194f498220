"""agentr1-envs: text-agent tasks as plain Gymnasium environments; importing this registers them."""

from agentr1_envs.agent_env import AgentEnv, Turn
from agentr1_envs.evaluation import EpisodeRecord, Evaluation, evaluate
from agentr1_envs.registration import ENTRY_POINTS, register_envs
from agentr1_envs.spaces import Message, Messages, Text
from agentr1_envs.tasks import Passage, Task, TaskSet
from agentr1_envs.tool_env import ToolEnv

__all__ = [
    "ENTRY_POINTS",
    "AgentEnv",
    "EpisodeRecord",
    "Evaluation",
    "Message",
    "Messages",
    "Passage",
    "Task",
    "TaskSet",
    "Text",
    "ToolEnv",
    "Turn",
    "evaluate",
    "register_envs",
]

register_envs()
