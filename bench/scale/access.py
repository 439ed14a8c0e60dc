"""Certificates and kubeconfigs: who asks an API server, and that the server is the one that is meant."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from hulk_lab.certificates import Authority, write_kubeconfig

from bench.scale.meter import OPERATOR

HOST: Final = "127.0.0.1"
BENCH: Final = "bench"


def kubeconfigs(folder: Path, port: int) -> dict[str, Path]:
    """Make the authority, the server's certificate and a kubeconfig for the operator and for everyone else."""
    authority = Authority.create(folder)
    authority.issue("server", "kube-apiserver", hosts=[HOST])
    server = f"https://{HOST}:{port}"
    return {
        user: write_kubeconfig(folder / f"{user}.kubeconfig", server, authority, authority.issue(user, user), "bench")
        for user in (OPERATOR, BENCH)
    }


def server_context(folder: Path) -> ssl.SSLContext:
    """TLS of a server that knows its clients by their certificates."""
    authority = Authority(folder)
    pair = authority.issue("server", "kube-apiserver", hosts=[HOST])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.pair.certificate))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(pair.certificate, pair.key)
    return context
