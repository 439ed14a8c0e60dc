"""Ciphers and key derivation of the package cryptography: the program's own where it is recent, else Hulk's.

Hulk's lies in the folder `hulk_dependencies` beside `hulk_runtime`, where an init container brought both into an image
that has it not, or another one. It is imported for Hulk alone: the program goes on to find its own, or none.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

OLDEST: Final = 47
"""Of cryptography's releases: it encrypts into memory that is there."""
FOLDER: Final = Path(__file__).resolve().parents[3] / "hulk_dependencies"
_MODULES: Final = (
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
)
_NAMES: Final = ("cryptography", "_cffi_backend")
"""What the folder has, as it is imported."""


def _modules() -> list[ModuleType]:
    """Raises ImportError, which says what is missing."""
    if _is_recent():
        return [importlib.import_module(name) for name in _MODULES]
    if not FOLDER.is_dir():
        raise ImportError(f"cryptography of release {OLDEST} or later is missing, and there is no {FOLDER}")
    with _ours_alone():
        found = [importlib.import_module(name) for name in _MODULES]
        _use_once(found)
    return found


def _is_recent() -> bool:
    """Whether the program's own is, without importing it."""
    try:
        return int(metadata.version("cryptography").partition(".")[0]) >= OLDEST
    except (metadata.PackageNotFoundError, ValueError):
        return False


@contextmanager
def _ours_alone() -> Iterator[None]:
    """This thread imports what the folder has; afterwards nothing shows that it did."""
    finder = _Finder(threading.get_ident())
    theirs = {name: sys.modules.pop(name) for name in _loaded()}
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(theirs)


def _loaded() -> list[str]:
    return [name for name in list(sys.modules) if name.partition(".")[0] in _NAMES]


class _Finder:
    """Finds what the folder has, for one thread."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks for a module; None: others are asked."""
        if name not in _NAMES or threading.get_ident() != self._thread:
            return None
        return PathFinder.find_spec(name, [str(FOLDER)])


def _use_once(modules: Sequence[ModuleType]) -> None:
    """What their native part imports only when it needs it, it imports now, and keeps."""
    exceptions, aead, hashes, hkdf = modules
    key = hkdf.HKDF(hashes.SHA256(), 32, salt=b"", info=b"").derive(b"")
    hkdf.HKDFExpand(hashes.SHA256(), 32, b"").derive(key)
    for algorithm in (aead.AESGCM, aead.ChaCha20Poly1305):
        cipher, record = algorithm(key), bytearray(17)
        cipher.encrypt_into(bytes(12), b"a", None, record)
        cipher.decrypt_into(bytes(12), record, None, bytearray(1))
        record[0] ^= 1
        try:
            cipher.decrypt_into(bytes(12), record, None, bytearray(1))
        except exceptions.InvalidTag:
            continue
        raise ImportError(f"{aead.__file__} opens what was changed")


if TYPE_CHECKING:
    from cryptography.exceptions import InvalidTag as InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM as AESGCM
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305 as ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256 as SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF as HKDF
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand as HKDFExpand
else:
    _exceptions, _aead, _hashes, _hkdf = _modules()
    InvalidTag = _exceptions.InvalidTag
    AESGCM, ChaCha20Poly1305 = _aead.AESGCM, _aead.ChaCha20Poly1305
    SHA256, HKDF, HKDFExpand = _hashes.SHA256, _hkdf.HKDF, _hkdf.HKDFExpand
