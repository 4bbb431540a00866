"""The documentation page: the OpenAPI document as HTML that needs no script and no other host."""

import json
from collections.abc import Iterable
from html import escape
from string import Template
from typing import Any

Json = dict[str, Any]

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>$title API</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
h2 { border-bottom: 1px solid; margin-top: 2.5rem; text-transform: capitalize }
summary { cursor: pointer; padding: .35rem 0 }
code, pre { font: 14px/1.4 ui-monospace, monospace }
pre { border-left: 3px solid; overflow: auto; padding: .25rem .75rem }
details > * { margin-left: 1.25rem }
details > summary { margin-left: 0 }
.method { display: inline-block; font-weight: bold; width: 4.5rem }
.scope { float: right; opacity: .7 }
table { border-collapse: collapse }
td, th { padding: .15rem 1rem .15rem 0; text-align: left; vertical-align: top }
:root { color-scheme: light dark }
</style>
<h1>$title API <small>$version</small></h1>
<p>$description</p>
<p>Every call but <code>/health</code> needs a key: <code>Authorization: Bearer KEY</code>.
The scope <code>admin</code> implies <code>produce</code> and <code>read</code>.
Failures are <code>application/problem+json</code>.
The same in a form for programs: <a href="/openapi.json">openapi.json</a>.</p>
$groups
<h2>Types</h2>
$types
</html>
""")


def render_docs(api: Json) -> str:
    """Return the page for an OpenAPI document."""
    groups: dict[str, list[str]] = {}
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            section = _operation(path, method.upper(), operation)
            groups.setdefault(operation["tags"][0], []).append(section)
    types = api["components"]["schemas"]
    return PAGE.substitute(
        title=escape(api["info"]["title"]),
        version=escape(api["info"]["version"]),
        description=escape(api["info"]["description"]),
        groups="\n".join(_group(name, sections) for name, sections in groups.items()),
        types="\n".join(_type(name, schema) for name, schema in sorted(types.items())),
    )


def _group(name: str, sections: Iterable[str]) -> str:
    return f"<h2>{escape(name)}</h2>\n" + "\n".join(sections)


def _operation(path: str, method: str, operation: Json) -> str:
    security = operation["security"]
    scope = f"scope {security[0]['key'][0]}" if security else "no key"
    parts = [
        f'<summary><span class="scope">{escape(scope)}</span><span class="method">{method}</span>',
        f"<code>{escape(path)}</code></summary>",
        f"<p>{escape(operation['summary'])}.</p>",
        _parameters(operation["parameters"]),
        _body(operation),
        _answers(operation["responses"]),
    ]
    return f"<details>{''.join(parts)}</details>"


def _parameters(parameters: list[Json]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}"
        f"<td>{'required' if each['required'] else 'optional'}<td>{_inline(each['schema'])}"
        for each in parameters
    )
    return f"<table>{rows}</table>"


def _body(operation: Json) -> str:
    if "requestBody" not in operation:
        return ""
    return f"<p>Takes {_content(operation['requestBody']['content'])}</p>"


def _answers(responses: Json) -> str:
    rows = "".join(
        f"<tr><td>{status}<td>{escape(response['description'])}"
        f"<td>{_content(response.get('content', {}))}"
        for status, response in responses.items()
    )
    return f"<table>{rows}</table>"


def _content(content: Json) -> str:
    return ", ".join(
        f"{escape(media_type)} {_inline(about['schema'])}" for media_type, about in content.items()
    )


def _inline(schema: Json) -> str:
    """Link a type by name; write a small schema out."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    if schema.get("type") == "array":
        return f"list of {_inline(schema['items'])}"
    return f"<code>{escape(json.dumps(schema))}</code>" if schema else ""


def _type(name: str, schema: Json) -> str:
    text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><pre>{text}</pre>'
