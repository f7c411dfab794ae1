"""moto's S3 server, one request at a time.

S3 performs a conditional put atomically. moto checks and then stores without a lock, so this wrapper serializes the
requests; concurrent connections still race for the lock.
"""

import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()


def serialized(environ, start_response):
    with lock:
        return list(application(environ, start_response))


run_simple("127.0.0.1", 0, serialized, threaded=True, request_handler=MotoRequestHandler)
