"""What a restart takes, as far as it is known beside the plans: seconds of its parts, and the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hulk_placement.topology import is_amount


@dataclass(frozen=True, slots=True)
class Restart:
    """Seconds of a restart, apart from the checkpoint; assumptions where nobody measured them.

    `image_s` where a machine has not run the job before. `first_step_s`: what the first steps take more than others.
    """

    stop_s: float = 3.0
    image_s: float = 60.0
    start_s: float = 15.0
    rendezvous_s: float = 5.0
    first_step_s: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not is_amount(getattr(self, field.name)):
                raise ValueError(f"restart: {field.name} {getattr(self, field.name)} must be >= 0 and finite")


@dataclass(frozen=True, slots=True)
class Moving:
    """What is known of a move beside the plans.

    `checkpoint_bytes` None: by the model, parameters and optimizer state. `store_region` is where checkpoints are kept.
    Where that is not known, but `is_stored`, reading one costs nothing and only handing it on does; without a store
    machines have what the old plan put there. `repeated_steps` are made again after the move: steps since the last
    checkpoint, or 0 where the ranks save before they stop.
    """

    restart: Restart = Restart()
    checkpoint_bytes: int | None = None
    store_region: str | None = None
    repeated_steps: float = 0.0
    is_stored: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint_bytes is not None and self.checkpoint_bytes < 0:
            raise ValueError(f"moving: a checkpoint of {self.checkpoint_bytes} bytes must be >= 0")
        if not is_amount(self.repeated_steps):
            raise ValueError(f"moving: {self.repeated_steps} repeated steps must be >= 0 and finite")
