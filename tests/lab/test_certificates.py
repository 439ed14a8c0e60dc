"""Certificates that several of the lab's parts ask for at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hulk_lab.certificates import Authority, Pair

NUM_THREADS = 8


def test_all_who_ask_at_once_get_one_certificate_that_fits_its_key(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "pki")
    together = Barrier(NUM_THREADS)

    def ask(_: int) -> tuple[Pair, bytes]:
        together.wait()
        pair = authority.issue("shared", "system:kube-proxy")
        return pair, pair.certificate.read_bytes() + pair.key.read_bytes()

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        found = list(pool.map(ask, range(NUM_THREADS)))
    assert len({content for _, content in found}) == 1
    pair = found[0][0]
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    assert x509.load_pem_x509_certificate(pair.certificate.read_bytes()).public_key() == key.public_key()
    assert pair.key.stat().st_mode & 0o077 == 0
