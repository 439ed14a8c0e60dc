"""DiLoCo in Lightning's Trainer, where a script imports pytorch_lightning: a callback beside the script's own.

    pytorch_lightning.Trainer(strategy="ddp", callbacks=[hulk.pytorch_lightning.DiLoCoCallback(sync_every=50)], ...)

Lightning's checkpoints hold where all replicas began, the outer step's state and what was being summed: training
resumes from there. Inner steps since a layer's last sum began are counted, but not made again.
"""

import pytorch_lightning
from hulk_runtime.diloco.in_lightning import Hooks


class DiLoCoCallback(Hooks, pytorch_lightning.Callback):  # type: ignore[misc]  # pytorch_lightning is not there where types are checked
    """Replicas train apart while the Trainer fits; `settings` are those of `hulk.DiLoCo`."""
