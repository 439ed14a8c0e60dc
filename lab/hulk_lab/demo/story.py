"""What the demo prints: every line with the seconds since the start, and the whole as a picture."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

_SVG_WITHOUT_WEB_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


@dataclass(slots=True)
class Story:
    """Prints what happens with the seconds since the start."""

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True, record=True))
    start_s: float = field(default_factory=time.monotonic)

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold]{self._clock()} {text}[/bold]")

    def line(self, text: str) -> None:
        self.console.print(f"{self._clock()}   {text}", markup=False)

    def block(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            self.console.print(f"         {line}", markup=False)

    def _clock(self) -> str:
        return f"{time.monotonic() - self.start_s:6.1f}s"

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start_s

    def save(self, picture: Path) -> None:
        """Write everything printed so far as SVG; it names no font of the web."""
        self.console.save_svg(str(picture), title="make demo", code_format=_SVG_WITHOUT_WEB_FONTS)
