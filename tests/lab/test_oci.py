"""Archives that runtimes can import, the same for the same files."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

from hulk_lab.builds import oci


def test_the_same_files_make_the_same_archive_and_every_digest_resolves(tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "bin").mkdir(parents=True)
    (files / "bin" / "program").write_text("x")

    first = oci.write("docker.io/lab/x:1", files, {"Entrypoint": ["/bin/program"]}, tmp_path / "a.tar")
    (files / "bin" / "program").touch()
    second = oci.write("docker.io/lab/x:1", files, {"Entrypoint": ["/bin/program"]}, tmp_path / "b.tar")

    assert first.archive.read_bytes() == second.archive.read_bytes()
    with tarfile.open(first.archive) as archive:
        names = archive.getnames()
        manifest_file = archive.extractfile(f"blobs/sha256/{first.digest.removeprefix('sha256:')}")
        assert manifest_file is not None
        manifest = json.load(manifest_file)
    for part in (manifest["config"], *manifest["layers"]):
        assert f"blobs/sha256/{part['digest'].removeprefix('sha256:')}" in names
