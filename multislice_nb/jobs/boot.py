"""The first program of a worker, inlined into the startup script: standard library of any Python 3.8.

It sees to a Python that fits, fetches this package's archive from the store, starts the supervisor, starts it
again should it die, and keeps a guard: a process that deletes the queued resource when all else failed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

HOME = Path("~").expanduser() / ".multislice_nb"
MOST_STARTS = 5
LONG = 600.0
"""Seconds after which a supervisor that ends was up: what ended it before counts no more."""
CHECK = """
import sys
import importlib.metadata as metadata
try:
    from packaging.requirements import Requirement
except ImportError:
    from pip._vendor.packaging.requirements import Requirement
def fits(text):
    wanted = Requirement(text)
    if wanted.marker and not wanted.marker.evaluate():
        return True
    try:
        return not wanted.url and wanted.specifier.contains(metadata.version(wanted.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
sys.exit(0 if sys.version_info >= (3, 11) and all(map(fits, sys.argv[1:])) else 1)
"""


def say(text: str) -> None:
    """Tell the startup script's log."""
    print(f"multislice_nb: {text}", file=sys.stderr, flush=True)


def call(url: str, method: str = "GET", content: bytes | None = None, **headers: str) -> bytes:
    """Make an HTTP call."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, content, named, method=method)  # noqa: S310 - Google's or the machine's own
    with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - Google's or the machine's own
        return bytes(response.read())


def metadata(entry: str) -> bytes:
    """What the metadata server says of this machine."""
    host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    return call(f"http://{host}/computeMetadata/v1/instance/{entry}", Metadata_Flavor="Google")


def authorized(url: str, method: str = "GET", content: bytes | None = None) -> bytes:
    """Make an HTTP call as the worker's service account."""
    token = json.loads(metadata("service-accounts/default/token"))["access_token"]
    kind = {} if content is None else {"Content_Type": "application/octet-stream"}
    return call(url, method, content, Authorization=f"Bearer {token}", **kind)


def delete(queued_resource: str) -> None:
    """Ask for the deletion of everything, again and again."""
    root = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU") or "https://tpu.googleapis.com/"
    while True:
        try:
            authorized(f"{root.rstrip('/')}/v2/{queued_resource}?force=true", "DELETE")
            say(f"asked for the deletion of {queued_resource}")
        except (OSError, ValueError) as error:
            say(f"could not delete {queued_resource}: {error}")
        time.sleep(60)


def guard(plan: dict[str, Any]) -> None:
    """A process that outlives the supervisor and deletes everything after the run's whole time."""
    if os.fork():
        return
    os.setsid()
    try:
        Path("/proc/self/oom_score_adj").write_text("-1000")
    except OSError:
        say("only root keeps the guard from the kernel's reach when memory runs out")
    time.sleep(plan["guard_seconds"])
    give_up(plan, "the run's whole time is over, and nothing had ended it", "timed out")


def place_in(store: str, key: str) -> tuple[str, str, str]:
    """Where an object is in Cloud Storage: the service, the bucket and the object's name in a URL."""
    bucket, _, folder = store[5:].partition("/")
    root = os.environ.get("STORAGE_EMULATOR_HOST") or "https://storage.googleapis.com"
    return root, bucket, urllib.parse.quote(f"{folder}/{key}".strip("/"), safe="")


def fetch(store: str, key: str) -> bytes:
    """Read an object of the store."""
    if store.startswith("gs://"):
        root, bucket, name = place_in(store, key)
        return authorized(f"{root}/storage/v1/b/{bucket}/o/{name}?alt=media")
    return Path(store[len("file://") :], key).read_bytes()


def create(store: str, key: str, content: bytes) -> None:
    """Put an object into the store where there is none: what another worker wrote first stands."""
    if store.startswith("gs://"):
        root, bucket, name = place_in(store, key)
        where = f"uploadType=media&name={name}&ifGenerationMatch=0"
        authorized(f"{root}/upload/storage/v1/b/{bucket}/o?{where}", "POST", content)
        return
    path = Path(store[len("file://") :], key)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


def place(plan: dict[str, Any]) -> str:
    """Which worker this is, as people read it."""
    text = metadata("attributes/tpu-env").decode()
    known = dict(re.findall(r"(?m)^\s*(\w+)\s*:\s*'?(.*?)'?\s*$", text))
    slice_id, worker_id = int(known.get("MEGASCALE_SLICE_ID") or 0), int(known["WORKER_ID"])
    rank = worker_id + slice_id * plan["workers_per_slice"]
    return f"rank {rank} (slice {slice_id}, worker {worker_id})"


def give_up(plan: dict[str, Any], why: str, outcome: str = "failed") -> None:
    """Say how the run ended, as the supervisor would have done, and delete everything."""
    say(why)
    try:
        end = {"outcome": outcome, "reason": f"{place(plan)}: {why}", "time": time.time()}
        create(plan["store"], plan["end"], json.dumps(end).encode())
    except (OSError, ValueError, KeyError) as error:
        say(f"the end of the run could not be told: {error}")
    delete(plan["queued_resource"])


def library(plan: dict[str, Any]) -> Path:
    """This package's archive on this machine, fetched if it is not here yet."""
    path = HOME / "lib" / str(plan["library"])
    limit = time.monotonic() + plan["fetch_seconds"]
    pause = 1.0
    while not path.exists():
        try:
            content = fetch(plan["store"], f"packages/{plan['library']}")
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            draft.write_bytes(content)
            draft.replace(path)
        except (OSError, ValueError) as error:
            say(f"cannot read {plan['store']}: {error}")
            if time.monotonic() > limit:
                give_up(plan, f"nothing can run without {plan['library']}, which cannot be read: {error}")
            time.sleep(pause)
            pause = min(2 * pause, 30.0)
    return path


def fits(python: str, requirements: list[str]) -> bool:
    """Whether a Python is new enough and has all of these packages."""
    try:
        return subprocess.call([python, "-c", CHECK, *requirements], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def run(*argv: str) -> None:
    """Run a program; where it fails, the error has its last words."""
    done = subprocess.run(argv, stderr=subprocess.PIPE, check=False)
    said = done.stderr.decode(errors="replace")
    sys.stderr.write(said)
    if done.returncode:
        raise OSError(" ".join(said.split())[-500:] or f"{argv[0]} ended with status {done.returncode}")


def python_for(requirements: list[str], name: str) -> str:
    """A Python with these packages: the machine's own if it has them, else an environment made once."""
    if fits("python3", requirements):
        return "python3"
    folder = str(HOME / name)
    python = f"{folder}/bin/python3"
    if fits(python, requirements):
        return python
    say(f"making an environment with {' '.join(requirements) or 'nothing but Python'}")
    uv = str(HOME / "uv" / "bin" / "uv")
    if not Path(
        uv
    ).exists():  # into a folder of its own, which also distributions allow that guard their Python
        run(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(HOME / "uv"), "uv")
    run(uv, "venv", "--quiet", "--clear", "--python", ">=3.11", folder)
    wanted = [*requirements, "packaging", "pip"]  # to tell what is there, and for the job's own setup
    run(uv, "pip", "install", "--quiet", "--python", python, *wanted)
    return python


def prepare(plan: dict[str, Any]) -> tuple[str, str]:
    """The supervisor's Python and the command's."""
    trouble = ""
    for attempt in range(5):
        try:
            ours = python_for(plan["supervisor_requirements"], "supervisor")
            return ours, python_for(plan["requirements"], plan["environment"])
        except OSError as error:
            trouble = f"its environment cannot be made: {error}"
            say(trouble)
            time.sleep(10 * 2**attempt)
    give_up(plan, trouble)
    raise SystemExit(1)


def supervise(argv: list[str], environment: dict[str, str]) -> bool:
    """Keep the supervisor up until it ends by itself; gives up where it ends soon again and again."""
    starts = 0
    while starts < MOST_STARTS:
        began = time.monotonic()
        code = subprocess.call(argv, env=environment)
        if code == 0:
            return True
        starts = 1 if time.monotonic() - began > LONG else starts + 1
        say(f"the supervisor ended with status {code}")
        time.sleep(5 * 2 ** (starts - 1))
    return False


def main(plan: dict[str, Any]) -> None:
    """See to everything the supervisor needs, and to the supervisor."""
    os.environ.update(plan["endpoints"])
    guard(plan)
    archive = library(plan)
    ours, theirs = prepare(plan)
    paths = [str(archive), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "HOME": str(HOME.parent), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if "/" in theirs:
        environment["PATH"] = f"{Path(theirs).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    argv = [ours, "-m", "multislice_nb.jobs.supervisor"]
    for name in ("store", "job", "run", "queued_resource"):
        argv += [f"--{name.replace('_', '-')}", str(plan[name])]
    if not supervise(argv, environment):
        give_up(plan, "the supervisor does not stay up")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
