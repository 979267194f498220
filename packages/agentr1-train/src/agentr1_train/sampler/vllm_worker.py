"""What vLLM's worker is extended by: vLLM mixes this class into it, by name, where an engine or a server starts.

vLLM 0.32 forgets one thing when it reads weights again on a CPU: an output layer that shares the input's weights keeps
the copy that was packed for its kernel at the start. Nothing of vLLM is imported here.
"""

from typing import Any

EXTENSION = "agentr1_train.sampler.vllm_worker.TiedOutput"
"""For ``worker_extension_cls``, and ``--worker-extension-cls`` of a server that a run on a CPU joins."""


class TiedOutput:
    """Mixed into the worker."""

    model_runner: Any

    def pack_output_layer(self) -> None:
        """Pack the output layer's weights again; where none were packed (GPUs), this does nothing."""
        for module in self.model_runner.model.modules():
            if type(module).__name__ == "ParallelLMHead":
                module.quant_method.process_weights_after_loading(module)
