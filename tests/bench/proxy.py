"""A reverse proxy with TLS that counts requests, and may complete what passes."""

import datetime
import http.client
import ipaddress
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1: the PEM files of certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    today = datetime.datetime.now(datetime.timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1)).not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, secret = folder / "certificate.pem", folder / "key.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return pem, secret


class Proxy:
    """Listens on 127.0.0.1 and hands everything on to `upstream` (host:port)."""

    def __init__(self, upstream: str, certificate: tuple[Path, Path], tls: bool = False):
        self.upstream, self.upstream_tls, self.count = upstream, tls, 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sees(self, method: str, path: str, body: bytes) -> None:
        """Every request, before it is handed on."""

    def completes(self, path: str, body: bytes) -> bytes:
        """What the client gets to see of an answer."""
        return body

    def ask(self, method: str, path: str, headers: dict, body: bytes) -> http.client.HTTPResponse:
        if self.upstream_tls:
            # The upstream is a child of ours on loopback, with a certificate of its own making.
            trusting = ssl._create_unverified_context()  # pylint: disable=protected-access
            connection = http.client.HTTPSConnection(self.upstream, context=trusting, timeout=60)
        else:
            connection = http.client.HTTPConnection(self.upstream, timeout=60)
        connection.request(method, path, body or None, headers)
        return connection.getresponse()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with proxy._lock:
                    proxy.count += 1
                    proxy.sees(self.command, self.path, body)
                passed = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "connection")}
                answer = proxy.ask(self.command, self.path, passed, body)
                text = proxy.completes(self.path, answer.read())
                self.send_response(answer.status, answer.reason)
                for key, value in answer.getheaders():
                    if key.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_arguments):
                pass

        return Handler
