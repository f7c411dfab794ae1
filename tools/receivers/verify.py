"""Verifies a webhook like a receiver, with the PyPI packages of Standard Webhooks and CloudEvents.

Standard input: a JSON object with `headers` (object of strings), `body` (string) and `keys` (array of strings).
Output: for each key `verified` or `refused`, then the event's attributes and data as a JSON object.
"""

import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def verdict(key: str, body: str, headers: dict[str, str]) -> str:
    try:
        Webhook(key).verify(body, headers)
    except WebhookVerificationError:
        return "refused"
    return "verified"


request = json.load(sys.stdin)
body, headers = request["body"], request["headers"]
for key in request["keys"]:
    print(verdict(key, body, headers))
event = from_http_event(HTTPMessage(headers=headers, body=body.encode()))
print(
    json.dumps(
        {
            "id": event.get_id(),
            "source": event.get_source(),
            "specversion": event.get_specversion(),
            "time": event.get_time().isoformat(),
            "type": event.get_type(),
            "data": event.get_data(),
        }
    )
)
