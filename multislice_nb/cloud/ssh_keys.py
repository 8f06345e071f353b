"""Public keys in a node's metadata, from which its guest agent makes users and their authorized keys.

The format is that of [Compute Engine's metadata](https://cloud.google.com/compute/docs/connect/add-ssh-keys):
lines of `USER:TYPE BASE64 COMMENT`.
"""

from __future__ import annotations

import re

from multislice_nb.errors import InvalidRequestError

__all__ = ["METADATA", "added", "entry", "holds"]

METADATA = "ssh-keys"
"""Name of the entry."""

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_KEY = re.compile(r"(?:ssh|ecdsa|sk)-[\w.@-]+ [A-Za-z0-9+/]+=*(?: [^\r\n]*)?")


def entry(user: str, public_key: str) -> str:
    """A line that lets a user log in with a key.

    Raises:
        InvalidRequestError: This is no user's name, or no public key: a private one, for example, which would
            have come into everybody's sight.
    """
    key = public_key.strip()
    if not _USER.fullmatch(user):
        raise InvalidRequestError(
            f"{user!r} is no name of a user on the workers.", fix="Give one of letters, digits, _, . and -."
        )
    if not _KEY.fullmatch(key):
        kind = "a private key" if "PRIVATE KEY" in key else "no public key of OpenSSH in one line"
        raise InvalidRequestError(
            f"What {user} was to log in with is {kind}.",
            fix="Give the text of a .pub file, such as ~/.ssh/google_compute_engine.pub.",
        )
    return f"{user}:{key}"


def holds(metadata: str, line: str) -> bool:
    """Whether a line's user and key are there, whatever the comment behind them."""
    return _who(line) in {_who(each) for each in metadata.splitlines()}


def added(metadata: str, line: str) -> str:
    """The entry with one more line."""
    return "\n".join(part for part in (metadata.strip("\n"), line) if part)


def _who(line: str) -> tuple[str, ...]:
    user, _, key = line.strip().partition(":")
    return (user, *key.split()[:2])
