"""A TLS face and a service account, so that a bare `TpuClient()` reaches the emulator by its environment alone.

The official client always speaks TLS to `tpu.UNIVERSE`, and signs its own tokens when the service account's
universe is not Google's. So the emulator makes a certificate for `tpu.localhost` and a service account of the
universe `localhost:PORT`, and takes tokens that this account has signed. Both keys are this user's alone.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_nb.emulator.address import DEFAULT_PROJECT, private_folder, write_private
from multislice_nb.emulator.client_environment import certificate_file, credentials_file

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric import rsa

_KEY_ID = "emulator"
_VALID = dt.timedelta(days=3650)


@dataclass(frozen=True)
class Tls:
    """What the TLS face needs.

    Attributes:
        private_key: The server's private key, PEM.
        certificate: Its certificate, PEM.
        signer: The public key of the service account, PEM.
    """

    private_key: bytes
    certificate: bytes
    signer: bytes


def prepare(home: Path, port: int) -> Tls:
    """Make the keys, once per state folder, and write the service account for this port."""
    folder = private_folder(home / "tls")
    key_path = folder / "key.pem"
    if not key_path.exists() or not certificate_file(home).exists():
        _make(home, key_path)
    signing_path = folder / "service-account-key.pem"
    if not signing_path.exists():
        write_private(signing_path, _pem(_new_key()))
    private, public = signing_path.read_text(), _public(signing_path.read_bytes())
    account = {
        "type": "service_account",
        "project_id": DEFAULT_PROJECT,
        "private_key_id": _KEY_ID,
        "private_key": private,
        "client_email": f"emulator@{DEFAULT_PROJECT}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"https://localhost:{port}/token",
        "universe_domain": f"localhost:{port}",
    }
    write_private(credentials_file(home), json.dumps(account))
    return Tls(key_path.read_bytes(), certificate_file(home).read_bytes(), public)


def signed_by(token: str, signer: bytes) -> bool:
    """Whether a token is a JWT that the service account signed and that has not expired."""
    from google.auth import exceptions, jwt

    try:
        claims = jwt.decode(token, certs={_KEY_ID: signer})  # type: ignore[no-untyped-call]  # it has no types
    except (exceptions.GoogleAuthError, ValueError, KeyError, TypeError):
        return False
    return str(claims.get("iss", "")).startswith("emulator@")


def _new_key() -> rsa.RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _public(pem: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(pem, None).public_key()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _make(home: Path, key_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    key = _new_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Cloud TPU emulator")])
    now = dt.datetime.now(dt.UTC)
    names = [
        x509.DNSName("tpu.localhost"),
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(certificate_file(home), certificate.public_bytes(serialization.Encoding.PEM).decode())
    write_private(key_path, _pem(key))
