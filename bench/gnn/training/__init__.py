"""Training of the value network: needs torch and torch_geometric, which planning never does."""

import warnings

warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)  # torch_geometric still calls it
