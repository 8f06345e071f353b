"""The report of preconditions."""

from __future__ import annotations

from dataclasses import replace

from multislice_nb.errors import PermissionDeniedError


def test_the_emulator_is_healthy(cloud):
    """With the emulator everything is in order, and each line names what it looked at."""
    report = cloud.doctor("v4-16")
    assert report.ok, str(report)
    assert {"project", "credentials and API", "zone", "accelerator type", "runtime version", "SSH key"} <= {
        check.name for check in report.checks
    }
    assert "gcloud compute tpus tpu-vm accelerator-types list --zone=us-central2-b" in report.table()


def test_a_type_that_the_zone_does_not_offer_fails_with_zones_that_do(cloud):
    """A v5e in a v4 zone fails, and the fix names zones with v5e."""
    report = cloud.doctor("v5litepod-16")
    assert report["accelerator type"].verdict == "failure"
    assert "us-west4-a" in report["accelerator type"].fix
    assert not report.ok


def test_dead_requests_are_a_warning(cloud, fault):
    """Quota held by a dead request is a warning that names it."""
    fault("quota", generation="v4", chips=0)
    handle = cloud.create("dead", accelerator_type="v4-8")
    for status in handle.watch():
        if status.is_dead:
            break
    assert "dead" in cloud.doctor()["quota held by dead requests"].found


def test_an_api_that_refuses_is_one_failure_with_its_fix(cloud, fault):
    """When the API refuses the account, the rest that needs it is left out and the fix is shown."""
    fault("api-errors", status="PERMISSION_DENIED", count=1)
    report = cloud.doctor("v4-16")
    assert report["credentials and API"].verdict == "failure"
    assert report["credentials and API"].fix
    assert "zone" not in {check.name for check in report.checks}


def test_a_missing_or_open_ssh_key_is_named(cloud, tmp_path, monkeypatch):
    """An SSH key that others can read is a warning, one that is missing a failure."""
    key = tmp_path / "key"
    monkeypatch.setattr(cloud, "ssh", replace(cloud.ssh, client_keys=(key,)))
    assert cloud.doctor()["SSH key"].verdict == "failure"
    key.write_text("x")
    key.chmod(0o644)
    assert cloud.doctor()["SSH key"].fix == f"chmod 600 {key}"


def test_a_key_that_is_made_when_it_is_needed_is_no_failure(in_memory, tmp_path, monkeypatch):
    """With Google Cloud the first login makes the key, as gcloud's does."""
    monkeypatch.setattr(in_memory, "ssh", replace(in_memory.ssh, client_keys=(tmp_path / "key",)))
    check = in_memory.doctor()["SSH key"]
    assert (check.verdict, check.found) == ("ok", f"{tmp_path / 'key'} is made at the first login")


def test_requests_that_cannot_be_listed_are_a_failure_of_that_check_alone(in_memory, monkeypatch):
    """The report goes on to its end."""

    async def refuse(zone):
        raise PermissionDeniedError(f"You may not list {zone}.", fix="Have a role granted.")

    monkeypatch.setattr(in_memory.provider, "list_queued_resources", refuse)
    report = in_memory.doctor()
    assert report["quota held by dead requests"].fix == "Have a role granted."
    assert report["SSH agent"]
