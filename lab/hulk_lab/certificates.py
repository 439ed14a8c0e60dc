"""A lab's own certificate authority: who the API server, its clients and the kubelets are.

A user's name and groups in Kubernetes are the certificate's CN and O, so RBAC and the Node authorizer see each part of
the lab as what it is.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(hours=1)
_ISSUING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """The lab's certificate authority in a folder; it signs certificates beside its own."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """Make the authority unless the folder holds one."""
        authority = cls(folder)
        if not authority.pair.certificate.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            key = ec.generate_private_key(ec.SECP256R1())
            name = _name("hulk-lab", [])
            builder = _builder(name, name, key.public_key()).add_extension(
                x509.BasicConstraints(ca=True, path_length=None), critical=True
            )
            authority._write("ca", builder.sign(key, hashes.SHA256()), key)
        return authority

    @property
    def pair(self) -> Pair:
        return self._files("ca")

    def issue(self, file: str, user: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> Pair:
        """A certificate for a client (user, groups), and for a server when hosts (names or addresses) are given.

        Nodes that start side by side share some: the first that asks has it made, the others wait.
        """
        pair = self._files(file)
        with _ISSUING:
            if not pair.certificate.exists():
                self._make(file, user, groups, hosts)
        return pair

    def _make(self, file: str, user: str, groups: Sequence[str], hosts: Sequence[str]) -> None:
        ca_key = serialization.load_pem_private_key(self.pair.key.read_bytes(), None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        ca = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = _builder(_name(user, groups), ca.subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        self._write(file, builder.sign(ca_key, hashes.SHA256()), key)

    def signing_key(self, file: str) -> Pair:
        """A key for service account tokens: `certificate` is the public half."""
        pair = self._files(file)
        if not pair.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            _write_private(pair.key, _key_pem(key))
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            pair.certificate.write_bytes(public)
        return pair

    def _files(self, name: str) -> Pair:
        return Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        pair = self._files(name)
        _write_private(pair.key, _key_pem(key))
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def write_kubeconfig(path: Path, server: str, authority: Authority, user: Pair, name: str) -> Path:
    """A kubeconfig that needs no other file: the certificates are inside. JSON is YAML."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": _base64(authority.pair.certificate)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(user.certificate),
                    "client-key-data": _base64(user.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_private(path, json.dumps(content, indent=1).encode())
    return path


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
    )


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    """Whole or not at all: others may read or write the same file at this moment. mkstemp's files are private."""
    number, fresh = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    os.replace(fresh, path)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
