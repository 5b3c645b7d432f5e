"""The sources of skills that are HTTP requests: those of the settings, and operations of an API."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import anyio
import msgspec
import structlog
from anyio.abc import TaskStatus

from component import system
from component.config.rest import RestSkill
from component.features.apis import openapi_operations as operations
from component.features.apis.openapi_document import (
    OpenApiDocument,
    Unusable,
    bounded_text,
    mapping,
)
from component.features.apis.openapi_operations import (
    ListedOperation,
    Operation,
    RequestBuilder,
    granted,
)
from component.features.apis.settings import OpenApi
from component.http.gate import HttpError, HttpGate, HttpLimits, HttpRequest, access_to
from component.http.targets import network_capability, target_of
from component.policy.globs import first_match, pattern
from component.rest.answers import ResponseConverter
from component.rest.requests import request
from component.rest.template import RequestTemplate, effects_of
from component.skills.context import Context
from component.skills.errors import DeclarationError, SkillLoadError
from component.skills.inputs import schema_inputs
from component.skills.outputs import SkillResult
from component.skills.skill import Skill
from component.skills.sources import FromSettings, Offer
from component.skills.spec import Schema

_log = structlog.get_logger("component.features.apis")

_GRACE_S = 30.0
"""Seconds for the waits between the repetitions of a request."""


def api_skill(
    settings: RestSkill | OpenApi,
    base: str,
    build: Callable[[Mapping[str, Any]], HttpRequest],
    answers: ResponseConverter,
    **fields: Any,
) -> Skill:
    """Return a skill whose requests go to the server of `base`, and only there; `fields` are the
    others of `Skill`. Raises DeclarationError.
    """
    repeatable = fields["annotations"].repeatable
    gate = HttpGate(
        (access_to(base),),
        HttpLimits(timeout_s=settings.timeout_s, response_bytes=settings.max_response_bytes),
    )

    async def invoke(arguments: Any, _context: Context | None) -> SkillResult:
        wanted = build(arguments)
        response = await request(gate, wanted, repeatable=repeatable, retries=settings.retries)
        return await answers.result(response)

    return Skill(
        kind="async",
        wants_context=True,
        invoke=invoke,
        timeout=settings.timeout_s * (1 + settings.retries) + _GRACE_S,
        capabilities=(network_capability(base),),
        taint=settings.taint,
        versioned_by_content=True,
        **fields,
    )


class RestSource(FromSettings):
    """The skills of the sections `[rest.NAME]`."""

    name = "rest"

    def __init__(self, entries: Mapping[str, RestSkill]) -> None:
        self._entries = entries

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the skills. One that cannot be declared is logged."""
        skills = []
        for name, entry in self._entries.items():
            try:
                skills.append(rest_skill(name, entry))
            except DeclarationError as error:
                _log.error("a skill cannot be offered", section=f"rest.{name}", reason=str(error))
        offer(skills)
        task_status.started()
        await anyio.sleep_forever()


def rest_skill(name: str, entry: RestSkill) -> Skill:
    """Return the skill of a section. Raises DeclarationError."""
    template = RequestTemplate(entry)
    schema = _schema(entry)
    return api_skill(
        entry,
        template.origin,
        template.request,
        ResponseConverter(entry.select, entry.output, entry.error),
        name=name,
        title=entry.title,
        question=entry.question,
        description=entry.description,
        tags=entry.tags,
        annotations=effects_of(entry.method, entry.annotations),
        input_schema=schema,
        inputs=schema_inputs(schema),
        source=f"rest.{name}",
    )


def _schema(entry: RestSkill) -> Schema:
    required = [
        name
        for name, schema in entry.parameters.items()
        if "default" not in schema and name not in entry.optional
    ]
    return {
        "type": "object",
        "properties": entry.parameters,
        "required": required,
        "additionalProperties": False,
    }


_ACCEPT = (("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),)


class OpenApiSource(FromSettings):
    """The skills of a section `[openapi.NAME]`."""

    def __init__(self, name: str, settings: OpenApi) -> None:
        self.name = f"openapi.{name}"
        self._section = name
        self._settings = settings

    async def run(self, offer: Offer, *, task_status: TaskStatus[None]) -> None:
        """Offer the operations, and again when the document has changed.

        Raises SkillLoadError if the document cannot be used the first time.
        """
        known = await self._offer_changed(offer, b"")
        task_status.started()
        while True:
            await anyio.sleep(self._settings.refresh_s)
            try:
                known = await self._offer_changed(offer, known)
            except SkillLoadError as error:
                _log.warning("an API keeps its skills", source=self.name, reason=str(error))

    async def _offer_changed(self, offer: Offer, known: bytes) -> bytes:
        """Read the document, offer its skills if it has another hash, and return the hash."""
        data = await self._read()
        digest = hashlib.sha256(data).digest()
        if digest != known:
            approved = self._settings.sha256
            if approved and digest.hex() != approved:
                raise SkillLoadError(
                    f"The description has the SHA-256 {digest.hex()}, which is not the one that"
                    " sha256 approves: read it, and change sha256."
                )
            offer(await system.in_thread(self.skills, data))
        return digest

    async def _read(self) -> bytes:
        most = self._settings.max_document_bytes
        if self._settings.document is not None:
            data = await system.in_thread(_content, self._settings.document, most + 1)
            if len(data) > most:
                raise SkillLoadError(f"{self._settings.document} has more than {most:,} bytes.")
            return data
        url = self._settings.url
        limits = HttpLimits(timeout_s=self._settings.timeout_s, response_bytes=most)
        try:
            gate = HttpGate((access_to(url),), limits)
            response = await gate.send(HttpRequest(url, headers=_ACCEPT))
        except HttpError as error:
            raise SkillLoadError(f"The description cannot be read: {error}") from error
        if response.status != 200:
            raise SkillLoadError(f"The server of the description answers {response.status}.")
        return response.body

    def skills(self, data: bytes) -> list[Skill]:
        """Return the skills that a document describes. What cannot be one is logged.

        Raises SkillLoadError: the document cannot be used, describes more operations than are
        permitted, or names a server that nobody has permitted.
        """
        settings = self._settings
        document = OpenApiDocument.parse(data)
        base = self._base(document)
        chosen = list(self._chosen(document))
        if len(chosen) > settings.max_operations:
            raise SkillLoadError(
                f"It has {len(chosen)} operations, and at most {settings.max_operations} are"
                " offered: choose some by tags or operations, or raise max_operations."
            )
        skills: list[Skill] = []
        for entry in chosen:
            try:
                skills.append(self._skill(document, entry, base))
            except (Unusable, DeclarationError) as error:
                shown = f"{entry.method.upper()} {entry.path[:100]!a}"
                _log.warning(
                    "an operation is not offered",
                    source=self.name,
                    operation=shown,
                    reason=f"it {error}" if isinstance(error, Unusable) else str(error),
                )
        return skills

    def _chosen(self, document: OpenApiDocument) -> Iterator[ListedOperation]:
        tags, wanted = set(self._settings.tags), pattern(self._settings.operations)
        for entry in operations.entries_of(document):
            by_tag = not tags or not tags.isdisjoint(entry.tags)
            by_id = not self._settings.operations or wanted.fullmatch(entry.id)
            if by_tag and by_id:
                yield entry

    def _skill(self, document: OpenApiDocument, entry: ListedOperation, base: str) -> Skill:
        settings = self._settings
        operation = operations.read_operation(document, entry)
        base = self._base_of(operation, base)
        secrets = {name: each.get_secret_value() for name, each in settings.credentials.items()}
        headers = tuple((name, each.get_secret_value()) for name, each in settings.headers.items())
        builder = RequestBuilder(
            base, operation, granted(document, operation.security, secrets), headers
        )
        said = first_match(settings.annotations, entry.id)
        prefix = self._section if settings.prefix is None else settings.prefix
        schema = operation.schema
        return api_skill(
            settings,
            base,
            builder.request,
            ResponseConverter(),
            name=f"{prefix}.{operation.id}" if prefix else operation.id,
            title=operation.title,
            question=first_match(settings.questions, entry.id) or "",
            description=operation.description,
            tags=operation.tags,
            annotations=effects_of(operation.method, said),
            input_schema=schema,
            inputs=schema_inputs(schema, adds_defaults=False),
            described_by=settings.taint,
            claims=_claims(operation, "" if settings.server else base),
            source=self.name,
        )

    def _base(self, document: OpenApiDocument) -> str:
        """Return the base URL: that of the settings, or the first of the document if it is on the
        server that the document was read from.
        """
        if self._settings.server:
            return self._settings.server
        servers = document.root.get("servers")
        found = _url(
            servers[0] if isinstance(servers, list) and servers else {}, self._settings.url
        )
        if found is None or target_of(found).origin != target_of(self._settings.url).origin:
            raise SkillLoadError(
                f"It names the server {bounded_text(found, 100)!a}, which is not the one that it"
                " was read from: write the right one into server."
            )
        return found

    def _base_of(self, operation: Operation, base: str) -> str:
        """Return the base URL of an operation that may name a server of its own."""
        if not operation.servers:
            return base
        own = _url(operation.servers[0], f"{base}/")
        if own is None or target_of(own).origin != target_of(base).origin:
            raise Unusable("names another server than the API")
        return own


def _claims(operation: Operation, server: str) -> dict[str, Any]:
    """Return what a description says about the requests of an operation; `server` is the base URL
    if it comes from the description.
    """
    said: dict[str, Any] = msgspec.to_builtins(operation)
    for name in ("id", "title", "description", "tags", "definitions", "servers"):
        del said[name]
    for parameter in said["parameters"]:
        del parameter["schema"]
    return {**said, "server": server}


def _url(server: object, base: str) -> str | None:
    """Return the URL of a server, with the defaults of its variables, if it can be used."""
    node = mapping(server)
    url = node.get("url", "/")
    if not isinstance(url, str):
        return None
    for name, variable in mapping(node.get("variables")).items():
        url = url.replace(f"{{{name}}}", bounded_text(mapping(variable).get("default"), 200))
    try:
        found = urljoin(base, url).rstrip("/")
        target = target_of(found)
    except ValueError:
        return None
    return None if "?" in found or "#" in found or "{" in found or not target.host else found


def _content(path: Path, most: int) -> bytes:
    try:
        if not path.is_file():
            raise SkillLoadError(f"{path} is not a file.")
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise SkillLoadError(f"{path} cannot be read: {error.strerror}.") from error
