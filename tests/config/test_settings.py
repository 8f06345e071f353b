"""Where project, zone and endpoint come from."""

from __future__ import annotations

import stat

import pytest

from multislice_nb.config import Multislice, settings, state_home
from multislice_nb.errors import ConfigurationError


@pytest.fixture
def gcloud(tmp_path):
    """A gcloud configuration folder with project and zone, and an environment that names it alone."""
    (tmp_path / "configurations").mkdir()
    (tmp_path / "active_config").write_text("work")
    (tmp_path / "configurations" / "config_work").write_text(
        "[core]\naccount = a@b.c\nproject = from-gcloud\n[compute]\nzone = zone-gcloud\n"
    )
    return {"CLOUDSDK_CONFIG": str(tmp_path), "HOME": str(tmp_path)}


@pytest.fixture
def bare(tmp_path):
    """An environment in which nothing is configured."""
    return {"CLOUDSDK_CONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}


@pytest.fixture
def configured():
    """`%config Multislice`, as it was again afterwards."""
    instance = Multislice.instance()
    before = dict(instance.trait_values())
    yield instance
    for name in ("project", "zone", "endpoint", "emulator"):
        setattr(instance, name, before[name])


def test_an_argument_beats_config_beats_environment_beats_gcloud(gcloud, configured):
    """Each source counts only where those before it say nothing, and is named as the origin."""
    found = settings(environ=gcloud)
    assert (found.project.value, found.project.origin) == ("from-gcloud", "gcloud configuration work")
    assert found.zone.value == "zone-gcloud"
    environ = {**gcloud, "GOOGLE_CLOUD_PROJECT": "from-env"}
    assert settings(environ=environ).project.origin == "environment GOOGLE_CLOUD_PROJECT"
    configured.project = "from-config"
    assert settings(environ=environ).project.origin == "%config Multislice.project"
    assert settings("from-argument", environ=environ).project.value == "from-argument"
    assert settings("from-argument", environ=environ).project.origin == "argument"


def test_with_no_project_anywhere_the_emulator_is_used(bare):
    """Without a project the emulator is chosen, in its own project and zone, and says why."""
    found = settings(environ=bare)
    assert found.is_emulator
    assert (found.project.value, found.zone.value) == ("emulated-project", "us-central2-b")
    assert found.emulator.origin == "no project is configured"
    assert settings(zone="us-west4-a", environ=bare).zone.value == "us-west4-a"


def test_the_emulator_can_be_demanded_and_ruled_out(gcloud, bare):
    """A project in the settings does not keep a user from the emulator, nor the other way round."""
    assert settings(emulator=True, environ=gcloud).project.value == "emulated-project"
    assert settings(environ={**gcloud, "MULTISLICE_NB_EMULATOR": "1"}).is_emulator
    assert not settings("p", environ={**gcloud, "MULTISLICE_NB_EMULATOR": "1"}).is_emulator
    with pytest.raises(ConfigurationError, match="No Google Cloud project"):
        settings(emulator=False, environ=bare)


def test_a_project_without_a_zone_says_how_to_name_one(bare):
    """A project alone is not enough, and the error lists the ways."""
    with pytest.raises(ConfigurationError) as caught:
        settings("p", environ=bare)
    assert "gcloud config set compute/zone" in caught.value.fix


def test_a_broken_gcloud_configuration_is_named(gcloud, tmp_path):
    """A file that cannot be read is an error with its place, not silence."""
    (tmp_path / "configurations" / "config_work").write_text("project = nowhere\n")
    with pytest.raises(ConfigurationError, match="gcloud's configuration work"):
        settings(environ=gcloud)


def test_settings_show_each_value_with_its_origin(gcloud):
    """The table has a line for each setting, escaped in HTML."""
    found = settings("<p>", environ=gcloud)
    assert "argument" in str(found)
    assert "&lt;p&gt;" in found._repr_html_()


def test_state_is_private(tmp_path):
    """The state folder is made for its user alone."""
    home = state_home({"MULTISLICE_NB_HOME": str(tmp_path / "state")})
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
