"""SHARP: several models trained by one worker over its devices, sharded, spilled to the host, alternating.

`docs/how-it-works/sharp.md` says how it works and what it is worth.
"""

from hulk_runtime.sharp.cuda_device import CudaDevice
from hulk_runtime.sharp.device import Device, DeviceMemoryError
from hulk_runtime.sharp.host_device import HostDevice
from hulk_runtime.sharp.run import train
from hulk_runtime.sharp.trial import Model, Outcome, Step, Trial

__all__ = ["CudaDevice", "Device", "DeviceMemoryError", "HostDevice", "Model", "Outcome", "Step", "Trial", "train"]
