"""Runs skills that are one HTTP request, which the service makes for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from component import system
from component.config.problems import dotted, sentences
from component.config.rest import RestSkill
from component.http.gate import Headers, HttpLimits, HttpRefused
from component.http.targets import target_of
from component.rest.answers import ResponseConverter
from component.rest.requests import request
from component.rest.template import RequestTemplate, effects_of
from component.skill_directories.host_functions import Credentials, check_grantable, gate_of
from component.skill_directories.version import Artefact, SkillRunner, read_schema
from component.skills.context import Context
from component.skills.errors import CapabilityMissing, SkillError, SkillLoadError, SkillUnavailable
from component.skills.host import HasCredential, HostError
from component.skills.manifest import FILE, RestResponse
from component.skills.outputs import File, Link, SkillResult

_RETRIES: Final = 2


class RestRequests(SkillRunner["_Request"]):
    """Makes the requests of skills."""

    async def describe(self, artefact: Artefact) -> Mapping[str, Any]:
        """See `SkillRunner`. The manifest says everything; effects may follow from the method."""
        check_grantable(artefact)
        said = artefact.manifest.skill
        if said.execution.durable:
            raise SkillLoadError("A request cannot be durable: remove durable.")
        found = await self._of(artefact)
        target = target_of(found.template.origin)
        if not said.capabilities.connects(target.scheme, target.host, target.port):
            raise SkillLoadError(
                f"the request goes to {target.origin}, which network of {FILE} lacks: add it."
            )
        wanted = found.credential
        if wanted and wanted not in said.capabilities.credential:
            raise SkillLoadError(
                f"the request uses the credential {wanted}, which credential of {FILE} lacks: add"
                " it."
            )
        return {"annotations": effects_of(found.method, None)}

    async def call(
        self, artefact: Artefact, arguments: dict[str, Any], context: Context
    ) -> SkillResult:
        """See `SkillRunner`. A request is sent once, unless the server asks to wait; `attempts` of
        the manifest repeats calls.
        """
        found = await self._of(artefact)
        wanted = found.template.request(arguments)
        secret = await self._secret(artefact, found.credential, wanted.url, context)
        runs = artefact.manifest.skill.execution
        limits = HttpLimits(timeout_s=runs.timeout_s, response_bytes=found.response.max_bytes)
        gate = gate_of(artefact.manifest.skill.capabilities, self._services, limits)
        sent = msgspec.structs.replace(wanted, secret_headers=(*wanted.secret_headers, *secret))
        try:
            response = await request(gate, sent, repeatable=False, retries=_RETRIES, hidden=secret)
        except SkillError as error:
            if isinstance(error.__cause__, HttpRefused):
                missing = error.__cause__.capability
                raise CapabilityMissing(artefact.name, missing) from error
            raise
        result = await found.answers.result(response)
        if _size(result) > runs.output_bytes:
            raise SkillUnavailable(
                f"The skill {artefact.name} returned over {runs.output_bytes:,} bytes."
            )
        return result

    async def _secret(
        self, artefact: Artefact, credential: str, url: str, context: Context
    ) -> Headers:
        if not credential:
            return ()
        known = Credentials(artefact.name, artefact.manifest.skill.capabilities, self._services)
        provided = context.functions  # of a test, which sends nothing
        try:
            if provided is None or HasCredential not in provided.handlers:
                return known.headers(credential, url)
            if await provided.perform(HasCredential(credential)):
                return ()
        except HostError as error:
            raise SkillUnavailable(str(error), begun=False) from error
        raise SkillUnavailable(f"The credential {credential} is not set.", begun=False)

    async def _load(self, artefact: Artefact) -> _Request:
        return await system.in_thread(_Request, artefact)


class _Request:
    """The request of one content. Raises SkillLoadError."""

    def __init__(self, artefact: Artefact) -> None:
        said = artefact.manifest.skill
        assert said.request is not None, "the manifest is checked"
        self.method = said.request.method
        self.credential = str(said.request.credential or "")
        self.response = said.response or RestResponse()
        entry = _entry(artefact)
        self.template = RequestTemplate(entry)
        self.answers = ResponseConverter(entry.select, entry.output, entry.error)


def _entry(artefact: Artefact) -> RestSkill:
    """Return the request as a section of the settings has it, which has the same checks."""
    said = artefact.manifest.skill
    assert said.request is not None, "the manifest is checked"
    assert said.input_schema is not None, "the manifest is checked"
    response = said.response or RestResponse()
    schema = read_schema(artefact, said.input_schema)
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    try:
        optional = [
            name
            for name, each in properties.items()
            if name not in required and "default" not in each
        ]
        return RestSkill.model_validate(
            {
                "description": said.description or said.name,
                "method": said.request.method,
                "url": said.request.url,
                "parameters": properties,
                "optional": optional,
                "query": said.request.query,
                "headers": said.request.headers,
                "body": said.request.body,
                "error": response.error,
                "select": response.select,
                "output": response.output,
            }
        )
    except ValidationError as error:
        path, reason = next(sentences(error, RestSkill))
        where = dotted(path) or "it"
        raise SkillLoadError(f"the request in {FILE} is not valid: {where} {reason}.") from None
    except (AttributeError, TypeError):
        raise SkillLoadError(f"input_schema of {FILE} has no usable properties.") from None


def _size(result: SkillResult) -> int:
    return sum(
        len(part.data)
        if isinstance(part, File)
        else len(part.url if isinstance(part, Link) else part.text.encode(errors="replace"))
        for part in result.outputs
    )
