"""Start, find and stop the processes of a gang: a controller on worker 0 and an engine on every worker.

They are detached from the SSH session that starts them, so they survive a lost connection, a sleeping laptop
and a restarted notebook kernel.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multislice_nb import errors
from multislice_nb.cluster.bootstrap import HOME, Footing
from multislice_nb.cluster.inventory import ranks_text
from multislice_nb.cluster.scale import heartbeat_milliseconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from multislice_nb.cluster.inventory import Worker
    from multislice_nb.cluster.ssh import Completed, Connections

__all__ = ["Engines", "Found"]

_MODULE = "multislice_nb.cluster.engine"
# Prints one JSON line: which of our processes live, which gang they are of, and how to reach the controller.
_FIND = """
import json, os, subprocess, sys
folder = os.path.join(os.path.expanduser("~"), sys.argv[1])
def alive(role):
    try: pid = open(os.path.join(folder, role + ".pid")).read().strip()
    except OSError: return False
    command = subprocess.run(["ps", "-o", "command=", "-p", pid], capture_output=True, text=True).stdout
    return sys.argv[2] in command and folder in command
def load(*names):
    try: return json.load(open(os.path.join(folder, *names)))
    except (OSError, ValueError): return None
spec = load("engine.json")
print(json.dumps({"engine": alive("engine"), "controller": alive("controller"), "gang": spec and spec["gang"],
                  "formed": load("formed.json"), "client": load("profile", "security", "ipcontroller-client.json")}))
"""


@dataclass(frozen=True, slots=True, repr=False)
class Found:
    """A whole gang that lives.

    Attributes:
        gang: Its id.
        client: Its controller's connection info, which is a secret.
        formed: What `remember` stored once the gang was ready.
    """

    gang: str
    client: Mapping[str, Any]
    formed: Mapping[str, Any]


class Engines:
    """The processes of one cluster on its workers."""

    def __init__(
        self, connections: Connections, workers: Sequence[Worker], footing: Mapping[int, Footing], name: str
    ) -> None:
        self._connections = connections
        self._workers = workers
        self._footing = footing
        self.folder = f"{HOME}/clusters/{name}"

    async def find(self) -> tuple[Found | None, bool]:
        """Look for a gang that lives.

        Returns:
            The gang if it is whole, and whether any process of ours lives at all.
        """
        folder = shlex.quote(self.folder)
        # Most often there is nothing, and to know that takes no Python.
        nothing = f"cd; [ -e {folder}/engine.pid ] || [ -e {folder}/controller.pid ] || exit 0; "
        done = await self._connections.run_all(
            {
                worker.rank: f"{nothing}exec {shlex.quote(self._footing[worker.rank].python)} - {folder} {_MODULE}"
                for worker in self._workers
            },
            stdin=_FIND.encode(),
        )
        seen = {rank: json.loads(end.stdout.splitlines()[-1]) for rank, end in done.items() if end.stdout}
        some = any(facts["engine"] or facts["controller"] for facts in seen.values())
        gangs = {facts["gang"] for facts in seen.values()}
        whole = (
            len(seen) == len(self._workers)
            and seen[0]["controller"]
            and all(facts["engine"] for facts in seen.values())
            and len(gangs) == 1
            and (seen[0]["formed"] or {}).get("gang") in gangs
        )
        return (Found(gangs.pop(), seen[0]["client"], seen[0]["formed"]), some) if whole else (None, some)

    async def remember(self, formed: Mapping[str, Any]) -> None:
        """Store on worker 0 what a later attach needs to find this gang again."""
        await self._all(
            {0: self._connections.run(0, self._store("formed.json"), stdin=json.dumps(formed).encode())},
            "store a file",
        )

    async def start_controller(self, *, deadline: float = 60) -> dict[str, dict[str, Any]]:
        """Start the controller on worker 0.

        Args:
            deadline: Seconds that it may take; on the emulator all engines start on the same cores meanwhile.

        Returns:
            Connection info: `client` for the notebook, `engine` for the engines. Both are secrets.

        Raises:
            errors.StartError: It did not come up; holds the end of its log.
        """
        spec = self._spec({}) | {"address": self._workers[0].address}
        command = (
            f"{self._enter('controller')} rm -rf profile/security; {self._launch(0, 'controller')}\n"
            f"pid=$!; for i in $(seq {int(deadline * 10)}); do\n"
            "  [ -s profile/security/ipcontroller-client.json ] && [ -s profile/security/ipcontroller-engine.json ] && break\n"
            "  kill -0 $pid 2>/dev/null || break; sleep 0.1\n"
            "done\n"
            "cd profile/security && cat ipcontroller-client.json && echo && echo , && cat ipcontroller-engine.json"
        )
        done = await self._connections.run(
            0, command, stdin=json.dumps(spec).encode(), deadline=deadline + 10
        )
        try:
            client, engine = json.loads(f"[{done.stdout}]")
        except ValueError as error:
            raise errors.StartError(
                f"The controller did not start on {self._workers[0]}: {await self.log_tail(0, 'controller')}",
                fix="Attach again; if it stays so, look at ~/.multislice_nb/clusters/*/controller.log there.",
            ) from error
        return {"client": client, "engine": engine}

    async def start_engines(self, gang: str, environments: Mapping[int, Mapping[str, str]]) -> None:
        """Start an engine on every worker; each waits for the controller's connection info.

        Raises:
            errors.StartError: A worker refused; says which and why.
        """
        done = {}
        for worker in self._workers:
            spec = self._spec(environments[worker.rank]) | {"gang": gang}
            done[worker.rank] = self._connections.run(
                worker.rank,
                f"{self._enter('engine')} rm -f connection.json; {self._launch(worker.rank, 'engine')}",
                stdin=json.dumps(spec).encode(),
            )
        await self._all(done, "start an engine")

    def _spec(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """What both roles are told."""
        return {
            "heartbeat_milliseconds": heartbeat_milliseconds(len(self._workers)),
            "environment": dict(environment),
        }

    async def connect_engines(self, connection: Mapping[str, Any]) -> None:
        """Hand the controller's connection info to every engine."""
        text = json.dumps(dict(connection)).encode()
        command = self._store("connection.json")
        await self._all(
            {w.rank: self._connections.run(w.rank, command, stdin=text) for w in self._workers},
            "store a file",
        )

    async def stop(
        self,
        *,
        roles: Sequence[str] = ("engine", "controller"),
        patience: float = 2.0,
        ranks: Sequence[int] | None = None,
    ) -> None:
        """End our processes: asked first, killed after `patience` seconds. Other people's are not touched.

        Raises:
            errors.ConnectError: Some workers could not be reached, and may have them still; names them.
        """
        script = (
            f"cd; cd {shlex.quote(self.folder)} 2>/dev/null || exit 0\n"
            f"for role in {' '.join(roles)}; do\n"
            '  pid=$(cat "$role.pid" 2>/dev/null) || continue\n'
            f'  ps -o command= -p "$pid" | grep -q {_MODULE} || continue\n'
            '  kill -TERM -- "-$pid" 2>/dev/null\n'
            f'  i=0; while kill -0 "$pid" 2>/dev/null && [ $i -lt {int(patience * 10)} ]; do sleep 0.1; i=$((i+1)); done\n'
            '  kill -KILL -- "-$pid" 2>/dev/null; rm -f "$role.pid"\n'
            "done; rm -f engine.end controller.end connection.json formed.json profile/security/*.json; exit 0"
        )
        chosen = range(len(self._workers)) if ranks is None else ranks
        _, unreached = await self._each({rank: self._connections.run(rank, script) for rank in chosen})
        self._require_reached(unreached, "what the gang has there runs on")

    async def require_alive(self) -> None:
        """Make sure that every engine's process lives.

        Raises:
            errors.StartError: One has ended; holds the end of its log.
        """
        path = shlex.quote(f"{self.folder}/engine.pid")
        command = f'cd; [ ! -e {path} ] || kill -0 "$(cat {path})" 2>/dev/null'
        done = await self._connections.run_all(
            {worker.rank: command for worker in self._workers}, deadline=20
        )
        dead = [rank for rank, end in done.items() if end.exit_status != 0]
        if dead:
            raise errors.StartError(
                f"The engine of {ranks_text(dead)} ended while it started; "
                f"{self._workers[dead[0]]}: {await self.log_tail(dead[0])}",
                fix="Mend what its log says on that worker, then attach again.",
            )

    async def vanished(self, rank: int) -> str:
        """What became of the processes that must live on a worker whose SSH connection had dropped.

        Empty if they live, or if the engine crashed by itself, of which the controller tells. Without a controller
        on worker 0 there is no gang, whatever its end.
        """
        crashes = " ".join(f"-e SIG{name}" for name in ("SEGV", "ABRT", "BUS", "ILL", "FPE"))
        crashes += " -e 'lack of memory'"
        script = (
            f"cd; cd {shlex.quote(self.folder)} 2>/dev/null || {{ echo reset; exit; }}\n"
            f'lives() {{ ps -o command= -p "$(cat $1.pid 2>/dev/null)" 2>/dev/null | grep -q {_MODULE}; }}\n'
            f"lives engine || grep -qs {crashes} engine.end || {{ echo reset; exit; }}\n"
            f"{'lives controller' if rank == 0 else 'true'} || cat controller.end || echo - without a word"
        )
        told = (await self._connections.run(rank, script, deadline=20)).stdout.strip()
        node = self._workers[rank].node_id
        if told == "reset":
            return f"node {node} was reset: SSH dropped, and the gang's processes there are ended"
        return f"the controller there ended: {told.partition(' ')[2]}" if told else ""

    async def endings(self, ranks: Sequence[int], *, lines: int = 8, deadline: float = 20) -> dict[int, str]:
        """How engines that are gone ended, where that can be read within `deadline` seconds.

        Returns:
            By rank, a line as `1700000000.0 killed by SIGSEGV`, in seconds since the epoch on that worker,
            and below it the end of its log.
        """
        folder = shlex.quote(self.folder)
        command = (
            f"cd; cd {folder} 2>/dev/null || exit 0; i=0\n"
            "while [ ! -s engine.end ] && [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done\n"
            f'{{ [ -s engine.end ] && cat engine.end; }} || echo "$(date +%s) its end was not seen"; grep -v "^.Gloo. Rank" engine.log | tail -n {lines}'
        )
        return {rank: text.strip() for rank, text in (await self._told(ranks, command, deadline)).items()}

    async def log_tail(self, rank: int, role: str = "engine", *, lines: int = 12) -> str:
        """The end of a process's log on a worker."""
        done = await self._connections.run(
            rank, f"cd; tail -n {lines} {shlex.quote(f'{self.folder}/{role}.log')} 2>&1", deadline=20
        )
        return done.stdout.strip()

    async def stacks(self, ranks: Sequence[int], *, deadline: float = 20) -> dict[int, str]:
        """The Python stacks that engines write when they are asked for them, each read once.

        Of those that can be reached within `deadline` seconds.
        """
        command = (
            f"cd; cd {shlex.quote(self.folder)} || exit 0; i=0\n"
            "while [ ! -s stacks.txt ] && [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done\n"
            "sleep 0.1; tail -c 4000 stacks.txt; : > stacks.txt"
        )
        return await self._told(ranks, command, deadline)

    async def _told(self, ranks: Sequence[int], command: str, deadline: float) -> dict[int, str]:
        """What a command prints on each of some workers; those whose VM may be gone are left out."""
        ended, _ = await self._each(
            {rank: self._connections.run(rank, command, deadline=deadline) for rank in ranks}
        )
        return {rank: end.stdout for rank, end in ended.items()}

    async def _each(
        self, runs: Mapping[int, Awaitable[Completed]]
    ) -> tuple[dict[int, Completed], dict[int, errors.ConnectError]]:
        """Wait for all of these: by rank how each ended, and why the others were not reached."""
        ended = await asyncio.gather(*runs.values(), return_exceptions=True)
        done, unreached = {}, {}
        for rank, end in zip(runs, ended, strict=True):
            if isinstance(end, errors.ConnectError):
                unreached[rank] = end
            elif isinstance(end, BaseException):
                raise end
            else:
                done[rank] = end
        return done, unreached

    def _require_reached(self, unreached: Mapping[int, errors.ConnectError], state: str) -> None:
        if unreached:
            first = unreached[min(unreached)]
            raise errors.ConnectError(
                f"{ranks_text(unreached, total=len(self._workers)).capitalize()} could not be reached, and {state}: "
                f"{first.what}",
                fix=first.fix,
            ) from first

    def _enter(self, role: str) -> str:
        """Go to the cluster's folder and store this role's settings, which come on standard input."""
        return f"cd; umask 077; mkdir -p {shlex.quote(self.folder)} && cd {shlex.quote(self.folder)} && rm -f {role}.pid && cat > {role}.json || exit 1;"

    def _store(self, name: str) -> str:
        """Write standard input to a file that appears whole or not at all."""
        return f"cd; umask 077; cd {shlex.quote(self.folder)} && cat > {name}.tmp && mv {name}.tmp {name}"

    def _launch(self, rank: int, role: str) -> str:
        footing = self._footing[rank]
        return (
            f'PYTHONPATH="$HOME"/{shlex.quote(footing.library)}:"$HOME"/{HOME}/packages"${{PYTHONPATH:+:$PYTHONPATH}}" '
            f'nohup {shlex.quote(footing.python)} -m {_MODULE} "$PWD" {role} > {role}.log 2>&1 < /dev/null & '
            f"echo $! > {role}.pid"  # at once, for whoever ends it before it has come so far itself
        )

    async def _all(self, runs: Mapping[int, Awaitable[Completed]], purpose: str) -> None:
        ended, unreached = await self._each(runs)
        self._require_reached(unreached, f"may not {purpose}")
        failed = {rank: end for rank, end in ended.items() if end.exit_status != 0}
        if failed:
            end = failed[min(failed)]
            raise errors.StartError(
                f"{ranks_text(failed)} could not {purpose}; {end.worker}: {end.stderr.strip()[-500:]}",
                fix="Check the worker's disk and home folder, then attach again.",
            )
