"""What is sent equals what the real gcloud sends for the same command, recorded against the emulator."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from multislice_nb.cloud import QueuedResourceRequest
from multislice_nb.cloud.wire import to_message

COMMANDS = {
    "slices with everything": (
        "create all --accelerator-type=v4-16 --runtime-version=tpu-ubuntu2204-base --node-count=2 --node-prefix=p "
        "--network=net --subnetwork=sub --internal-ips --tags=a,b --labels=team=x,env=y --description='two words' "
        "--service-account=a@p.iam.gserviceaccount.com --scopes=s1,s2 --shielded-secure-boot --range=10.0.0.0/29 "
        "--metadata='^;^startup-script=echo 1,2;k=v' --valid-until-duration=6h "
        "--data-disk=source=projects/p/zones/us-central2-b/disks/d,mode=read-only"
    ),
    "reserved": "create res --accelerator-type=v4-16 --runtime-version=tpu-ubuntu2204-base --node-count=2 --reserved",
    "shared reservation, guaranteed, until a time": (
        "create host --accelerator-type=v4-8 --runtime-version=tpu-ubuntu2204-base --node-id=h "
        "--reservation-host-project=other --guaranteed --valid-until-time=2099-01-01T00:00:00Z"
    ),
    "type and topology, spot": (
        "create shape --type=v4 --topology=2x2x2 --runtime-version=tpu-ubuntu2204-base --node-id=s --spot"
    ),
    "alpha, reserved": (
        "alpha create ares --accelerator-type=v4-16 --runtime-version=tpu-ubuntu2204-base --node-count=2 --reserved "
        "--workload-type=AVAILABILITY_OPTIMIZED --autocheckpoint-enabled"
    ),
}


@pytest.fixture(scope="module")
def gcloud(emulator_home, tmp_path_factory):
    """The real gcloud, pointed at the emulator; gives the body of its create call."""
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    from multislice_nb.emulator import daemon

    address = daemon.ensure_running()
    token = tmp_path_factory.mktemp("gcloud") / "token"
    token.write_text(address.token)
    target = f"http://{address.host}:{address.port}/"
    environment = {
        **os.environ,
        "CLOUDSDK_CONFIG": str(token.parent),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": target,
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token),
        "CLOUDSDK_CORE_PROJECT": "emulated-project",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
    }

    def body(words: list[str]) -> dict[str, object]:
        argv = [*words, "--async", "--log-http", "--zone=us-central2-b"]
        ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        found = re.search(r"== body start ==\n(\{.*?\})\n?== body end ==", ended.stderr, re.DOTALL)
        assert found, ended.stderr
        return dict(json.loads(found[1]))

    return body


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_the_message_equals_gclouds(gcloud, cloud, command):
    """The same command read here and run by gcloud gives the same message, field by field."""
    words = shlex.split(command)
    alpha = ["alpha"] if words[0] == "alpha" else []
    argv = ["gcloud", *alpha, "compute", "tpus", "queued-resources", *words[len(alpha) :]]
    sent = gcloud(argv)
    # gcloud's alpha track always sends it; the client library's messages do not know it.
    sent.pop("provisioningModel", None)
    ours = QueuedResourceRequest.from_gcloud(shlex.join(argv), {}).replace(
        project="emulated-project", zone="us-central2-b"
    )
    message = to_message(ours)
    assert message == type(message).from_json(json.dumps(sent))
    assert QueuedResourceRequest.from_rest(sent, ours.name) == ours.replace(network=ours.network or "default")
