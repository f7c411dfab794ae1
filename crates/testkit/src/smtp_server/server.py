"""An SMTP server on a free port. It prints its port, then each accepted message as one line of JSON.

The argument is the password of the user `fairway`. The server accepts messages only after a sign-in with this
password. The local part of a recipient selects the response: `refused` is rejected, and `busy` is deferred once for
each message.
"""

import asyncio
import email
import email.policy
import json
import sys

from aiosmtpd.controller import UnthreadedController
from aiosmtpd.smtp import SMTP, AuthResult

deferred = set()


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused@"):
            return "550 5.1.1 no mailbox; the password is S3CRET"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        message = email.message_from_bytes(envelope.original_content, policy=email.policy.default)
        identifier = message["message-id"]
        if envelope.rcpt_tos[0].startswith("busy@") and identifier not in deferred:
            deferred.add(identifier)
            return "451 4.3.0 later; the password is S3CRET"
        parts = {part.get_content_type(): part.get_content() for part in message.walk() if not part.is_multipart()}
        headers = [[name.lower(), str(value)] for name, value in message.items()]
        found = {"from": envelope.mail_from, "to": envelope.rcpt_tos, "headers": headers, "parts": parts}
        print(json.dumps(found), flush=True)
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    success = (data.login, data.password) == (b"fairway", sys.argv[1].encode())
    # With `handled=False`, aiosmtpd itself sends the response to the client.
    return AuthResult(success=success, handled=False)


class Server(UnthreadedController):
    def factory(self):
        return SMTP(
            self.handler,
            authenticator=authenticate,
            auth_required=True,
            auth_require_tls=False,
            enable_SMTPUTF8=True,
            ident="test",
        )


loop = asyncio.new_event_loop()
server = Server(Handler(), hostname="127.0.0.1", port=0, loop=loop)
server.begin()
print(server.server.sockets[0].getsockname()[1], flush=True)
loop.run_forever()
