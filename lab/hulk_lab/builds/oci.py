"""A folder of files -> an OCI archive with one layer, byte for byte the same for the same files.

For images that only hold what is copied into them; an image that runs commands is buildah's work.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True, slots=True)
class Image:
    """An image in an OCI archive: `reference` is what manifests write, `digest` its manifest's."""

    reference: str
    archive: Path

    @property
    def digest(self) -> str:
        """sha256:... of the manifest."""
        with tarfile.open(self.archive) as archive:
            index = archive.extractfile("index.json")
            assert index is not None
            digest: str = json.load(index)["manifests"][0]["digest"]
        return digest


def write(reference: str, files: Path, config: Mapping[str, Any], archive: Path) -> Image:
    """Write the archive (whole or not at all); `config` is the OCI runtime part: Entrypoint, Cmd, Env, User."""
    layer = _layer(files)
    layer_digest = _digest(layer)
    image_config = _json(
        {
            "architecture": _ARCHITECTURE,
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
            "history": [{"created_by": "hulk-lab"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", image_config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
        }
    )
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                **_descriptor("application/vnd.oci.image.manifest.v1+json", manifest),
                "annotations": {"org.opencontainers.image.ref.name": reference, "io.containerd.image.name": reference},
            }
        ],
    }
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_suffix(".new")
    with tarfile.open(fresh, "w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json(index))
        for blob in (image_config, manifest, layer):
            _add(tar, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)
    os.replace(fresh, archive)
    return Image(reference, archive)


def _layer(files: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files.rglob("*")):
            tar.add(path, str(path.relative_to(files)), recursive=False, filter=_anonymous)
    return buffer.getvalue()


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
