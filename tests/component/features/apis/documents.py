"""OpenAPI documents of the tests."""

import copy
import json
from typing import Any

PETSTORE: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "/v1"}],
    "security": [{"key": []}],
    "components": {
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "query": {"type": "apiKey", "in": "query", "name": "api_key"},
            "token": {"type": "http", "scheme": "bearer"},
            "basic": {"type": "http", "scheme": "basic"},
        },
        "parameters": {
            "limit": {
                "name": "limit",
                "in": "query",
                "description": "How many.",
                "schema": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            }
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "minLength": 1},
                    "tag": {"type": "string", "nullable": True, "xml": {"name": "t"}},
                    "parents": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                },
            }
        },
    },
    "paths": {
        "/pets": {
            "parameters": [{"$ref": "#/components/parameters/limit"}],
            "get": {
                "operationId": "listPets",
                "summary": "List pets",
                "tags": ["pets"],
                "parameters": [
                    {
                        "name": "tag",
                        "in": "query",
                        "schema": {"type": "array", "items": {"type": "string"}},
                    },
                    {
                        "name": "filter",
                        "in": "query",
                        "style": "deepObject",
                        "explode": True,
                        "schema": {"type": "object"},
                    },
                ],
            },
            "post": {
                "operationId": "createPet",
                "description": "Create a pet.",
                "tags": ["pets", "writing"],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}
                    },
                },
            },
        },
        "/pets/{petId}": {
            "parameters": [
                {"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}
            ],
            "get": {"operationId": "getPet", "tags": ["pets"]},
            "delete": {
                "operationId": "deletePet",
                "tags": ["writing"],
                "security": [{"token": []}],
                "parameters": [{"name": "X-Reason", "in": "header", "schema": {"type": "string"}}],
            },
        },
        "/login": {
            "post": {
                "operationId": "login",
                "security": [],
                "requestBody": {
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {
                                "type": "object",
                                "properties": {"user": {"type": "string"}},
                            }
                        }
                    }
                },
            }
        },
    },
}


def petstore(**changes: Any) -> dict[str, Any]:
    """The document with other parts at its top."""
    return copy.deepcopy(PETSTORE) | changes


def with_operation(operation: dict[str, Any], path: str = "/x", **changes: Any) -> dict[str, Any]:
    """A document with one operation, `one`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "One", "version": "1"},
        "servers": [{"url": "/"}],
        "paths": {path: {"get": {"operationId": "one"} | operation}},
    } | changes


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()
