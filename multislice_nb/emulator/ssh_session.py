"""What a client may do once it is logged in to an emulated worker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import asyncssh

if TYPE_CHECKING:
    from pathlib import Path

    from multislice_nb.emulator.vm import Vm

Process = asyncssh.SSHServerProcess[bytes]
_CHUNK = 65536
# A shell's status for what is there and cannot be executed.
_CANNOT_EXECUTE = 126
# Makes the terminal the controlling one, which needs a process of its own between setsid and exec.
_TAKE_TERMINAL = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0,termios.TIOCSCTTY,0); os.execvp(sys.argv[1],sys.argv[1:])"
)


def server_options(vm: Vm) -> asyncssh.SSHServerConnectionOptions:
    """Settings of asyncssh for one worker: keys only, nothing forwarded but to the worker itself."""
    return asyncssh.SSHServerConnectionOptions(
        server_factory=lambda: _WorkerServer(vm),
        server_host_keys=[vm.host_key()],
        process_factory=lambda process: _run(vm, process),
        sftp_factory=lambda channel: _WorkerFiles(channel, vm),
        allow_scp=True,
        encoding=None,
        line_editor=False,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        public_key_auth=True,
        gss_host=None,
        agent_forwarding=False,
        x11_forwarding=False,
        login_timeout=30,
    )


class _WorkerServer(asyncssh.SSHServer):
    def __init__(self, vm: Vm) -> None:
        self._vm = vm

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002 - asyncssh's signature
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        offered = key.public_data
        # Every key is compared, so that the time taken says nothing about which one matched.
        matches = [hmac.compare_digest(offered, known) for known in self._vm.authorized_keys(username)]
        return any(matches)

    def connection_requested(
        self,
        dest_host: str,
        dest_port: int,  # noqa: ARG002 - asyncssh's signature
        orig_host: str,  # noqa: ARG002
        orig_port: int,  # noqa: ARG002
    ) -> bool:
        return dest_host in {self._vm.address, "localhost", "127.0.0.1", self._vm.hostname}


class _WorkerFiles(asyncssh.SFTPServer):
    """The files as the worker's commands see them: relative paths start at its home folder."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], vm: Vm) -> None:
        super().__init__(channel)
        vm.prepare()
        self._home = os.fsencode(vm.home)
        self._vm = vm

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)  # noqa: PTH118 - SFTP's paths are bytes

    def reverse_map_path(self, path: bytes) -> bytes:
        return path

    def realpath(self, path: bytes) -> bytes:
        return os.path.realpath(self.map_path(path))

    def write(self, file_obj: object, offset: int, data: bytes) -> Any:
        if self._vm.faults.disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(file_obj, offset, data)

    def exit(self) -> None:
        # OpenSSH's scp takes a channel without an exit status for a failure.
        with contextlib.suppress(OSError):
            self.channel.exit(0)


async def _run(vm: Vm, process: Process) -> None:
    """Run what the client asked for, and hand back its exit status or signal."""
    user = process.get_extra_info("username")
    argv = ["bash", "-c", process.command] if process.command else ["bash", "-l"]
    if process.subsystem:
        process.exit(1)
        return
    terminal = process.term_type is not None
    session = _Terminal(vm, process) if terminal else _Pipes(vm, process)
    try:
        code = await session.run(argv, {"USER": user, "LOGNAME": user, **_wanted(process)})
    except (OSError, ValueError) as error:
        sink = process.stdout if terminal else process.stderr
        sink.write(f"bash: the command could not be started: {error}\n".encode())
        process.exit(_CANNOT_EXECUTE)
        return
    if code < 0:
        name = signal.Signals(-code).name.removeprefix("SIG")
        process.exit_with_signal(name)
    else:
        process.exit(code)


def _wanted(process: Process) -> dict[str, str]:
    # As sshd's AcceptEnv of TPU VM images: the client's locale and terminal, nothing else.
    asked = {name: value for name, value in process.env.items() if name == "LANG" or name.startswith("LC_")}
    if process.term_type:
        asked["TERM"] = process.term_type
    return asked


class _Pipes:
    """A command without a terminal."""

    def __init__(self, vm: Vm, process: Process) -> None:
        self._vm = vm
        self._process = process

    async def run(self, argv: list[str], extra: dict[str, str]) -> int:
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for _ in range(2):
                reading, writing = os.pipe()
                ours.append(reading)
                theirs.append(writing)
            child = await self._vm.spawn(
                argv, extra, stdin=asyncio.subprocess.PIPE, stdout=theirs[0], stderr=theirs[1]
            )
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        feeding = asyncio.ensure_future(_feed(self._process, child))
        try:
            # Like sshd, this waits for the end of the output, not only of the command.
            async with asyncio.TaskGroup() as outputs:
                outputs.create_task(_drain(ours[0], self._process.stdout))
                outputs.create_task(_drain(ours[1], self._process.stderr))
            return await child.wait()
        finally:
            feeding.cancel()


async def _drain(descriptor: int, sink: asyncssh.SSHWriter[bytes]) -> None:
    """Show one stream to the client. When the client is gone the pipe closes, so that the command notices."""
    source = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), os.fdopen(descriptor, "rb", 0)
    )
    try:
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
    except (OSError, asyncssh.Error):
        pass
    finally:
        transport.close()


async def _feed(process: Process, child: asyncio.subprocess.Process) -> None:
    sink = child.stdin
    if sink is None:
        return
    async for data in _input(process, child.pid):
        try:
            sink.write(data)
            await sink.drain()
        except OSError:  # the command closed its input
            break
    with contextlib.suppress(OSError):
        sink.close()


async def _input(process: Process, pid: int, resize: Any = None) -> Any:
    """The client's input; its signals go to the command's whole session on the way."""
    while True:
        try:
            data = await process.stdin.read(_CHUNK)
        except asyncssh.SignalReceived as received:
            _signal_group(pid, getattr(signal, f"SIG{received.signal}", None))
            continue
        except asyncssh.BreakReceived:
            _signal_group(pid, signal.SIGINT)
            continue
        except asyncssh.TerminalSizeChanged as size:
            if resize:
                resize(*size.term_size)
            continue
        except (OSError, asyncssh.Error):
            return
        if not data:
            return
        yield data


def _signal_group(pid: int, number: signal.Signals | None) -> None:
    if number is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)


class _Terminal:
    """A command or a login shell on a pseudo-terminal."""

    def __init__(self, vm: Vm, process: Process) -> None:
        self._vm = vm
        self._process = process
        self._master = -1

    async def run(self, argv: list[str], extra: dict[str, str]) -> int:
        self._master, slave = os.openpty()
        try:
            self._resize(*self._process.term_size)
            launcher = [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL]
            child = await self._vm.spawn([*launcher, *argv], extra, stdin=slave, stdout=slave, stderr=slave)
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        os.set_blocking(self._master, False)
        reading = asyncio.ensure_future(self._show())
        writing = asyncio.ensure_future(self._type(child.pid))
        try:
            code = await child.wait()
            await asyncio.wait([reading], timeout=1.0)
            return code
        finally:
            reading.cancel()
            writing.cancel()
            os.close(self._master)

    def _resize(self, width: int, height: int, pixel_width: int = 0, pixel_height: int = 0) -> None:
        import fcntl
        import struct
        import termios

        size = struct.pack("HHHH", height or 24, width or 80, pixel_width, pixel_height)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    async def _show(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            ready = loop.create_future()
            loop.add_reader(self._master, _wake, ready)
            try:
                await ready
            finally:
                loop.remove_reader(self._master)
            try:
                data = os.read(self._master, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # EIO: the last one on the terminal has left
                return
            if not data:
                return
            try:
                self._process.stdout.write(data)
                await self._process.stdout.drain()
            except (OSError, asyncssh.Error):
                return

    async def _type(self, pid: int) -> None:
        async for data in _input(self._process, pid, self._resize):
            rest = memoryview(data)
            while rest:
                try:
                    rest = rest[os.write(self._master, rest) :]
                except BlockingIOError:
                    await asyncio.sleep(0.01)
                except OSError:
                    return
        # The end of the input is not the end of the session: as with sshd, the command goes on.
        await self._process.wait_closed()
        _signal_group(pid, signal.SIGHUP)  # the client hung up


def load_public_keys(text: str) -> list[tuple[str, bytes]]:
    """Pairs of user and key data from metadata's "ssh-keys": lines of USER:KEY; broken lines are skipped."""
    keys = []
    for line in text.splitlines():
        user, separator, key = line.strip().partition(":")
        if separator:
            with contextlib.suppress(asyncssh.KeyImportError, ValueError):
                keys.append((user, asyncssh.import_public_key(key).public_data))
    return keys


def public_data(path: Path) -> bytes:
    """The key data of a public key file."""
    return asyncssh.read_public_key(path).public_data


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
