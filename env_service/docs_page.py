"""The page at /docs: the routes, in one HTML file that needs nothing else.

In: the service's OpenAPI description. Out: HTML. FastAPI's own page loads scripts from the
internet, which the nodes of a cluster cannot reach.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h2 { font: 600 1.1rem ui-monospace, monospace; margin-top: 2rem; border-top: 1px solid #8884; }
table { border-collapse: collapse; margin: .5rem 0; }
td, th { border: 1px solid #8886; padding: .2rem .6rem; text-align: left; vertical-align: top; }
code { font: .9em ui-monospace, monospace; }
:root { color-scheme: light dark; }
"""


def page(openapi: Mapping[str, Any]) -> str:
    """The whole page."""
    title = escape(f"{openapi['info']['title']}, protocol {openapi['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>. Replies are '
        '<code>{"success": true, "data": ...}</code>, or <code>{"success": false, "error": '
        '{"code", "message"}}</code> with a fitting status.</p>'
        f"{''.join(_routes(openapi))}</body></html>"
    )


def _routes(openapi: Mapping[str, Any]) -> Iterator[str]:
    schemas = openapi.get("components", {}).get("schemas", {})
    for path, methods in openapi["paths"].items():
        for method, route in methods.items():
            yield f"<h2>{escape(method.upper())} {escape(path)}</h2>"
            yield f"<p>{escape(route.get('description', ''))}</p>"
            body = _json_schema(route.get("requestBody", {}))
            if body is not None:
                yield f"<h3>Body</h3>{_table(body, schemas, frozenset())}"
            reply = _json_schema(route["responses"].get("200", {}))
            if reply is not None:
                data = _resolved(reply, schemas).get("properties", {}).get("data", reply)
                yield f"<h3>data</h3>{_table(data, schemas, frozenset())}"


def _json_schema(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    schema: Mapping[str, Any] | None = (
        content.get("content", {}).get("application/json", {}).get("schema")
    )
    return schema


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    named: Mapping[str, Any] = schemas.get(name, schema)
    return named


def _table(schema: Mapping[str, Any], schemas: Mapping[str, Any], inside: frozenset[str]) -> str:
    """A table of an object's fields and those of its nested objects; of other values the kind.

    `inside` has the names of the enclosing objects, whose fields are not repeated.
    """
    name = str(schema.get("$ref", ""))
    properties = _resolved(schema, schemas).get("properties")
    if name in inside or not properties:
        return f"<p><code>{escape(_kind(schema))}</code></p>{_parts(schema, schemas, inside)}"
    required = _resolved(schema, schemas).get("required", ())
    rows = []
    for field, inner in properties.items():
        notes = [inner["description"]] if "description" in inner else []
        notes += [f"Default: {inner['default']!r}."] if "default" in inner else []
        optional = "" if field in required else " (optional)"
        rows.append(
            f"<tr><td><code>{escape(field)}</code>{optional}</td>"
            f"<td><code>{escape(_kind(inner))}</code></td>"
            f"<td>{escape(' '.join(notes))}{_parts(inner, schemas, inside | {name})}</td></tr>"
        )
    return f"<table><tr><th>field</th><th>kind</th><th></th></tr>{''.join(rows)}</table>"


def _parts(schema: Mapping[str, Any], schemas: Mapping[str, Any], inside: frozenset[str]) -> str:
    """Tables of the objects that a value may be, or be a list of."""
    parts = [schema, *schema.get("anyOf", ()), schema.get("items", {})]
    return "".join(
        _table(part, schemas, inside)
        for part in parts
        if part.get("$ref", "") not in inside and _resolved(part, schemas).get("properties")
    )


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "const" in schema or "enum" in schema:
        return " or ".join(map(repr, schema.get("enum", [schema.get("const")])))
    kind = str(schema.get("type", "anything"))
    return f"list of {_kind(schema.get('items', {}))}" if kind == "array" else kind
