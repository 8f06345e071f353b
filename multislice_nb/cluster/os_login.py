"""OS Login: the account's keys and user name, where a project decides logins by IAM and not by metadata.

The API's reference: https://cloud.google.com/compute/docs/oslogin/rest/v1/users/importSshPublicKey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from multislice_nb import errors

if TYPE_CHECKING:
    from google.auth.transport.requests import AuthorizedSession

__all__ = ["import_key"]

ENDPOINT = "https://oslogin.googleapis.com"
USER_INFO = "https://openidconnect.googleapis.com/v1/userinfo"
TIMEOUT = 30.0
"""Seconds for each request."""

_FIX = "gcloud compute os-login ssh-keys add --key-file=KEY.pub, then name the user: %config Multislice.ssh_user = '...'."


def import_key(key: str, project: str, session: AuthorizedSession | None = None) -> str:
    """Add a public key to the account's login profile, and tell the user name that it logs in with.

    Adding a key that is there already changes nothing. Blocks: run it in a thread.

    Args:
        key: The public key, in one line.
        project: The project whose machines are logged in to.
        session: Whose requests carry the account's credentials; Google's default ones if left out.

    Raises:
        errors.PermissionDeniedError: The account may not, or is not logged in.
    """
    import requests
    from google.auth.exceptions import GoogleAuthError

    try:
        ours = session or _session()
        account = _account(ours)
        answer = ours.post(
            f"{ENDPOINT}/v1/users/{quote(account, safe='')}:importSshPublicKey",
            params={"projectId": project},
            json={"key": key},
            timeout=TIMEOUT,
        )
        answer.raise_for_status()
        return _user(answer.json())
    except (requests.RequestException, GoogleAuthError) as error:
        raise errors.PermissionDeniedError(
            f"OS Login did not take the SSH key: {error}.", fix=_FIX
        ) from error


def _session() -> AuthorizedSession:
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    return AuthorizedSession(credentials)  # type: ignore[no-untyped-call]  # google-auth types half of itself


def _account(session: AuthorizedSession) -> str:
    """The account's mail address, which a service account knows of itself and others have to ask for."""
    email = getattr(session.credentials, "service_account_email", None)
    if email and email != "default":
        return str(email)
    answer = session.get(USER_INFO, timeout=TIMEOUT)
    answer.raise_for_status()
    return str(answer.json().get("email", ""))


def _user(answer: dict[str, Any]) -> str:
    accounts = answer.get("loginProfile", {}).get("posixAccounts", [])
    chosen = next(
        (account for account in accounts if account.get("primary")), accounts[0] if accounts else None
    )
    if chosen is None:
        raise errors.PermissionDeniedError("The account has no user in OS Login.", fix=_FIX)
    return str(chosen["username"])
