"""The text that the example trains on: the standard library's source, or any files by path or URL."""

import sysconfig
from pathlib import Path

import numpy as np

from hulk_runtime.errors import ConfigurationError

Text = np.ndarray[tuple[int], np.dtype[np.uint8]]


def standard_library_source() -> Text:
    """The top level of the standard library, in the order of file names: about 5 MB of real text on every machine."""
    return _joined([file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))])


def fetch(source: str, region: str) -> Text:
    """Every file that `source` names (a path or fsspec URL, with wildcards), in the order of their names.

    `{region}` in it becomes the rank's region, so that each region reads its own copy. The copies must be equal: a
    sequence is the same whichever rank trains it.
    """
    import fsspec

    url = source.replace("{region}", region)
    try:
        files = fsspec.open_files(url, "rb")
        contents = []
        for file in sorted(files, key=lambda file: str(file.path)):
            with file as opened:
                contents.append(opened.read())
    except Exception as error:
        # Every store has its own exceptions and no common base; all of them mean that the job cannot have its data.
        raise ConfigurationError(f"data {url}: {type(error).__name__}: {error}") from error
    if not contents:
        raise ConfigurationError(f"data {url}: no such file")
    return _joined(contents)


def _joined(contents: list[bytes]) -> Text:
    return np.frombuffer(b"".join(contents), dtype=np.uint8)
