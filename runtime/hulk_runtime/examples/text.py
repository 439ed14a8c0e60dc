"""The text that the example trains on: the standard library's source, or any files by path or URL."""

import sysconfig
from pathlib import Path
from typing import Any, Final

import numpy as np

from hulk_runtime.errors import ConfigurationError, DataError, HulkError

Text = np.ndarray[tuple[int], np.dtype[np.uint8]]
_NOT_A_FILE: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def standard_library_source(folder: Path | None = None) -> Text:
    """The top level of the standard library, in the order of file names: about 5 MB of real text on every machine.

    Without links: Debian has one to a file of the machine's own, which a container may lack.
    """
    files = sorted((folder or Path(sysconfig.get_path("stdlib"))).glob("*.py"))
    return _joined([file.read_bytes() for file in files if not file.is_symlink()])


def fetch(source: str, region: str) -> Text:
    """Every file that `source` names (a path or fsspec URL, with wildcards), in the order of their names.

    `{region}` in it becomes the rank's region, so that each region reads its own copy. The copies must be equal: a
    sequence is the same whichever rank trains it. Raises ConfigurationError where no attempt can read them, DataError
    where another one may.
    """
    from fsspec.core import url_to_fs

    url = source.replace("{region}", region)
    try:
        store, path = url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise ConfigurationError(f"data {url}: {error}") from error
    try:
        return _joined([store.cat_file(name) for name in _names(store, path)])
    except Exception as error:
        # Every store has its own exceptions and no common base.
        raise _kind(store, error)(f"data {url}: {type(error).__name__}: {error}") from error


def _names(store: Any, path: str) -> list[str]:
    if "*" not in path:
        return [path]
    names = sorted(name for name in store.glob(path) if not store.isdir(name))
    if not names:
        raise FileNotFoundError("no such file")
    return names


def _kind(store: Any, error: Exception) -> type[HulkError]:
    """Whose fault it is that the data could not be read: the settings', or the moment's."""
    from fsspec.implementations.local import LocalFileSystem

    # An image or a volume is whole before the pod starts: a path that is not there is a typo. A store's copy for a
    # region may still be on its way, and anything else (a timeout, throttling, a fresh key) passes.
    is_typo = isinstance(store, LocalFileSystem) and isinstance(error, _NOT_A_FILE)
    return ConfigurationError if is_typo else DataError


def _joined(contents: list[bytes]) -> Text:
    return np.frombuffer(b"".join(contents), dtype=np.uint8)
