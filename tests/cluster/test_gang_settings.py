"""How patient a gang is, and where that comes from."""

from __future__ import annotations

from dataclasses import fields

import pytest

from multislice_nb.cluster import GangSettings
from multislice_nb.config import Multislice
from multislice_nb.errors import ConfigurationError


def test_every_setting_can_be_configured() -> None:
    """Each has its `%config Multislice.gang_…`."""
    assert {f"gang_{field.name}" for field in fields(GangSettings)} <= set(Multislice.class_trait_names())


def test_an_argument_beats_config_beats_environment_beats_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source counts where those before it say nothing."""
    environ = {"MULTISLICE_NB_GANG_GRACE": "9", "MULTISLICE_NB_GANG_AUTO_RESTART": "yes"}
    assert GangSettings.configured(environ={}) == GangSettings()
    found = GangSettings.configured(environ=environ)
    assert (found.grace, found.auto_restart) == (9.0, True)
    monkeypatch.setattr(Multislice.instance(), "gang_grace", 8.0)
    assert GangSettings.configured(environ=environ).grace == 8.0
    assert GangSettings.configured(environ=environ, grace=7.0, silence=None) == GangSettings(
        7.0, auto_restart=True
    )


@pytest.mark.parametrize(
    ("name", "text"), [("GRACE", "soon"), ("GRACE", "-1"), ("SILENCE", "inf"), ("AUTO_RESTART", "2")]
)
def test_a_variable_that_cannot_be_read_is_named(name: str, text: str) -> None:
    """What the environment holds by mistake is an error with its name and value."""
    with pytest.raises(ConfigurationError, match=f"MULTISLICE_NB_GANG_{name} is '{text}'"):
        GangSettings.configured(environ={f"MULTISLICE_NB_GANG_{name}": text})
