"""Reads a dashboard with Grafana's own library and prints what the library does not know.

Unknown members are lost on the way through the library, and members of a wrong type raise an error.
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def lost(ours, theirs, path):
    """Yields the paths of ours that theirs lacks or has with another value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key not in theirs:
                yield f"{path}.{key}"
            else:
                yield from lost(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs)):
            yield from lost(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


with open(sys.argv[1], encoding="utf-8") as file:
    ours = json.load(file)
register_default_plugins()
theirs = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(ours)))
problems = list(lost(ours, theirs, ""))
print("\n".join(problems))
sys.exit(1 if problems or not ours["panels"] else 0)
