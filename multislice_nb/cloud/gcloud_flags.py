"""The flags of `gcloud compute tpus queued-resources create`, GA and alpha, as an argparse parser.

Taken from the definitions in the Google Cloud SDK (surface/compute/tpus/queued_resources/create.yaml), so that
what people know can be pasted.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from multislice_nb._texts import did_you_mean
from multislice_nb.errors import InvalidRequestError

__all__ = ["add_create_flags", "join_dict", "join_list", "parse_create", "split_dict", "split_list"]

_TEXT_FLAGS = (
    "project", "zone", "accelerator-type", "type", "topology", "runtime-version", "node-id", "node-prefix",
    "workload-type", "network", "subnetwork", "provisioning-model", "min-duration", "reservation",
    "reservation-host-project", "reservation-host-folder", "reservation-host-organization",
    "valid-after-duration", "valid-after-time", "valid-until-duration", "valid-until-time",
    "service-account", "description", "range",
)  # fmt: skip
_SWITCHES = (
    "spot", "reserved", "guaranteed", "best-effort", "internal-ips", "shielded-secure-boot",
    "autocheckpoint-enabled",
)  # fmt: skip
_LISTS = ("scopes", "tags")
_DICTS = ("labels", "metadata", "metadata-from-file")
# They say how gcloud runs and prints, not what is asked for.
_IGNORED_SWITCHES = ("async", "quiet", "log-http", "user-output-enabled")
_IGNORED_VALUES = ("format", "verbosity")
_REFUSED = {
    "--max-run-duration": "the client library cannot send it",
    "--network-config": "only one network can be given here, with --network and --subnetwork",
    "--boot-disk": "encrypted boot disks are not among what this tool sends",
    "--account": "the account is that of the application default credentials",
    "--impersonate-service-account": "the account is that of the application default credentials",
    "--configuration": "settings come from the connection",
    "--flags-file": "a file of flags is not read",
}
_DELIMITERS = (",", ";", ":", "|", "~", "#", "!", "%", "@", "+", "::", ";;", "||", "~~", "-,-", "=,=")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidRequestError(
            f"The create command is not complete: {message}.",
            fix="Compare it with `gcloud compute tpus queued-resources create --help`.",
        )


def add_create_flags(parser: argparse.ArgumentParser) -> None:
    """Add every flag of `queued-resources create` to a parser, and the name."""
    parser.add_argument("name", nargs="?")
    parser.add_argument("--node-count", type=int)
    for flag in _TEXT_FLAGS:
        parser.add_argument(f"--{flag}")
    for flag in _SWITCHES:
        parser.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, default=False)
    for flag in _LISTS:
        parser.add_argument(f"--{flag}", type=split_list, default=())
    for flag in _DICTS:
        parser.add_argument(f"--{flag}", type=split_dict, default={})
    parser.add_argument("--data-disk", type=split_dict, action="append", default=[])
    for flag in _IGNORED_SWITCHES:
        short = ("-q",) if flag == "quiet" else ()
        parser.add_argument(f"--{flag}", *short, action="store_true", dest=f"ignored_{flag}")
    for flag in _IGNORED_VALUES:
        parser.add_argument(f"--{flag}", dest=f"ignored_{flag}")


def parse_create(words: list[str]) -> argparse.Namespace:
    """Parse the words after `create`.

    Raises:
        InvalidRequestError: A flag is unknown, with the nearest that exists, or has no value.
    """
    parser = _Parser(prog="create", add_help=False, allow_abbrev=False, exit_on_error=False)
    add_create_flags(parser)
    try:
        found, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise InvalidRequestError(f"{error}.", fix="Compare gcloud's own help for the flag.") from error
    faults = [_unknown_flag(word, parser) for word in unknown if word.startswith("-")]
    extra = [word for word in unknown if not word.startswith("-") and not faults]
    faults += [(f"{word!r} is one word too many.", "Quote values that have blanks.") for word in extra]
    if faults:
        raise InvalidRequestError.of_faults("The create command", faults)
    return found


def _unknown_flag(word: str, parser: argparse.ArgumentParser) -> tuple[str, str]:
    flag = word.split("=", 1)[0]
    if flag in _REFUSED:
        return f"{flag} is not supported: {_REFUSED[flag]}.", "Leave it out, or run the command with gcloud."
    known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - argparse has no other way to ask
    return f"{flag} is no flag of create.", did_you_mean(flag, known) or "See --help."


def split_list(text: str) -> tuple[str, ...]:
    """Gcloud's lists: comma-separated, or with a delimiter of one's own as in `^;^a;b`."""
    delimiter = ","
    if text.startswith("^") and "^" in text[1:]:
        delimiter, text = text[1:].split("^", 1)
        if not delimiter:
            raise argparse.ArgumentTypeError("the delimiter between ^ and ^ is empty")
    return tuple(text.split(delimiter)) if text else ()


def split_dict(text: str) -> dict[str, str]:
    """Gcloud's dictionaries: a list of `key=value`."""
    found = {}
    for item in split_list(text):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise argparse.ArgumentTypeError(
                f"{item!r} is not key=value; where a value has commas, give another delimiter first, "
                "as in ^;^key=value;key=value, or use --metadata-from-file"
            )
        found[key] = value
    return found


def join_list(items: list[str]) -> str:
    """The notation that `split_list`, and gcloud, read back as these items."""
    for delimiter in _DELIMITERS:
        text = delimiter.join(items)
        if all(delimiter not in item for item in items) and tuple(text.split(delimiter)) == tuple(items):
            if delimiter != ",":
                return f"^{delimiter}^{text}"
            if not text.startswith("^"):
                return text
    raise InvalidRequestError(
        "The metadata cannot be written as a gcloud flag: it has every delimiter in it.",
        fix="Use to_rest() and curl, or gcloud's --metadata-from-file.",
    )


def join_dict(items: dict[str, str]) -> str:
    """The notation that `split_dict`, and gcloud, read back as this dictionary."""
    return join_list([f"{key}={value}" for key, value in items.items()])
