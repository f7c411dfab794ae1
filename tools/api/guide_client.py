"""Runs the first chapter of the guide with a Python client that is generated from the OpenAPI document.

Usage: guide_client.py ADDRESS, with the folder of the generated package `fairway_client` on PYTHONPATH. All requests
use the client's functions, and all responses its models. A response that violates the document ends the script with an
error.
"""

import sys
import uuid

from fairway_client import Client, models
from fairway_client.api.assets import create_asset, create_asset_version, list_assets
from fairway_client.api.audit import list_audit_events
from fairway_client.api.executions import execute_workload, read_evidence_graph, read_execution
from fairway_client.api.releases import (
    bind_version,
    create_release,
    list_approvals,
    read_active_release,
    review_release,
    transition_release,
)
from fairway_client.api.workloads import create_workload, read_workload

NAME = "python-" + uuid.uuid4().hex[:12]


def client_of(actor):
    # With this option the client raises an error for a status that the OpenAPI document does not list.
    return Client(base_url=sys.argv[1], headers={"X-Actor-Ref": actor}, raise_on_unexpected_status=True)


ada, grace = client_of("user:ada"), client_of("user:grace")


def expect_status(response, status, model):
    """Returns the parsed body; exits unless the response has this status and its documented model."""
    if response.status_code != status or not isinstance(response.parsed, model):
        sys.exit(f"unexpected response: {response.status_code} {response.content[:500]!r}")
    return response.parsed


def expect_refusal(response, status, code):
    error = expect_status(response, status, models.Error)
    if error.detail.error != code:
        sys.exit(f"unexpected refusal: {response.content[:500]!r}")
    return error


def version(kind, content):
    asset = models.NewAsset.from_dict({"slug": f"{NAME}-{kind.replace('_', '-')}", "asset_kind": kind, "owner_ref": "team:support"})
    asset = expect_status(create_asset.sync_detailed(client=ada, body=asset), 201, models.Asset)
    body = models.NewVersion.from_dict({"content": content})
    response = create_asset_version.sync_detailed(asset.asset_id, client=ada, body=body)
    return asset, expect_status(response, 201, models.AssetVersion)


prompt = {
    "system_prompt": "Say what kind of feedback this is.\nOne of: praise (thanks, love), complaint (broken, late).\nFeedback: $arg:message",
    "variables": [{"name": "message", "type": "string"}],
}
route = {"route_id": "local-rules", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved"}
rules = [
    {"id": "in-dev", "condition": 'environment == "dev"', "outcome": "allow", "reason_code": "dev_feedback"},
    {"id": "too-long", "condition": "size(inputs.message) > 500", "outcome": "deny", "reason_code": "too_long"},
]
contents = {"prompt_template": prompt, "model_policy": {"provider_route": route}, "policy_bundle": {"rules": rules}}
versions = {kind: version(kind, content) for kind, content in contents.items()}

workload = models.NewWorkload.from_dict({"slug": NAME, "owner_ref": "team:support", "invocation_mode": "form"})
workload = expect_status(create_workload.sync_detailed(client=ada, body=workload), 201, models.Workload)
release = models.NewRelease.from_dict(
    {
        "workload_id": str(workload.workload_id),
        "environment": "dev",
        "target_lane": "all",
        "policy_bundle_id": str(versions["policy_bundle"][0].asset_id),
    }
)
release = expect_status(create_release.sync_detailed(client=ada, body=release), 201, models.ReleaseDetail)
for kind, (_, asset_version) in versions.items():
    binding = models.NewBinding.from_dict({"role": kind, "asset_version_id": str(asset_version.asset_version_id)})
    expect_status(bind_version.sync_detailed(release.release_id, client=ada, body=binding), 201, models.Binding)


def move(client, state):
    body = models.TransitionRequest.from_dict({"to_state": state})
    return transition_release.sync_detailed(release.release_id, client=client, body=body)


expect_status(move(ada, "review_ready"), 200, models.Transition)
expect_refusal(move(grace, "approved"), 422, "approval_required")
approval = models.NewApproval.from_dict(
    {"outcome": "approved", "subject_kind": "release", "subject_ref": str(release.release_id), "note": "Read all three."}
)
expect_status(review_release.sync_detailed(release.release_id, client=grace, body=approval), 201, models.Approval)
expect_status(move(grace, "approved"), 200, models.Transition)
expect_status(move(grace, "active"), 200, models.Transition)
active = read_active_release.sync_detailed(workload.workload_id, client=ada, environment="dev")
assert expect_status(active, 200, models.ReleaseDetail).release_id == release.release_id
assert len(list_approvals.sync(release.release_id, client=ada)) == 1


def run(message):
    body = models.Execute.from_dict({"environment": "dev", "inputs": {"message": message}})
    return execute_workload.sync_detailed(NAME, client=ada, body=body, idempotency_key=f"{NAME}-{len(message)}")


first = expect_status(run("Thanks, I love it!"), 200, models.ExecutionResult)
repeated = expect_status(run("Thanks, I love it!"), 200, models.ExecutionResult)
assert first.output == "praise" and repeated.execution_id == first.execution_id, (first, repeated)
execution = expect_status(read_execution.sync_detailed(first.execution_id, client=ada), 200, models.Execution)
assert execution.outcome == "success" and execution.submitted_by == "user:ada", execution
refusal = expect_refusal(run("x" * 501), 403, "policy_denied")
refusal = read_execution.sync(uuid.UUID(refusal.detail["execution_id"]), client=ada)
assert refusal.reason_code == "too_long", refusal

flat = expect_status(read_evidence_graph.sync_detailed(first.execution_id, client=grace), 200, object)
assert flat.release.release_id == release.release_id, flat
graph = expect_status(read_evidence_graph.sync_detailed(first.execution_id, client=grace, format_=models.ReadEvidenceGraphFormat.GRAPH), 200, object)
assert len(graph.nodes) > 5 and len(graph.edges) > 5, graph

page = list_assets.sync_detailed(client=ada, limit=2)
assert len(page.parsed) == 2 and 'rel="next"' in page.headers["link"], page
events = list_audit_events.sync(client=grace, limit=5)
assert len(events) == 5 and events[0].index > events[4].index, events
assert expect_refusal(read_workload.sync_detailed(uuid.uuid4(), client=ada), 404, "not_found").request_id
print(f"python: {NAME} answered `{first.output}`; its evidence graph has {len(graph.nodes)} nodes")
