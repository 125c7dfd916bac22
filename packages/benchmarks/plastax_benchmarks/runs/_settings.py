"""The settings of a run folder, and the environment in which its results were computed."""

import contextlib
import dataclasses
import enum
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from ._errors import RunError
from ._files import write_atomic


PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "plastax")
MISSING = "(missing)"


def plain(value: Any) -> Any:
    """Values that the JSON encoder does not support: paths, dataclasses, enums, numpy numbers."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if callable(as_list := getattr(value, "tolist", None)):  # Arrays and scalars of numpy and jax.
        return as_list()
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be written as JSON")


def _as_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, default=plain, allow_nan=False) + "\n").encode()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"it contains a {type(content).__name__}, not an object")
    except (ValueError, OSError) as error:
        raise RunError(
            f"{path} cannot be read ({error}): repair it manually, or choose another folder (--out)"
        ) from error
    return content


def _differences(old: Any, new: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{name}.{key}" if name else key
            yield from _differences(old.get(key, MISSING), new.get(key, MISSING), inner)
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield name, old, new


def check_config(
    folder: Path,
    config: Mapping[str, Any],
    may_change: Collection[str],
    *,
    all_may: bool,
    read: Callable[[dict[str, Any]], dict[str, Any]],
) -> bytes:
    """Checks that an existing `config.json` has the same settings, except for those that may change.

    `read` converts settings that an earlier version has stored to the current form.

    **Returns:** its new content, which is the old one unless settings that may change have changed.
    """
    path = folder / "config.json"
    try:
        data = _as_bytes(dict(config))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the settings of {folder} cannot be written as JSON: {error}; got {dict(config)}") from error
    if path.exists():
        old = _read(path)
        # Settings that cannot be converted are compared as stored, so that the error lists the differences.
        with contextlib.suppress(ValueError, TypeError, KeyError):
            old = json.loads(_as_bytes(read(old)))
        differences = list(_differences(old, json.loads(data)))
        refused = [d for d in differences if d[0] not in may_change and d[0].split(".")[0] not in may_change]
        if refused and not all_may:
            lines = [f"  {name}: {old!r} in the folder, {now!r} now" for name, old, now in refused]
            raise RunError(
                f"{folder} belongs to a run with other settings:\n"
                + "\n".join(lines)
                + "\nChoose another folder (--out), or the same settings to resume that run."
            )
        if not differences:
            return path.read_bytes()
    return data


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None  # plastax itself may run from a checkout.


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def versions() -> dict[str, str | None]:
    """The versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


def environment() -> dict[str, Any]:
    """Everything that the last bits of a result are known to depend on."""
    import jax

    devices = jax.devices()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        **versions(),
        "platform": devices[0].platform,
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "cpu": _processor(),
        "cpu_count": cores,
        "machine": platform.machine(),
        "system": platform.system(),
        "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def check_environment(folder: Path, log: Callable[[str], None]) -> None:
    """Writes `environment.json`. If it differs from the existing one, reports that and keeps both."""
    path, now = folder / "environment.json", environment()
    if not path.exists():
        return write_atomic(path, _as_bytes(now))
    old = _read(path)
    earlier = old.pop("earlier", [])
    differences = [f"{name} {before} -> {after}" for name, before, after in _differences(old, now)]
    if differences:
        log(
            f"{folder} was started in another environment ({', '.join(differences)}): "
            "from here on, results may differ in the last bits from an uninterrupted run"
        )
        write_atomic(path, _as_bytes({**now, "earlier": [*earlier, old]}))
