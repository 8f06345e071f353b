"""The tab that plans: sliders that only land on valid strategies, the intensity against its threshold, advice."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as widgets

from multislice_nb import tpu
from multislice_nb._texts import grouped
from multislice_nb.errors import MultisliceError
from multislice_nb.sharding import (
    Model,
    Parallelism,
    advise,
    arithmetic_intensity,
    enumerate_strategies,
    memory_bytes,
    operational_intensity,
    predict,
    recommend,
)
from multislice_nb.widgets import offers
from multislice_nb.widgets.fields import Field, code_html
from multislice_nb.widgets.gauge import gauge_html

__all__ = ["Planner"]

_TOKENS = (
    4_096, 8_192, 16_384, 32_768, 65_536, 88_000, 131_072, 176_000, 262_144, 352_000, 524_288, 700_000,
    1_048_576, 2_097_152, 4_194_304,
)  # fmt: skip
_SIZES = {f"{count:g} B": count * 1e9 for count in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)}


class Planner:
    """What is trained on what, and how it is divided."""

    def __init__(self) -> None:
        self.type = Field(
            "Accelerator type", widgets.Combobox(value="v4-128", options=offers.types(multislice=True))
        )
        self.slices = Field("Slices", widgets.BoundedIntText(value=2, min=1, max=256))
        self.model = Field("Parameters", widgets.SelectionSlider(options=list(_SIZES.items()), value=8e9))
        self.tokens = Field(
            "Tokens per slice",
            widgets.SelectionSlider(options=[(grouped(count), count) for count in _TOKENS], value=352_000),
        )
        self.ici = Field("Inside a slice (ICI)", widgets.SelectionSlider(options=["-"]))
        self.dcn = Field("Between slices (DCN)", widgets.SelectionSlider(options=["-"]))
        fields = (self.type, self.slices, self.model, self.tokens, self.ici, self.dcn)
        for field in fields[2:]:
            field.control.layout.width = "640px"
            field.control.add_class("msnb-sliders")
        self._answer = widgets.HTML()
        self.view = widgets.VBox(
            [*(field.view for field in fields), self._answer], layout=widgets.Layout(**_ROOM)
        )
        self._strategies: dict[tuple[tuple[int, ...], tuple[int, ...]], Parallelism] = {}
        for field in fields[:2]:
            field.control.observe(self._shape_changed, "value")
        for field in fields[2:]:
            field.control.observe(self._draw, "value")
        self._shape_changed()

    @property
    def parallelism(self) -> Parallelism | None:
        """What the sliders say; None while the shape is no slice."""
        return self._strategies.get((self.ici.value, self.dcn.value))

    def _shape_changed(self, _: Any = None) -> None:
        try:
            kind = tpu.AcceleratorType.parse(self.type.value)
            found = enumerate_strategies(kind, self.slices.value)
        except MultisliceError as error:
            self._strategies = {}
            self.type.fault(str(error).replace("\n", " "))
            self._draw()
            return
        self.type.fault("")
        self._strategies = {(one.ici, one.dcn): one for one in found}
        _land(self.ici.control, [one.ici for one in found], preferred=(1, kind.device_count, 1))
        _land(self.dcn.control, [one.dcn for one in found], preferred=(self.slices.value, 1, 1))
        self._draw()

    def _draw(self, _: Any = None) -> None:
        parallelism = self.parallelism
        if parallelism is None:
            self._answer.value = ""
            return
        try:
            self._answer.value = self._answered(parallelism)
        except MultisliceError as error:
            self._answer.value = f'<div class="msnb msnb-fault" role="alert">{html.escape(str(error))}</div>'

    def _answered(self, parallelism: Parallelism) -> str:
        name, slices, tokens = self.type.value, self.slices.value, self.tokens.value
        kind = tpu.AcceleratorType.parse(name)
        model = Model.transformer(self.model.value)
        prediction = predict(
            model, kind, batch_per_chip=tokens / kind.device_count, slices=slices, strategy=parallelism
        )
        needed = memory_bytes(model, parallelism, tokens / kind.device_count)
        usable = kind.generation.hbm_usable_bytes_per_chip / kind.generation.devices_per_chip
        ranked = recommend(kind, slices, model=model, tokens_per_slice=tokens)
        parts = [
            f'<p class="msnb-facts">{html.escape(parallelism.name)} · {html.escape(str(prediction))}</p>'
        ]
        if slices > 1:
            reached = operational_intensity(tokens, slices)
            parts.append(gauge_html(reached, arithmetic_intensity(kind.generation), kind.generation.name))
        fits = needed <= usable
        parts.append(
            f'<p class="{"" if fits else "msnb-fault"}">HBM {needed / 2**30:.1f} of {usable / 2**30:.2f} GiB a chip'
            f"{'' if fits else ': it does not fit'}</p>"
        )
        parts += [f"<p>{html.escape(str(advice))}</p>" for advice in advise(parallelism)]
        parts.append(f'<p style="margin-top:6px"><b>Advice</b> {html.escape(str(ranked.best))}</p>')
        line = (
            f"ms.recommend({name!r}, {slices}, parameters={self.model.value:.3g}, tokens_per_slice={tokens})"
        )
        return f'<div class="msnb" role="status" aria-live="polite">{"".join(parts)}</div>{code_html(line, "In Python")}'


_ROOM = {"margin": "4px 0"}


def _land(slider: Any, points: list[tuple[int, ...]], *, preferred: tuple[int, ...]) -> None:
    """Let a slider land on these splits alone, each named by what it multiplies to."""
    unique = sorted(set(points), key=lambda split: (split[2], split[0], split[1]))
    options = [(_named(split), split) for split in unique]
    if list(slider.options) != options:
        kept = slider.value
        slider.options = options
        slider.value = next((split for split in (kept, preferred) if split in unique), unique[0])


def _named(split: tuple[int, ...]) -> str:
    parts = [
        f"{axis} {degree}"
        for axis, degree in zip(("data", "fsdp", "tensor"), split, strict=True)
        if degree > 1
    ]
    return " x ".join(parts) or "one"
