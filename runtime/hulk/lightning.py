"""DiLoCo in PyTorch Lightning's Trainer: a callback beside the script's own.

    lightning.Trainer(strategy="ddp", callbacks=[hulk.lightning.DiLoCoCallback(sync_every=50)], ...)

Lightning's checkpoints hold where all replicas began, the outer step's state and what was being summed: training
resumes from there. Inner steps since a layer's last sum began are counted, but not made again.
"""

import lightning
from hulk_runtime.diloco.in_lightning import Hooks


class DiLoCoCallback(Hooks, lightning.Callback):  # type: ignore[misc]  # lightning is not there where types are checked
    """Replicas train apart while the Trainer fits; `settings` are those of `hulk.DiLoCo`."""
