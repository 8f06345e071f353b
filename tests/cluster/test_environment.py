"""Who holds a TPU, packages, variables and the bootstrap, on real workers over SSH."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from multislice_nb import errors
from multislice_nb._portal import sync
from multislice_nb.cluster.environment import Environment
from multislice_nb.cluster.errand import errand
from multislice_nb.cluster.provision import UV, provision, python_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multislice_nb.cluster import Cluster
    from multislice_nb.cluster.reaching import Reach


@pytest.fixture
def environment(reached: Reach, homes: list[Path]) -> Iterator[Environment]:
    """The workers' environment, with a file in each home folder in place of a TPU device and one for its lock."""
    for home in homes:
        (home / "accel0").touch()
        (home / "libtpu_lockfile").unlink(missing_ok=True)
    found = Environment(reached.connections, reached.workers, reached.site.name)
    found._places["devices"] = ["~/accel*"]
    found._places["locks"] = ["~/libtpu_lockfile"]
    yield found
    found.clean(force=True, grace=1.0)
    for command in reached.shell.detached():
        command.stop(grace=0.0)


@pytest.fixture(scope="module")
def uv(reached: Reach, homes: list[Path]) -> Path:
    """The folder of uv on rank 0, downloaded by it and then linked to the other workers."""
    request = UV | {"python": python_version(), "requirements": "", "beside": False}
    sync(errand, reached.connections, reached.workers[0], "provision:lock", request)
    folder = homes[0] / f".multislice_nb/uv-{UV['uv']}"
    for home in homes[1:]:
        share(folder, home)
    return folder


def share(folder: Path, home: Path) -> None:
    """Spare a worker the download."""
    shutil.copytree(folder, home / ".multislice_nb" / folder.name, copy_function=os.link, dirs_exist_ok=True)


def hold(reached: Reach, rank: int) -> int:
    """Have a process that is not ours hold a worker's device; returns its pid."""
    command = "setsid nohup sh -c 'exec sleep 300 3<$HOME/accel0' >/dev/null 2>&1 & echo $!"
    return int(sync(reached.connections.run, rank, command).stdout)


def test_a_holder_is_named_with_its_owner(reached: Reach, environment: Environment) -> None:
    """Pid, user, command and age of what holds a TPU are told for each worker, and whether it is ours."""
    started = reached.shell.start("exec 3<~/accel0; echo on; exec sleep 300", ranks=1, distributed=False)
    stranger = hold(reached, 2)
    report = environment.report()
    while not report.workers[1].holders:
        report = environment.report()
    assert [[holder.ours for holder in worker.holders] for worker in report.workers] == [
        [],
        [True],
        [False],
        [],
    ]
    holder = report.workers[2].holders[0]
    assert (holder.pid, holder.command) == (stranger, "sleep 300")
    assert not report.free
    assert f"TPU held by pid {stranger} of {holder.user}" in str(report)
    assert report.workers[0].versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert report.workers[0].disk_free > 0
    started.stop(grace=0.0)


def test_ours_is_ended_and_others_only_with_force(reached: Reach, environment: Environment) -> None:
    """Cleaning ends what this package started and leaves the rest alone, named, until force is said."""
    started = reached.shell.start("trap '' TERM; exec 3<~/accel0; sleep 300", ranks=1, distributed=False)
    stranger = hold(reached, 1)
    while len(environment.report().workers[1].holders) < 2:
        pass
    result = environment.clean(grace=0.3)
    assert any(process.ours for process in result.ended[1])
    assert [(process.pid, why) for process, why in result.spared[1]] == [(stranger, "not ours")]
    assert not started.status().running
    assert "left alone, not ours" in str(result)
    forced = environment.clean(force=True)
    assert [process.pid for process in forced.ended[1]] == [stranger]
    assert environment.report().free


def test_a_stale_lock_file_is_told_and_removed(
    reached: Reach, homes: list[Path], environment: Environment
) -> None:
    """A lock that nobody holds is reported and removed; one whose owner lives is kept, since two would get in."""
    (homes[0] / "libtpu_lockfile").touch()
    (homes[3] / "libtpu_lockfile").touch()
    command = "setsid nohup sh -c 'exec sleep 300 3<$HOME/libtpu_lockfile' >/dev/null 2>&1 & echo $!"
    owner = int(sync(reached.connections.run, 3, command).stdout)
    report = environment.report()
    assert report.workers[0].stale_locks == [str(homes[0] / "libtpu_lockfile")]
    assert report.workers[3].locks[str(homes[3] / "libtpu_lockfile")] == (owner,)
    assert "stale, held by nobody" in str(report)
    result = environment.clean()
    assert result.removed[0] == (str(homes[0] / "libtpu_lockfile"),)
    assert (homes[3] / "libtpu_lockfile").exists()
    environment.clean(force=True)
    assert not (homes[3] / "libtpu_lockfile").exists()


def test_a_port_in_use_is_told_with_its_owner(reached: Reach, environment: Environment) -> None:
    """The coordinator's port that an earlier tenant still holds is found before a gang would hang on it."""
    server = (
        "import socket, sys, time; s = socket.create_server((sys.argv[1], 0)); "
        "print(s.getsockname()[1], flush=True); time.sleep(300)"
    )
    address = reached.workers[2].address
    started = reached.shell.start(f'exec python3 -c "{server}" {address}', ranks=2, distributed=False)
    while not (text := started.output().stdout[0].strip()):
        pass
    environment._places["ports"] = [int(text)]
    report = environment.report()
    assert [list(worker.ports) for worker in report.workers] == [[], [], [int(text)], []]
    assert report.workers[2].ports[int(text)][0].ours
    started.stop(grace=0.0)


def test_packages_are_added_in_one_version_everywhere(
    reached: Reach, homes: list[Path], uv: Path, tmp_path: Path
) -> None:
    """What the engines lack is installed by hash on all workers, and what they have is not touched."""
    environment = reached.environment
    (tmp_path / "requirements.txt").write_text("inflection==0.5.1\n")
    result = environment.install("numpy", requirements=tmp_path / "requirements.txt")
    assert result.added == dict.fromkeys(range(4), ("inflection==0.5.1",))
    assert str(result) == "[all 4] added inflection==0.5.1"
    shown = reached.shell.run("python3 -c 'import inflection, numpy; print(inflection.__file__)'")
    assert shown.stdout == [f"{home}/.multislice_nb/packages/inflection/__init__.py\n" for home in homes]
    assert str(environment.install("inflection")) == "[all 4] all was there"
    with pytest.raises(errors.StartError, match="No versions fit"):
        environment.install("jax<0.1")
    for words in ((), ("--index-url=x",), ("a\nb",)):
        with pytest.raises(errors.InvalidRequestError):
            environment.install(*words)


def test_an_environment_is_made_once_and_goes_on_where_it_stopped(reached: Reach, homes: list[Path]) -> None:
    """A fresh worker gets the locked packages; a second time nothing is done; a half-made one is completed."""
    packages = ["inflection==0.5.1"]
    chosen = reached.workers[:2]
    places = [home / ".multislice_nb" for home in homes[:2]]
    try:
        assert sync(provision, reached.connections, chosen, packages) == {0: True, 1: True}
        for place in places:
            assert (place / f"uv-{UV['uv']}/bin/uv").exists()
            program = "import inflection, sys; print(sys.prefix)"
            shown = subprocess.run(
                [place / "venv/bin/python", "-c", program], check=True, capture_output=True, text=True
            )
            assert shown.stdout.strip() == str(place / "venv")
        assert sync(provision, reached.connections, chosen, packages) == {0: False, 1: False}
        made = (places[1] / "venv").resolve()
        (made / "ready.json").unlink()
        shutil.rmtree(next(made.glob("lib/*/site-packages/inflection")))
        shutil.rmtree(next(made.glob("lib/*/site-packages/inflection-*")))
        assert sync(provision, reached.connections, chosen, packages) == {0: False, 1: True}
        assert list(made.glob("lib/*/site-packages/inflection"))
    finally:
        for place in places:
            (place / "venv").unlink(missing_ok=True)
            shutil.rmtree(place / "venvs", ignore_errors=True)


def test_a_package_with_another_hash_is_refused(
    reached: Reach, emulator_home: Path, homes: list[Path], tmp_path: Path
) -> None:
    """What the index serves must be what was locked; otherwise the worker and the package are named."""
    packages = ["inflection==0.5.0"]
    try:
        sync(provision, reached.connections, reached.workers[:1], packages)
        for lock in (emulator_home / "locks").glob("*.txt"):
            lines = lock.read_text().splitlines()
            kept = [line for line in lines if "--hash" not in line]
            lock.write_text("\n".join([*kept, f"    --hash=sha256:{'0' * 64}"]) + "\n")
        shutil.rmtree(homes[1] / ".cache", ignore_errors=True)
        with pytest.raises(errors.StartError, match=r"(?s)rank 1.*inflection"):
            sync(provision, reached.connections, reached.workers[1:2], packages)
        assert not (homes[1] / ".multislice_nb/venv").exists()
    finally:
        (homes[0] / ".multislice_nb/venv").unlink(missing_ok=True)
        for home in homes[:2]:
            shutil.rmtree(home / ".multislice_nb/venvs", ignore_errors=True)
        shutil.rmtree(emulator_home / "locks", ignore_errors=True)


def test_variables_reach_commands_and_are_private(reached: Reach, homes: list[Path], tmp_path: Path) -> None:
    """An environment file is kept on every worker for its user alone, and a later one takes its place."""
    (tmp_path / "train.env").write_text("TOKEN='s e;cret'\nCOLOR=red\n")
    reached.environment.set(tmp_path / "train.env")
    assert reached.shell.run('echo "$TOKEN $COLOR"').stdout == ["s e;cret red\n"] * 4
    kept = homes[2] / ".multislice_nb/environment.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    reached.environment.set({"COLOR": "blue"})
    assert reached.shell.run('echo "$TOKEN$COLOR"').stdout == ["blue\n"] * 4
    assert reached.environment.variables()[3] == {"COLOR": "blue"}
    reached.environment.set({})


@pytest.mark.timeout(120)
def test_a_running_gang_takes_them_over(cluster: Cluster, uv: Path) -> None:
    """Engines see variables and packages at once, keep them over a restart, and are not ended by a cleaning."""
    late = cluster.environment.set({"COLOR": "red", "XLA_FLAGS": ""})
    assert late == ("XLA_FLAGS",)
    assert cluster.run("import os; os.environ['COLOR']").values == ["red"] * 4
    for home in cluster.run("os.path.expanduser('~')").values:
        share(uv, Path(home))
    cluster.environment.install("inflection==0.5.1")
    assert cluster.run("import inflection; inflection.__name__").values == ["inflection"] * 4
    pids = cluster.run("import os; held = open(os.path.expanduser('~/accel0'), 'w'); os.getpid()").values
    cluster.environment._places["devices"] = ["~/accel0"]
    result = cluster.environment.clean()
    assert {
        process.pid
        for rank in range(4)
        for process, why in result.spared[rank]
        if why == "of the gang in use"
    } >= set(pids)
    assert cluster.run("os.environ['COLOR']").values == ["red"] * 4
    cluster.environment.set({})
    assert cluster.run("'COLOR' in os.environ").values == [False] * 4
