"""What of a notebook's variables can travel to the workers."""

from __future__ import annotations

import numpy as np
import pytest

from multislice_nb import errors
from multislice_nb.cluster import defining


@pytest.mark.parametrize("name", ["class", "a.b", "1a", ""])
def test_a_name_that_no_cell_could_use_is_refused(name: str) -> None:
    """Before anything is sent."""
    with pytest.raises(errors.InvalidRequestError, match="cannot be a variable's name"):
        defining.packed({name: 1})


def test_nothing_to_define_is_a_mistake() -> None:
    """A call without a name does not pass in silence."""
    with pytest.raises(errors.InvalidRequestError, match="no variables"):
        defining.packed({})


def test_data_is_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """What every worker would get from the notebook alone has a limit, which is told with the size."""
    monkeypatch.setattr(defining, "LARGEST", 1000)
    with pytest.raises(errors.InvalidRequestError, match=r"big is 2 \d+ bytes"):
        defining.packed({"big": np.zeros(2000, np.uint8)})
