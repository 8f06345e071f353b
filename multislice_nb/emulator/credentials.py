"""Who may call: whoever sends the bearer token, or one that the emulator's own service account signed."""

from __future__ import annotations

import hmac
from collections import OrderedDict

from multislice_nb.emulator import tls

# A service account's own tokens are about a kilobyte; more is not even looked at.
_LONGEST = 4096
_REMEMBERED = 64


class Credentials:
    """Decides on `Authorization` headers.

    Args:
        token: The bearer token.
        signer: The service account's public key, PEM; None where there is no such account.
    """

    def __init__(self, token: str, signer: bytes | None = None) -> None:
        self._token = token.encode()
        self.signer = signer
        self._refused: OrderedDict[str, None] = OrderedDict()

    def accept(self, header: str) -> bool:
        """Whether a header lets its sender in."""
        scheme, _, given = header.partition(" ")
        given = given.strip()
        if scheme.lower() != "bearer" or not given or len(given) > _LONGEST:
            return False
        if hmac.compare_digest(given.encode(errors="replace"), self._token):
            return True
        return self._signed(given)

    def _signed(self, given: str) -> bool:
        # Only what has the form of a JWT costs a check of its signature, and the same wrong one only once.
        if self.signer is None or given.count(".") != 2 or given in self._refused:
            return False
        if tls.signed_by(given, self.signer):
            return True
        self._refused[given] = None
        if len(self._refused) > _REMEMBERED:
            self._refused.popitem(last=False)
        return False
