"""The form that asks for slices: driven by the facts, checked as one types, with the same as gcloud and magic."""

from __future__ import annotations

import html
import shlex
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from multislice_nb import tpu
from multislice_nb.errors import AcceleratorTypeError, InvalidRequestError
from multislice_nb.widgets import offers
from multislice_nb.widgets.fields import Choice, Field, button, code_html, row

if TYPE_CHECKING:
    from collections.abc import Callable

    from multislice_nb.cloud import QueuedResourceRequest
    from multislice_nb.widgets.outcome import Desk
    from multislice_nb.widgets.session import Session

__all__ = ["CreateForm", "faults_by_field"]

_CAPACITIES = {"on-demand": None, "spot": "spot", "reserved": "reserved"}
_DEFAULT = ("the type's own", "")
_WORDS = (
    ("queued resource's name", "name"),
    ("in a zone", "zone"),
    ("startup script", "script"),
    ("valid", "until"),
    ("duration", "until"),
    ("untime version", "runtime"),
    ("--node-count", "slices"),
    ("slices", "slices"),
    ("reserv", "reservation"),
    ("slice: ", "type"),
    ("accelerator type", "type"),
    ("queued resource: TPU", "type"),
    ("Multislice needs", "slices"),
)
"""What a fault is about, by the words of its sentence; the first that is found counts."""


def faults_by_field(error: InvalidRequestError) -> dict[str, str]:
    """Each fault beside the field that it is about; what is about none under the empty name."""
    if isinstance(error, AcceleratorTypeError):
        return {"type": f"{error.what} {error.fix}".strip()}
    lines = [line[4:] for line in error.what.splitlines() if line.startswith("  - ")]
    found: dict[str, str] = {}
    for line in lines or [f"{error.what} {error.fix}".strip()]:
        field = next((field for words, field in _WORDS if words in line), "")
        found[field] = f"{found[field]} {line}" if field in found else line
    return found


class CreateForm:
    """Fields, what they amount to, and a button.

    Args:
        session: Its connection fills in project and zone.
        desk: Takes the work.
        created: Called with the name of what was asked for.
    """

    def __init__(self, session: Session, desk: Desk, created: Callable[[str], None]) -> None:
        self._session = session
        self._desk = desk
        self._created = created
        self.fields = {
            "name": Field("Name", widgets.Text(value="demo")),
            "zone": Field("Zone", widgets.Combobox(options=offers.zones(), placeholder=_own_zone(session))),
            "type": Field(
                "Accelerator type",
                widgets.Combobox(value="v4-16", options=offers.types(), placeholder="v4-16"),
            ),
            "topology": Field("Topology", Choice(options=[_DEFAULT])),
            "runtime": Field("Runtime version", widgets.Combobox(placeholder="the type's own")),
            "slices": Field(
                "Slices", widgets.BoundedIntText(value=2, min=1, max=256, continuous_update=True)
            ),
            "capacity": Field("Capacity", widgets.Dropdown(options=list(_CAPACITIES))),
            "reservation": Field("Reservation", widgets.Text(placeholder="any of the project's when empty")),
            "until": Field("Give up after", widgets.Text(placeholder="as 6h; never when empty")),
            "script": Field(
                "Startup script",
                widgets.Textarea(
                    placeholder="runs on every worker at every boot",
                    layout=widgets.Layout(width="440px", height="56px"),
                ),
            ),
        }
        self._facts = widgets.HTML()
        self._command = widgets.HTML()
        self.create = button("Create", "plus", "Ask for these slices", "primary")
        self.close = button("Close", "", "Hide this form")
        self.view = widgets.VBox(
            [
                *(field.view for field in self.fields.values()),
                self._facts,
                widgets.HBox([self.create, self.close], layout=row()),
                self._command,
            ],
            layout=widgets.Layout(display="none", margin="8px 0"),
        )
        for field in self.fields.values():
            field.control.observe(self._changed, "value")
        self._kind: tpu.AcceleratorType | None = None
        self.create.on_click(lambda _: self._create())
        self.close.on_click(lambda _: self.toggle(shown=False))
        self._changed()

    @property
    def shown(self) -> bool:
        """Whether it can be seen."""
        return bool(self.view.layout.display != "none")

    def toggle(self, *, shown: bool | None = None) -> None:
        """Show or hide it."""
        visible = not self.shown if shown is None else shown
        self.view.layout.display = None if visible else "none"
        if visible:
            self._changed()

    def values(self) -> dict[str, Any]:
        """The request's fields, those that were filled in."""
        capacity = _CAPACITIES[self.fields["capacity"].value]
        topology = self.fields["topology"].value
        shape: dict[str, Any] = (
            {"type": self._kind.generation.prefix, "topology": topology}
            if topology and self._kind is not None
            else {"accelerator_type": self.fields["type"].value.strip() or None}
        )
        given = shape | {
            "node_count": self.fields["slices"].value,
            "zone": self.fields["zone"].value.strip() or None,
            "runtime_version": self.fields["runtime"].value.strip() or None,
            "valid_until_duration": self.fields["until"].value.strip() or None,
            "startup_script": self.fields["script"].value or None,
            **({capacity: True} if capacity else {}),
        }
        if capacity == "reserved":
            given["reservation"] = self.fields["reservation"].value.strip() or None
        return {name: value for name, value in given.items() if value is not None}

    def magic(self) -> str:
        """The line that asks for the same; the script would have to be a file."""
        words = ["%multislice", "create", self.fields["name"].value.strip()]
        for name, value in self.values().items():
            flag = f"--{name.replace('_', '-')}"
            given = "script.sh" if name == "startup_script" else str(value)
            words += [flag] if value is True else [flag, given]
        return shlex.join(words)

    def _changed(self, _: Any = None) -> None:
        self._narrow()
        cloud = self._session.cloud
        request, faults = self._request()
        hints = {"zone": self._zone_hint()}
        for name, field in self.fields.items():
            field.fault(faults.get(name, ""), hints.get(name, ""))
        self.create.disabled = request is None or cloud is None
        if request is None:
            rest = html.escape(faults.get("", ""))
            self._facts.value = f'<div class="msnb msnb-fault" role="alert">{rest}</div>' if rest else ""
            self._command.value = ""
            return
        kind = request.slice_type
        facts = (
            f"{request.chips} chips · {kind.workers * request.node_count} workers · "
            f"{request.node_count} x {kind.topology} · {kind.device_count * request.node_count} JAX devices · "
            f"{request.runtime_version}"
        )
        self._facts.value = f'<div class="msnb msnb-facts" role="status">{html.escape(facts)}</div>'
        self._command.value = code_html(self.magic(), "The same as a magic") + code_html(
            request.to_gcloud(), "The same with gcloud"
        )

    def _narrow(self) -> None:
        """Offer what goes with what was chosen: types of the zone, shapes and runtime versions of the type."""
        zone, fields = self._zone(), self.fields
        _offer(fields["type"].control, offers.types(zone))
        try:
            kind = tpu.AcceleratorType.parse(fields["type"].value)
        except AcceleratorTypeError:
            kind = None
        before, self._kind = self._kind, kind
        if kind != before or kind is None:
            shapes = list(map(str, tpu.topologies(kind.generation, kind.chips))) if kind else []
            default = (f"{shapes[0]}, the default", "") if shapes else _DEFAULT
            fields["topology"].control.offer([default, *((each, each) for each in shapes[1:])])
            fields["topology"].control.disabled = len(shapes) < 2
            own = kind.runtime_version if kind else ""
            fields["runtime"].control.placeholder = f"{own}, the type's own" if own else "the type's own"
            _offer(fields["runtime"].control, [own] if own else offers.runtimes())
        fields["reservation"].view.layout.display = (
            None if _CAPACITIES[fields["capacity"].value] == "reserved" else "none"
        )

    def _zone(self) -> str:
        """The zone that is asked in: the form's, or the connection's."""
        cloud = self._session.cloud
        return self.fields["zone"].value.strip() or (cloud.zone if cloud is not None else "")

    def _zone_hint(self) -> str:
        """Where the type is offered, if that is elsewhere; Google's pages may be behind, so it is no fault."""
        zone, kind = self._zone(), self._kind
        if not zone or kind is None or zone in kind.generation.zones or not kind.generation.zones:
            return ""
        return f"{kind.generation.name} is offered in {', '.join(kind.generation.zones)}."

    def _request(self) -> tuple[QueuedResourceRequest | None, dict[str, str]]:
        from multislice_nb.cloud import QueuedResourceRequest

        cloud, values, name = self._session.cloud, self.values(), self.fields["name"].value.strip()
        try:
            if cloud is not None:
                return cloud.request(name, **values), {}
            return QueuedResourceRequest(name=name, **values), {}
        except InvalidRequestError as error:
            return None, faults_by_field(error)

    def _create(self) -> None:
        cloud, name, values = self._session.cloud, self.fields["name"].value.strip(), self.values()
        if cloud is None:
            return

        async def work(_: Callable[[str], None]) -> Any:
            return await cloud.acreate(name, **values)

        self._desk.start(
            f"Asking for {name}",
            work,
            done=lambda made: f"{made.name} was asked for: {made.status.shape}, {made.status.capacity}.",
            magic=self.magic(),
            then=lambda made: self._done(made.name),
        )

    def _done(self, name: str) -> None:
        self.toggle(shown=False)
        self._created(name)


def _offer(choice: Any, options: list[str]) -> None:
    """Give a field that takes any text other suggestions; what is in it stays."""
    if list(choice.options) != options:
        choice.options = options


def _own_zone(session: Session) -> str:
    cloud = session.cloud
    return f"{cloud.zone}, the connection's" if cloud is not None else "the connection's"
