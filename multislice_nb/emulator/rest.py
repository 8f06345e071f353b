"""The REST face: Google's paths for v2 and v2alpha1, what gcloud asks of v1 and Compute, and the emulator's own."""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

from multislice_nb.emulator import legacy
from multislice_nb.emulator.rpc import ApiError, Json, invalid
from multislice_nb.emulator.schema import fit, message_class, methods, read

if TYPE_CHECKING:
    from multislice_nb.emulator.admin import Admin
    from multislice_nb.emulator.credentials import Credentials
    from multislice_nb.emulator.engine import Engine

log = logging.getLogger(__name__)

MAX_BODY = 4 * 1024 * 1024
_PARENT = r"projects/[^/]+/locations/[^/]+"
# HTTP method, pattern of the path, method of the service, where the path goes, where the body goes.
# The alternatives are the transcoding rules of the client library's own REST transport.
_RULES: list[tuple[str, str, str, str, str]] = [
    ("GET", r"projects/[^/]+/locations", "ListLocations", "name", ""),
    ("GET", _PARENT, "GetLocation", "name", ""),
    ("POST", f"{_PARENT}:generateServiceIdentity", "GenerateServiceIdentity", "parent", "*"),
    ("GET", f"{_PARENT}/nodes", "ListNodes", "parent", ""),
    ("POST", f"{_PARENT}/nodes", "CreateNode", "parent", "node"),
    ("GET", f"{_PARENT}/nodes/[^/]+", "GetNode", "name", ""),
    ("DELETE", f"{_PARENT}/nodes/[^/]+", "DeleteNode", "name", ""),
    ("PATCH", f"{_PARENT}/nodes/[^/]+", "UpdateNode", "node.name", "node"),
    ("POST", f"{_PARENT}/nodes/[^/]+:stop", "StopNode", "name", "*"),
    ("POST", f"{_PARENT}/nodes/[^/]+:start", "StartNode", "name", "*"),
    ("POST", f"{_PARENT}/nodes/[^/]+:performMaintenance", "PerformMaintenance", "name", "*"),
    ("POST", f"{_PARENT}/nodes/[^/]+:simulateMaintenanceEvent", "SimulateMaintenanceEvent", "name", "*"),
    ("POST", f"{_PARENT}/nodes/[^/]+:getGuestAttributes", "GetGuestAttributes", "name", "*"),
    ("GET", f"{_PARENT}/queuedResources", "ListQueuedResources", "parent", ""),
    ("POST", f"{_PARENT}/queuedResources", "CreateQueuedResource", "parent", "queuedResource"),
    ("GET", f"{_PARENT}/queuedResources/[^/]+", "GetQueuedResource", "name", ""),
    ("DELETE", f"{_PARENT}/queuedResources/[^/]+", "DeleteQueuedResource", "name", ""),
    ("POST", f"{_PARENT}/queuedResources/[^/]+:reset", "ResetQueuedResource", "name", "*"),
    (
        "POST",
        f"{_PARENT}/queuedResources/[^/]+:performMaintenanceQueuedResource",
        "PerformMaintenanceQueuedResource",
        "name",
        "*",
    ),
    ("GET", f"{_PARENT}/acceleratorTypes", "ListAcceleratorTypes", "parent", ""),
    ("GET", f"{_PARENT}/acceleratorTypes/[^/]+", "GetAcceleratorType", "name", ""),
    ("GET", f"{_PARENT}/runtimeVersions", "ListRuntimeVersions", "parent", ""),
    ("GET", f"{_PARENT}/runtimeVersions/[^/]+", "GetRuntimeVersion", "name", ""),
    ("GET", f"{_PARENT}/reservations", "ListReservations", "parent", ""),
    ("GET", f"{_PARENT}/operations", "ListOperations", "name", ""),
    ("GET", f"{_PARENT}/operations/[^/]+", "GetOperation", "name", ""),
    ("DELETE", f"{_PARENT}/operations/[^/]+", "DeleteOperation", "name", ""),
    ("POST", f"{_PARENT}/operations/[^/]+:cancel", "CancelOperation", "name", "*"),
    ("POST", f"{_PARENT}/operations/[^/]+:wait", "WaitOperation", "name", "*"),
]
_COMPILED = [(verb, re.compile(path), name, field, body) for verb, path, name, field, body in _RULES]
# Query parameters of every Google API that change nothing here.
_SYSTEM = {"alt", "prettyPrint", "key", "fields", "quotaUser", "access_token", "callback", "userProject"}
_RESULTS = {"GetNode": "Node", "GetQueuedResource": "QueuedResource"}


class Rest:
    """An aiohttp application in front of the engine."""

    def __init__(self, engine: Engine, admin: Admin, credentials: Credentials, hosts: set[str]) -> None:
        self._engine = engine
        self._admin = admin
        self._credentials = credentials
        self._hosts = hosts

    def application(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            self._check_caller(request)
            return web.json_response(await self._route(request), dumps=_dumps)
        except ApiError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            body = {"code": 413, "message": "Request payload is too large.", "status": "INVALID_ARGUMENT"}
            return web.json_response({"error": body}, status=413)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return _refusal(ApiError("INTERNAL", "Internal error encountered."))

    def _check_caller(self, request: web.Request) -> None:
        # A page that rebinds its name to this machine sends its own name as Host.
        if request.headers.get("Host", "").lower() not in self._hosts:
            raise ApiError("PERMISSION_DENIED", "The Host header is not this emulator's.")
        if not self._credentials.accept(request.headers.get("Authorization", "")):
            raise ApiError(
                "UNAUTHENTICATED",
                "Request had invalid authentication credentials. Expected the emulator's bearer token.",
            )

    async def _route(self, request: web.Request) -> Json:
        raw = unquote(request.rel_url.raw_path)
        if "\x00" in raw or len(raw) > 2048:
            raise invalid("path", "The path is not a resource's.")
        version, _, path = raw.strip("/").partition("/")
        if version == "emulator":
            return await self._admin.answer(request, path, await _body(request))
        self._admin.active()
        if version in {"v2", "v2alpha1"}:
            return await self._call(request, version, path)
        if request.method == "GET" and version in {"v1", "compute"}:
            return await legacy.answer(self._engine, version, path, dict(request.query))
        raise ApiError("NOT_FOUND", f"There is no {request.method} {raw}.")

    async def _call(self, request: web.Request, version: str, path: str) -> Json:
        for verb, pattern, method, path_field, body_field in _COMPILED:
            if verb == request.method and pattern.fullmatch(path) and method in methods(version):
                document = _query(request, version, method)
                if body_field:
                    _merge(document, body_field, await _body(request))
                _place(document, path_field, _resource(pattern.pattern, method, path_field, path))
                canonical = read(version, f"{method}Request", document)
                answer = await self._engine.call(method, canonical, version)
                kind = _RESULTS.get(method)
                return fit(version, kind, answer, extras=version == "v2alpha1") if kind else answer
        raise ApiError("NOT_FOUND", f"There is no {request.method} {path!r} in {version}.")


def _resource(pattern: str, method: str, path_field: str, path: str) -> str:
    """The part of the path that names the resource or its parent."""
    if ":" in pattern:
        return path.rsplit(":", 1)[0]
    if path_field == "parent" or method in {"ListLocations", "ListOperations"}:
        return path.rsplit("/", 1)[0]
    return path


def _place(document: Json, path_field: str, value: str) -> None:
    if path_field == "node.name":
        document.setdefault("node", {})["name"] = value
    else:
        document[path_field] = value


def _merge(document: Json, body_field: str, body: Json) -> None:
    if body_field == "*":
        document.update(body)
    else:
        document[body_field] = body


def _query(request: web.Request, version: str, method: str) -> Json:
    """The query as JSON of the request message."""
    fields = {}
    for field in message_class(version, f"{method}Request").DESCRIPTOR.fields:
        fields[field.json_name] = fields[field.name] = field
    document: Json = {}
    for key, value in request.query.items():
        if key.startswith("$") or key in _SYSTEM:
            continue
        field = fields.get(key)
        if field is not None and field.is_repeated:
            document.setdefault(field.json_name, []).append(value)
        elif field is not None and field.type == field.TYPE_BOOL:
            document[field.json_name] = _bool(key, value)
        else:
            document[key] = value
    return document


def _bool(key: str, value: str) -> bool:
    if value.lower() not in {"true", "false", "1", "0"}:
        raise invalid(key, f"Invalid value at {key!r} (TYPE_BOOL), {value!r}.")
    return value.lower() in {"true", "1"}


async def _body(request: web.Request) -> Json:
    data = await request.read()
    if not data.strip():
        return {}
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise ApiError("INVALID_ARGUMENT", "Invalid JSON payload received. The body must be an object.")
    return document


def _dumps(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))


def _refusal(error: ApiError) -> web.Response:
    headers = (
        {"WWW-Authenticate": 'Bearer realm="multislice_nb"'} if error.status == "UNAUTHENTICATED" else {}
    )
    return web.json_response(error.as_rest(), status=error.http_status, headers=headers)
