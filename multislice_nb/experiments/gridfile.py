"""Sweeps written down: a YAML file, or the same as a Python dictionary.

```yaml
strategies: [fsdp, tensor, {ici_fsdp: 4, ici_tensor: 2}]
batch_sizes: [64, 128, 256]
workloads:                       # a list inside a model or an option is a grid
  - mlp: {embedding: [1024, 2048], layers: 4}
  - transformer: {layers: 2, sequence: 512}
options:
  - {optimizer: adam, remat: [false, true]}
slices: [1, 2, 4]                # the first so many of the cluster's; left out for all
steps: 10
target_spread: 0.02
```
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multislice_nb._texts import did_you_mean
from multislice_nb.errors import InvalidRequestError
from multislice_nb.experiments.request import SweepRequest
from multislice_nb.experiments.training import Options
from multislice_nb.experiments.transformer import Transformer
from multislice_nb.experiments.workload import MLP
from multislice_nb.sharding import Parallelism

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multislice_nb.experiments.workload import Workload

_EXPONENT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")

_MODELS: dict[str, type[MLP | Transformer]] = {"mlp": MLP, "transformer": Transformer}


def read_request(source: Path | str | Mapping[str, Any]) -> SweepRequest:
    """A sweep from a YAML file or a dictionary. The names are those of `SweepRequest`.

    Args:
        source: Path of a file, or its content as a dictionary.

    Raises:
        InvalidRequestError: It cannot be read, a name is unknown, or a value cannot be.
    """
    given = dict(source if isinstance(source, Mapping) else _loaded(Path(source)))
    _only(given, SweepRequest, "a sweep")
    given["strategies"] = [_strategy(one) for one in _listed(given.get("strategies"))]
    given["batch_sizes"] = _listed(given.get("batch_sizes"))
    if "workloads" in given:
        given["workloads"] = [model for one in _listed(given["workloads"]) for model in _models(one)]
    if "options" in given:
        given["options"] = [option for one in _listed(given["options"]) for option in _made(Options, one)]
    return SweepRequest(**given)


def _loaded(path: Path) -> Mapping[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """As YAML 1.2 has it: PyYAML, which follows 1.1, takes 1e-4 and 8e9 for text."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(
            f"The sweep file {path} cannot be read: {error}.", fix="Give the path of a YAML file."
        ) from error
    except yaml.YAMLError as error:
        raise InvalidRequestError(
            f"{path} is not YAML: {error}", fix="Mend it at the line it names."
        ) from error
    if not isinstance(content, Mapping):
        raise InvalidRequestError(
            f"{path} does not describe a sweep.",
            fix="Write strategies: and batch_sizes: and more, as names with values.",
        )
    return content


def _strategy(given: Any) -> str | Parallelism:
    if isinstance(given, Mapping):
        _only(given, Parallelism, "a strategy")
        return Parallelism(**given)
    return given if isinstance(given, Parallelism) else str(given)


def _models(given: Any) -> Iterator[Workload]:
    if not isinstance(given, (str, Mapping)):
        yield given  # a workload made in Python
        return
    named: Mapping[str, Any] = {given: {}} if isinstance(given, str) else given
    for name, sizes in named.items():
        if name not in _MODELS:
            raise InvalidRequestError(
                f"There is no workload {name}.{_near(name, _MODELS)}", fix=_choices(_MODELS)
            )
        yield from _made(_MODELS[name], sizes or {})


def _made(kind: type[Any], given: Any) -> Iterator[Any]:
    """All combinations of values of a dataclass."""
    if isinstance(given, kind):
        yield given
        return
    if not isinstance(given, Mapping):
        raise InvalidRequestError(
            f"{given!r} does not say which {kind.__name__.lower()}.", fix="Write names with values."
        )
    _only(given, kind, kind.__name__)
    for values in itertools.product(*(_listed(value) for value in given.values())):
        yield kind(**dict(zip(given, values, strict=True)))


def _only(given: Mapping[str, Any], kind: type[Any], what: str) -> None:
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            raise InvalidRequestError(
                f"{name} is not a part of {what}.{_near(name, known)}", fix=_choices(known)
            )


def _near(name: str, known: Any) -> str:
    return f" {did_you_mean(str(name), known)}".rstrip()


def _choices(known: Any) -> str:
    return f"Choose from {', '.join(known)}."


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple, range)) else [value]
