"""Putting the magics, their completion and their settings into a shell, and taking them out again."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.completer import context_matcher

from multislice_nb.config import Multislice
from multislice_nb.magics.ahead import read_soon
from multislice_nb.magics.autocell import AskedFor, EmptyCell
from multislice_nb.magics.magics import MultisliceMagics

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext
    from IPython.core.interactiveshell import InteractiveShell

    from multislice_nb.magics.completion import Completion

__all__ = ["load", "loaded", "unload"]

_AS_TEXT = (
    ("multislice_nb.cloud.collection", "QueuedResources"),
    ("multislice_nb.cloud.queued_resource", "QueuedResource"),
    ("multislice_nb.cloud.session", "Cloud"),
    ("multislice_nb.cloud.status", "NodeStatus"),
    ("multislice_nb.cloud.status", "QueuedResourceStatus"),
    ("multislice_nb.cluster.cluster", "Cluster"),
    ("multislice_nb.cloud.doctor", "Report"),
    ("multislice_nb.cloud.reclaim", "Reclaimable"),
    ("multislice_nb.cluster.detached", "DetachedStatus"),
    ("multislice_nb.cluster.environment_report", "CleanResult"),
    ("multislice_nb.cluster.environment_report", "EnvironmentReport"),
    ("multislice_nb.cluster.environment_report", "Installed"),
    ("multislice_nb.cluster.handle", "CellHandle"),
    ("multislice_nb.cluster.result", "CellResult"),
    ("multislice_nb.cluster.shell_result", "ShellResult"),
    ("multislice_nb.cluster.transfer", "PullResult"),
    ("multislice_nb.cluster.transfer", "PushResult"),
    ("multislice_nb.cluster.usage", "UsageReport"),
    ("multislice_nb.experiments.comparison", "Comparison"),
    ("multislice_nb.experiments.results", "Results"),
    ("multislice_nb.experiments.runner", "NotebookRun"),
    ("multislice_nb.experiments.runs", "Runs"),
    ("multislice_nb.jobs.job", "Job"),
    ("multislice_nb.jobs.listing", "Jobs"),
    ("multislice_nb.jobs.status", "JobStatus"),
    ("multislice_nb.jobs.submitting", "DryRun"),
    ("multislice_nb.sharding.advisor", "Recommendations"),
    ("multislice_nb.sharding.plans", "LargestBatch"),
    ("multislice_nb.sharding.plans", "Plan"),
    ("multislice_nb.sharding.plans", "Plans"),
)
"""Classes whose `str` is what people want to read where there is no HTML; their `repr` stays for programs."""


class _Loaded:
    """What was put into a shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.magics = MultisliceMagics(shell)
        self.settings = Multislice.instance()
        self.readers = (EmptyCell(), AskedFor())
        kernel = getattr(shell, "kernel", None)
        self.asked = None if kernel is None else _Asked(kernel)
        self._variables = shell.user_ns

        @context_matcher()  # type: ignore[untyped-decorator]
        def multislice_matcher(context: CompletionContext) -> dict[str, Any]:
            found = self.completion.matches(context) if "%multislice" in context.full_text else None
            return found or {"completions": [], "suppress": False}

        self.matcher = multislice_matcher

    @cached_property
    def completion(self) -> Completion:
        """Comes with the first Tab after `%multislice`."""
        from multislice_nb.magics.completion import Completion

        return Completion(self.magics.actions.session, self._variables)


class _Asked:
    """Answers a kernel's inspect requests in place of its own method, which gets what is not about the magics.

    Args:
        kernel: Whose.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._own = kernel.do_inspect
        self.on = True
        kernel.do_inspect = self

    def __call__(self, code: str, cursor_pos: int, *rest: Any, **options: Any) -> Any:
        """What the kernel replies."""
        if self.on and "%multislice" in code:
            from multislice_nb.magics.inspection import reply

            found = reply(code, cursor_pos)
            if found is not None:
                return found
        return self._own(code, cursor_pos, *rest, **options)

    def take_back(self) -> None:
        """Let the kernel answer alone again; where another has come in between, it hands on to this one for ever."""
        self.on = False
        if self._kernel.do_inspect is self:
            del self._kernel.do_inspect


_shells: dict[int, _Loaded] = {}


def loaded(shell: InteractiveShell) -> MultisliceMagics | None:
    """The magics of a shell, if they are loaded."""
    found = _shells.get(id(shell))
    return found.magics if found else None


def load(shell: InteractiveShell) -> None:
    """Register everything; doing it again does nothing."""
    if id(shell) in _shells:
        return
    made = _shells[id(shell)] = _Loaded(shell)
    shell.register_magics(made.magics)
    made.settings.update_config(shell.config)
    configurables: list[Any] = shell.configurables
    configurables += [one for one in (made.magics, made.settings) if one not in configurables]
    shell.Completer.custom_matchers.append(made.matcher)
    shell.input_transformers_cleanup.extend(made.readers)
    plain = _plain_text(shell)
    for module, name in _AS_TEXT:
        plain.for_type_by_name(module, name, _print_str)
    read_soon(shell)


def unload(shell: InteractiveShell) -> None:
    """Take back what `load` did; the connection and the workers stay as they are."""
    found = _shells.pop(id(shell), None)
    if found is None:
        return
    found.magics.autocell.turn(on=False)
    if found.asked is not None:
        found.asked.take_back()
    cleanup: list[Any] = shell.input_transformers_cleanup
    cleanup[:] = [one for one in cleanup if one not in found.readers]
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("multislice", None)
    shell.magics_manager.registry.pop(MultisliceMagics.__name__, None)
    configurables: list[Any] = shell.configurables
    configurables[:] = [one for one in configurables if one not in (found.magics, found.settings)]
    if found.matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(found.matcher)
    plain = _plain_text(shell)
    for module, name in _AS_TEXT:
        plain.pop(f"{module}.{name}", None)


def _plain_text(shell: InteractiveShell) -> Any:
    formatter: Any = shell.display_formatter
    return formatter.formatters["text/plain"]


def _print_str(thing: Any, printer: Any, cycle: bool) -> None:  # noqa: ARG001 - IPython's own signature
    printer.text(str(thing))
