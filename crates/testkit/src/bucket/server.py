"""moto's S3 server, one request at a time.

S3 answers a put that must not replace anything atomically. moto looks and then stores, with room for another thread in
between, so it is given one request at a time; the connections still race for their turn.
"""

import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

application = DomainDispatcherApplication(create_backend_app)
turn = threading.Lock()


def one_at_a_time(environ, start_response):
    with turn:
        return list(application(environ, start_response))


run_simple("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)
