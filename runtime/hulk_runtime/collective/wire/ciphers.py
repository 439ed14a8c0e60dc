"""Ciphers and key derivation of the package cryptography: the program's own where it is recent, else Hulk's.

Hulk's is there where an init container brought it, and the program never finds that one.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hulk_runtime import dependencies

OLDEST: Final = 47
"""Of cryptography's releases: it encrypts into memory that is there."""
_MODULES: Final = (
    "cryptography.exceptions",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.hashes",
    "cryptography.hazmat.primitives.kdf.hkdf",
)
_BROUGHT: Final = ("cryptography", "_cffi_backend")


def _modules() -> list[ModuleType]:
    """Raises ImportError, which says what is missing."""
    if _is_recent():
        return [importlib.import_module(name) for name in _MODULES]
    if not dependencies.FOLDER.is_dir():
        raise ImportError(
            f"cryptography of release {OLDEST} or later is missing, and there is no {dependencies.FOLDER}"
        )
    with dependencies.brought_alone(_BROUGHT):
        found = [importlib.import_module(name) for name in _MODULES]
        _use_once(found)
    return found


def _is_recent() -> bool:
    """Whether the program's own is, without importing it."""
    try:
        return int(metadata.version("cryptography").partition(".")[0]) >= OLDEST
    except (metadata.PackageNotFoundError, ValueError):
        return False


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
