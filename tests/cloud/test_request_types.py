from __future__ import annotations

from typing import Any

import pytest

from multislice_nb.cloud import QueuedResourceRequest
from multislice_nb.cloud.drafts import complete
from multislice_nb.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("name", 5, "a text"),
        ("node_prefix", 5, "a text"),
        ("zone", ["us-central2-b"], "a text"),
        ("spot", "yes", "True or False"),
        ("labels", ["team=a"], "a dictionary"),
        ("startup_script", 5, "its text, or its file as a Path"),
        ("tags", 5, "a list of texts"),
        ("scopes", [5], "a list of texts"),
        ("tags", (tag for tag in "ab"), "a list of texts"),
        ("data_disks", "projects/p/zones/z/disks/d", "a list of DataDisk"),
        ("data_disks", [{"disk": "projects/p/zones/z/disks/d"}], "a list of DataDisk"),
        ("data_disks", [5], "a list of DataDisk"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(field: str, value: Any, wanted: str) -> None:
    """What a field does not take is named with what it takes, before anything is made of it."""
    fields: dict[str, Any] = {"name": "demo", "accelerator_type": "v4-8", field: value}
    with pytest.raises(InvalidRequestError, match=f"{field} cannot be") as caught:
        QueuedResourceRequest(**fields)
    assert wanted in caught.value.fix


def test_all_of_them_are_named_at_once() -> None:
    """A request is mended in one go."""
    with pytest.raises(InvalidRequestError, match=r"(?s)spot cannot be 'yes'.*labels cannot be 5"):
        QueuedResourceRequest(name="demo", accelerator_type="v4-8", spot="yes", labels=5)  # type: ignore[arg-type]


def test_a_field_that_there_is_not_is_refused_with_the_nearest() -> None:
    """A misspelt keyword of `create` is answered in the words of a request."""
    with pytest.raises(InvalidRequestError, match="no field node_cuont") as caught:
        complete("demo", {"accelerator_type": "v4-8", "node_cuont": 2}, "p", "us-central2-b")
    assert caught.value.fix == "Did you mean node_count?"
