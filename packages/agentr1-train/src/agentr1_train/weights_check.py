"""Weights that are finite and yet of no use, since what they compute is not: no checkpoint is made of them.

A step that is far too long leaves them behind; the next rollout, loss or gradient would stop the run, and every
``--resume`` from them as well.
"""

from collections.abc import Iterable, Sequence

from torch import Tensor

from agentr1_train import distributed
from agentr1_train.batch import Row, pack
from agentr1_train.engine.deepspeed import DeepSpeedEngine
from agentr1_train.errors import NonFiniteLossError

ROWS = 8
"""Rows of the last update that are evaluated before a checkpoint, on every rank."""
LARGEST = 1e18
"""Beyond it float32 does not hold a weight's square: norms lose what they divide by, and gradients are not finite."""


def check_weights(engines: Iterable[DeepSpeedEngine], rows: Sequence[Row]) -> None:
    """Evaluate the first of this rank's rows, none of which need be there, under each engine. A collective call.

    Raises:
        NonFiniteLossError: on every rank, when any rank met a log-probability or a value that is not finite, or a
            weight is beyond ``LARGEST``.
    """
    for engine in engines:
        batches = pack(rows[:ROWS], engine.settings.micro_batch_tokens, packing=engine.settings.packing)
        found: list[Tensor] = [item[0] if isinstance(item, tuple) else item for item in engine.evaluate(batches)]
        broken = not all(bool(values.isfinite().all()) for values in found)
        for _, weight in engine.named_weights():  # to the end: ranks gather them together
            broken |= bool(weight.numel() and not weight.abs().max() <= LARGEST)
        if distributed.all_reduce({"broken": float(broken)}, "max")["broken"]:
            raise NonFiniteLossError(
                f"the weights of the {engine.name} have grown until what they compute is not finite: no checkpoint was "
                "made of them. Lower optimizer.lr; --resume continues from the last checkpoint and takes it."
            )
