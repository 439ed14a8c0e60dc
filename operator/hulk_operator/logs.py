"""The operator's log on standard error: lines of text or of JSON, at a level that a file may change while it runs.

The chart mounts a ConfigMap as that file; a kubelet brings a change into the pod within two minutes. The level is that
of Hulk's own loggers. Libraries are heard from `warning` on: at `debug` some of them print what they send.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from pythonjsonlogger.json import JsonFormatter

from hulk_operator import names

LEVELS: Final = ("debug", "info", "warning", "error")
LOOK_S: Final = 5.0
OWN: Final = logging.getLogger("hulk_operator")
ROOT: Final = logging.getLogger()  # heard whatever the level of Hulk's own is


def json_lines() -> logging.Formatter:
    """One object a line: time (RFC 3339, UTC), level, logger, message, and exception where there is one."""
    renamed = {"levelname": "level", "name": "logger", "exc_info": "exception"}
    return JsonFormatter("{levelname}{name}{message}", style="{", timestamp="time", rename_fields=renamed)


def text_lines() -> logging.Formatter:
    """For people."""
    return logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


FORMATS: Final = {"text": text_lines, "json": json_lines}


def configure(environ: Mapping[str, str]) -> "Level":
    """Begin to log; ValueError that names the variable whose value cannot be."""
    form = environ.get(names.ENV_LOG_FORMAT) or "text"
    if form not in FORMATS:
        raise ValueError(f"{names.ENV_LOG_FORMAT}: {form!r} must be one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[form]())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    sys.excepthook = _uncaught
    OWN.setLevel(logging.INFO)
    file = environ.get(names.ENV_LOG_LEVEL_FILE)
    level = Level(Path(file) if file else None)
    level.look()
    return level


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    ROOT.critical("ends by a defect", exc_info=(kind, error, trace))


class Level:
    """The level of Hulk's own loggers, as a file has it; `info` where there is no file."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._word = ""

    async def follow(self) -> None:
        """Look at the file now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Take over what the file says now. A word that is no level is told once, and changes nothing."""
        word = self._read()
        if word == self._word:
            return
        before, self._word = self._word, word
        if word not in LEVELS:
            ROOT.warning("%s: the log level %r must be one of %s", self._file, word, ", ".join(LEVELS))
            return
        OWN.setLevel(word.upper())
        if before:
            ROOT.warning("the log level is %s from now on", word)

    def _read(self) -> str:
        try:
            return self._file.read_text(encoding="utf-8").strip().lower() if self._file else "info"
        except OSError:
            return "info"
