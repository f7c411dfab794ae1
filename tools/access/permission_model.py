"""Decides access requests from the tables of docs/permissions.md, as a model that is independent of the server's code.

Argument: the path of the document. Standard input: one JSON object on each line. Output: one line for each object.

- `{"parents": {"workspace:1": "namespace:1"}}` sets the parent of each scope, up to `platform`. The output is `known`.
- `{"role", "scope_kind"}` asks whether the role may be bound at this kind of scope. The output is `bindable` or
  `too narrow`.
- `{"tenant", "grants": [[role, scope]], "operation", "at": scope}` asks for the decision at a scope. The output is
  `allowed`, `not found`, or `forbidden` with the missing permission. With `"request": true` the decision also requires
  the operation's additional permissions, and the output lists every missing permission.

An empty line flushes the output.
"""

import json
import re
import sys
from typing import NamedTuple

# Kinds of scopes from the widest to the narrowest.
SCOPE_KINDS = ["platform", "tenant", "namespace", "workspace", "workload"]


class Operation(NamedTuple):
    rule: str
    shown_by: str
    permission: str
    also: list[str]


def rows(document: str, table: str) -> list[list[list[str]]]:
    """The rows of a table; each cell is the list of its names."""
    _, _, after_marker = document.partition(f"<!-- table:{table} -->\n")
    lines = after_marker.split("\n\n", 1)[0].splitlines()
    return [[re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")] for line in lines[2:]]


def read(document: str) -> tuple[dict[str, set[str]], dict[str, str], dict[str, Operation]]:
    """Permissions and narrowest scope by role, and operations by name."""
    permissions: dict[str, set[str]] = {}
    narrowest: dict[str, str] = {}
    for [role], includes, adds, [scope] in rows(document, "roles"):
        permissions[role] = set(adds).union(*(permissions[included] for included in includes))
        narrowest[role] = scope
    operations: dict[str, Operation] = {}
    for names, [rule], shown_by, permission, also in rows(document, "operations"):
        for name in names:
            if name in operations:
                sys.exit(f"{name} has two rows")
            operations[name] = Operation(rule, "".join(shown_by), "".join(permission), also)
    return permissions, narrowest, operations


class Caller:
    def __init__(self, permissions: dict[str, set[str]], parents: dict[str, str], grants: list[list[str]]):
        self.permissions, self.parents, self.grants = permissions, parents, grants

    def holds(self, permission: str, at: str) -> bool:
        """Whether a role with the permission is bound at the scope or at a scope that contains it."""
        enclosing_scopes = {at}
        while at != "platform":
            at = self.parents[at]
            enclosing_scopes.add(at)
        return any(permission in self.permissions[role] and scope in enclosing_scopes for role, scope in self.grants)

    def holds_in_namespace(self, permission: str, at: str) -> bool:
        """Whether the caller has the permission in a workspace of the namespace that contains the scope."""
        namespace = self.parents[at] if at.startswith("workspace:") else at
        return any(
            self.holds(permission, workspace) for workspace, parent in self.parents.items() if parent == namespace
        )

    def holds_anywhere(self, permission: str) -> bool:
        return any(permission in self.permissions[role] for role, _ in self.grants)

    def decide(self, operation: Operation, tenant: str, at: str) -> str:
        """The decision on an operation at a scope, without the operation's additional permissions."""
        rule, shown_by, permission, _ = operation
        if rule == "anyone":
            return "allowed"
        if rule == "member":
            return "allowed" if self.grants else "forbidden workload.view"
        if rule in ("platform", "tenant"):
            at = "platform" if rule == "platform" else tenant
        elif rule in ("workspace", "own"):
            if not self.grants:
                return "not found"
        elif rule == "release":
            if not self.holds(shown_by, at):
                return f"forbidden {shown_by}" if self.holds("workload.view", at) else "not found"
        elif rule in ("resource", "list", "asset", "asset_list"):
            if not self.holds(shown_by or permission, at):
                return "not found"
        else:
            sys.exit(f"the rule {rule} is unknown")
        return "allowed" if self.holds(permission, at) else f"forbidden {permission}"

    def answer(self, operation: Operation, tenant: str, at: str) -> str:
        """The decision on a request for a resource at a scope, including the operation's additional permissions."""
        permission = operation.permission
        if operation.rule in ("list", "asset_list", "own"):
            if not self.holds_anywhere(permission):
                return f"forbidden {permission}"
            if operation.rule == "own":
                return "allowed"
        verdict = self.decide(operation, tenant, at)
        if operation.rule in ("asset", "asset_list") and self.holds_in_namespace("asset.view", at):
            is_enough = permission == "asset.view" or self.holds(permission, at)
            verdict = "allowed" if is_enough else f"forbidden {permission}"
        missing = [permission for permission in operation.also if not self.holds(permission, at)]
        if verdict == "not found" or not missing:
            return verdict
        return " ".join(["forbidden", *verdict.split()[1:], *missing])


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        permissions, narrowest, operations = read(file.read())
    parents: dict[str, str] = {}
    for line in sys.stdin:
        if not line.strip():
            sys.stdout.flush()
            continue
        question = json.loads(line)
        if "parents" in question:
            parents = question["parents"]
            print("known")
        elif "scope_kind" in question:
            limit = SCOPE_KINDS.index(narrowest[question["role"]])
            print("bindable" if SCOPE_KINDS.index(question["scope_kind"]) <= limit else "too narrow")
        else:
            caller = Caller(permissions, parents, question["grants"])
            decide = caller.answer if question.get("request") else caller.decide
            print(decide(operations[question["operation"]], question["tenant"], question["at"]))


main()
