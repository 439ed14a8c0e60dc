"""A trial's checkpoints, in a folder of its own below the sweep's: by layers, so that any cut goes on from them."""

import io
from collections.abc import Sequence

import torch

from hulk_runtime.checkpoints.fenced_checkpoints import Checkpoints
from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.signing import Owner
from hulk_runtime.errors import ConfigurationError
from hulk_runtime.job.environment import Checkpointing
from hulk_runtime.sharp.rng_stream import Stream
from hulk_runtime.sharp.shard import Shard


class TrialCheckpoint:
    """One trial's."""

    def __init__(self, trial: str, checkpointing: Checkpointing, attempt: int, owner: Owner) -> None:
        self._trial = trial
        self.every_steps = checkpointing.every_steps
        store = Store(f"{checkpointing.url}/{trial}")
        self._checkpoints = Checkpoints(store, attempt, checkpointing.num_kept, owner.of_trial(trial))
        self.saved_step = 0

    def resume(self, shards: Sequence[Shard], stream: Stream) -> int:
        """The step to go on from; 0 when there is no checkpoint. Raises HulkError."""
        found = self._checkpoints.begin()
        if found is None:
            return 0
        entry, content = found
        state = torch.load(io.BytesIO(content), weights_only=True)
        try:
            for shard in shards:
                shard.restore(state["parameters"], state["optimizer"])
        except (KeyError, RuntimeError) as error:
            raise ConfigurationError(
                f"trial {self._trial}: checkpoint {entry.key} is of another model: {error}"
            ) from error
        stream.host, stream.gpu = state["random"], state["randomGpu"]
        self.saved_step = entry.step
        return entry.step

    def save(self, step: int, shards: Sequence[Shard], stream: Stream) -> None:
        """Commit, unless this step is there already. Raises HulkError."""
        if step == self.saved_step:
            return
        parameters = {name: home for shard in shards for name, home in shard.named_homes().items()}
        state = {
            "parameters": parameters,
            "optimizer": {name: state for shard in shards for name, state in shard.named_states().items()},
            "random": stream.host,
            "randomGpu": stream.gpu,
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self._checkpoints.commit(step, buffer.getvalue(), {"trial": self._trial, "tensors": len(parameters)})
        self.saved_step = step
