"""`python -m multislice_nb job …`: jobs from a shell, from any machine that can reach their store."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from multislice_nb.jobs.job import Job
    from multislice_nb.jobs.logs import LogLine

__all__ = ["add_parser", "run"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `job` to the command line."""
    parser = commands.add_parser("job", help="unattended runs that survive preemption")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    submit = actions.add_parser("submit", help="run a command or a notebook on every worker of new slices")
    _submit_arguments(submit)
    _add(actions, "list", "all jobs of a store")
    _add(actions, "status", "one job, its attempts and its workers").add_argument("name")
    _add(actions, "cancel", "end a job; logs and results are kept").add_argument("name")
    retry = _add(actions, "retry", "run it again on new slices, from its last checkpoint")
    retry.add_argument("name")
    retry.add_argument("--node-count", type=int, help="on that many slices")
    wait = _add(actions, "wait", "wait until a job has ended and its slices are gone")
    wait.add_argument("name")
    wait.add_argument("--timeout", help="how long, as 2h")
    logs = _add(actions, "logs", "the workers' logs, in order of time")
    logs.add_argument("name")
    logs.add_argument("--follow", "-f", action="store_true", help="go on until the job has ended")
    logs.add_argument("--ranks", type=_ranks, help="only these workers, as 0,2-3")
    logs.add_argument("--attempt", type=int, help="only this attempt")
    logs.add_argument("--grep", metavar="REGEX", type=_pattern, default="", help="only lines that match")
    logs.add_argument(
        "--errors", action="store_true", help="only lines that look like errors, the first first"
    )
    logs.add_argument("--supervisor", action="store_true", help="what the supervisors logged themselves")
    _add(
        actions, "remove", "forget a job that has ended, with its logs, results and checkpoints"
    ).add_argument("name")
    manifest = _add(actions, "jobset", "print the same job as a JobSet manifest for Multislice on GKE")
    manifest.add_argument("name")
    manifest.add_argument("--image", required=True, help="container image with the command")
    manifest.add_argument("--accelerator-type", help="other slices than the job's, as tpu7x-32")
    manifest.add_argument("--node-count", type=int, help="another number of slices than the job's")
    for flag in ("--namespace", "--service-account", "--queue"):
        manifest.add_argument(flag)
    results = _add(actions, "results", "copy a job's results to a folder")
    results.add_argument("name")
    results.add_argument("folder", type=Path, nargs="?", help="the job's name if left out")


def _add(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary)
    parser.add_argument("--store", help="bucket or folder; MULTISLICE_NB_STORE if left out")
    return parser


def _submit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--store", help="bucket or folder; MULTISLICE_NB_STORE if left out")
    parser.add_argument("--accelerator-type", required=True)
    parser.add_argument("--node-count", type=int, default=1)
    parser.add_argument("--folder", help="folder of the code")
    parser.add_argument("--notebook", help="execute this notebook instead of a command")
    parser.add_argument(
        "--parameters", type=_parameters, default={}, help="the notebook's parameters, as JSON"
    )
    parser.add_argument("--requirement", action="append", help="a package, as pip writes it; repeatable")
    parser.add_argument("--setup", default="", help="a shell command that prepares each worker once")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--secret", action="append", default=[], metavar="NAME=projects/…/versions/…")
    parser.add_argument("--time-limit", help="for the whole run, as 12h")
    parser.add_argument("--max-restarts", type=int)
    for flag in ("--spot", "--reserved", "--dry-run"):
        parser.add_argument(flag, action="store_true")
    for flag in (
        "--runtime-version",
        "--network",
        "--subnetwork",
        "--service-account",
        "--valid-until-duration",
    ):
        parser.add_argument(flag)
    parser.add_argument("--project")
    parser.add_argument("--zone")
    words = "what runs on every worker: all the words after this"
    parser.add_argument("--command", nargs=argparse.REMAINDER, default=[], dest="words", help=words)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for; the exit status tells whether a job that was waited for did well."""
    from multislice_nb import jobs

    action = arguments.action
    if action == "submit":
        print(_submit(arguments))
        return 0
    if action == "list":
        print(jobs.list(store=arguments.store))
        return 0
    job = jobs.get(arguments.name, store=arguments.store)
    if action == "wait":
        status = job.wait(timeout=arguments.timeout)
        print(status)
        return 0 if status.state == "succeeded" else 1
    _ON_A_JOB[action](job, arguments)
    return 0


def _status(job: Job, _: argparse.Namespace) -> None:
    print(job.tend())


def _cancel(job: Job, _: argparse.Namespace) -> None:
    print(job.cancel().ending())


def _retry(job: Job, arguments: argparse.Namespace) -> None:
    print(job.retry(node_count=arguments.node_count))


def _remove(job: Job, _: argparse.Namespace) -> None:
    job.remove()
    print(f"Job {job.name} was removed from the store.")


def _results(job: Job, arguments: argparse.Namespace) -> None:
    found = job.results(arguments.folder or job.name)
    print("\n".join(map(str, found)) or f"Job {job.name} has no results yet.")


def _jobset(job: Job, arguments: argparse.Namespace) -> None:
    names = ("accelerator_type", "node_count", "namespace", "service_account", "queue")
    given = {name: getattr(arguments, name) for name in names}
    print(job.jobset(arguments.image, **{name: value for name, value in given.items() if value is not None}))


def _logs(job: Job, arguments: argparse.Namespace) -> None:
    wanted = re.compile(arguments.grep)
    lines: Iterable[LogLine] = (
        job.errors(attempt=arguments.attempt)
        if arguments.errors
        else job.logs(
            ranks=arguments.ranks,
            attempt=arguments.attempt,
            follow=arguments.follow,
            supervisor=arguments.supervisor,
        )
    )
    found = False
    for line in lines:
        if wanted.search(line.text):
            print(line, flush=True)
            found = True
    if not found:
        print(f"Job {job.name} has logged no such line.", file=sys.stderr)


_ON_A_JOB = {
    "cancel": _cancel,
    "jobset": _jobset,
    "logs": _logs,
    "remove": _remove,
    "results": _results,
    "retry": _retry,
    "status": _status,
}


def _submit(arguments: argparse.Namespace) -> object:
    from multislice_nb import jobs
    from multislice_nb.cloud import connect

    cloud = connect(arguments.project, arguments.zone)
    options: dict[str, Any] = {
        "accelerator_type": arguments.accelerator_type,
        "node_count": arguments.node_count,
        "folder": arguments.folder,
        "requirements": arguments.requirement,
        "setup": arguments.setup,
        "env": _pairs("--env", arguments.env),
        "secrets": _pairs("--secret", arguments.secret),
        "limits": _limits(arguments, emulated=cloud.is_emulator),
        "store": arguments.store,
        "cloud": cloud,
        "dry_run": arguments.dry_run,
    }
    for name in (
        "spot",
        "reserved",
        "runtime_version",
        "network",
        "subnetwork",
        "service_account",
        "valid_until_duration",
    ):
        if getattr(arguments, name):
            options[name] = getattr(arguments, name)
    command = arguments.words
    if bool(command) == bool(arguments.notebook):
        raise InvalidRequestError(
            "A job runs either a command or a notebook.",
            fix="End with --command and its words, or name --notebook.",
        )
    if arguments.notebook:
        given = arguments.parameters
        return jobs.submit_notebook(arguments.name, arguments.notebook, parameters=given, **options)
    return jobs.submit(arguments.name, command[0] if len(command) == 1 else shlex.join(command), **options)


def _limits(arguments: argparse.Namespace, *, emulated: bool) -> object:
    from dataclasses import replace

    from multislice_nb.cloud.times import parse_duration
    from multislice_nb.jobs.record import Limits
    from multislice_nb.jobs.submitting import emulator_limits

    limits = emulator_limits() if emulated else Limits()
    if arguments.time_limit:
        limits = replace(limits, time_limit=parse_duration(arguments.time_limit).total_seconds())
    if arguments.max_restarts is not None:
        limits = replace(limits, max_restarts=arguments.max_restarts)
    return limits


def _pairs(flag: str, words: Sequence[str]) -> dict[str, str]:
    found = dict(word.partition("=")[::2] for word in words)
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise InvalidRequestError(f"{flag} {wrong[0]} has no value.", fix=f"Write {flag} NAME=VALUE.")
    return found


def _ranks(text: str) -> list[int]:
    try:
        ranges = [part.partition("-") for part in text.split(",")]
        return [rank for first, _, last in ranges for rank in range(int(first), int(last or first) + 1)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} does not name ranks; write them as 0,2-3") from None


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def _parameters(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object, as '{{\"steps\": 100}}' is")
    return found
