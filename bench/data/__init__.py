"""The measured tables that benches and tests compare with; README.md gives source, licence and date of each."""

from pathlib import Path
from typing import Final

LINKS: Final = Path(__file__).with_name("links.csv")
"""Round trip and rate of 2,350 directed pairs of cloud regions."""

ALLREDUCES: Final = Path(__file__).with_name("allreduce.csv")
"""128 all-reduces by gloo over emulated links."""
