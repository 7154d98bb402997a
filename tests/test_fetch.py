"""FETCH: the guard, the client and the downloads, against real servers on loopback and a certificate made here.

Names and addresses that are not ours are played: `Net` answers look-ups from a table and connects whatever was judged
public to a server on loopback, keeping a record of both.
"""
from __future__ import annotations

import gzip
import io
import ipaddress
import os
import socket
import ssl
import stat
import sys
import threading
import time
import zlib

import pytest

import knaif as nk

PUBLIC = "93.184.216.34"
PUBLIC_TOO = "151.101.1.69"
PERMIT = "allow_private_hosts=True permits it, if you trust the URL"


# Servers and surroundings


class Server:
    """A server on loopback: each request is recorded; `answer(head)` returns the bytes to send, or talks for itself."""

    def __init__(self, answer, context=None, host="127.0.0.1"):
        self.answer, self.context, self.requests, self.faults = answer, context, [], []
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port = self.listener.getsockname()[1]
        self.url = "http%s://%s:%d" % ("s" if context else "", "[%s]" % host if ":" in host else host, self.port)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        try:
            connection.settimeout(10)
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
            head = read_request(connection)
            if head:
                self.requests.append(head)
                data = self.answer(head, connection) if self.answer.__code__.co_argcount > 1 else self.answer(head)
                if data:
                    connection.sendall(data)
            if isinstance(connection, ssl.SSLSocket):
                connection = connection.unwrap()
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(1)
            while connection.recv(65536):
                pass
        except (OSError, ValueError) as error:  # the client hung up
            self.faults.append(error)
        finally:
            connection.close()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


def read_request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return data
        data += more
        if data[:1] == b"\x16":
            return data  # TLS, which nobody here expects
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            while len(body) < int(line[15:]):
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def serve():
    """Return a function that starts a server; all are stopped afterwards."""
    servers = []

    def start(answer, **options):
        fixed = answer if callable(answer) else lambda head: answer
        servers.append(Server(fixed, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def answer(body=b"ok", status="200 OK", length=True, **headers):
    """Return the bytes of an answer."""
    lines = ["HTTP/1.1 " + status] + ["%s: %s" % (k.replace("_", "-"), v) for k, v in headers.items()]
    if length:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines + ["", ""]).encode("latin-1") + body


def redirect(to, status="302 Found"):
    return answer(b"", status, Location=to)


class Clock:
    """Seconds that pass only when somebody looks: each look takes `step`."""

    def __init__(self, step=0.0):
        self.now, self.step = 100.0, step

    def __call__(self):
        self.now += self.step
        return self.now


class Net:
    """The names of the world: look-ups answered from a table (a list of answers in turn), connections led to a port."""

    def __init__(self, monkeypatch):
        self.names, self.ports, self.looked_up, self.dialled = {}, {}, [], []
        self.dial = nk._fetch_dial
        monkeypatch.setattr(nk, "_fetch_lookup", self.look_up)
        monkeypatch.setattr(nk, "_fetch_dial", self.connect)

    def look_up(self, host, port):
        self.looked_up.append(host)
        if host not in self.names:
            raise socket.gaierror(-2, "Name or service not known")
        answers = self.names[host]
        return answers.pop(0) if isinstance(answers[0], list) else answers

    def connect(self, address, port, seconds):
        self.dialled.append((address, port))
        if address in self.ports:
            return self.dial("127.0.0.1", self.ports[address], seconds)
        if not address.startswith("127."):
            raise OSError(101, "Network is unreachable")
        return self.dial(address, port, seconds)


@pytest.fixture
def net(monkeypatch):
    return Net(monkeypatch)


def env_of(clock=None, **environ):
    return nk.Env(environ=environ, clock=clock or time.monotonic, stderr=io.BytesIO())


def get(url, **options):
    """Fetch without the proxies of whoever runs the tests."""
    options.setdefault("env", env_of())
    return nk.fetch(url, **options)


def local(url, **options):
    return get(url, allow_private_hosts=True, **options)


def refusal(call, *args, **options):
    with pytest.raises(nk.Error) as caught:
        call(*args, **options)
    return caught.value.code, caught.value.message


# A certificate (RFC 5280) with an ECDSA key on P-256, made of numbers: no tool is needed, nothing expires in a file.

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)


def add(a, b):
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if a[1] != b[1]:
            return None
        slope = 3 * (a[0] * a[0] - 1) * pow(2 * a[1], -1, P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def times(number, point):
    total = None
    while number:
        total = add(total, point) if number & 1 else total
        point, number = add(point, point), number >> 1
    return total


def der(tag, *parts):
    data = b"".join(parts)
    size = len(data)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + data


def der_int(number):
    return der(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def der_id(dotted):
    first, second, *rest = map(int, dotted.split("."))
    data = [first * 40 + second]
    for number in rest:
        group = [number & 127]
        while number > 127:
            number >>= 7
            group.insert(0, number & 127 | 128)
        data += group
    return der(6, bytes(data))


def pem(kind, data):
    return ssl.DER_cert_to_PEM_cert(data).replace("CERTIFICATE", kind)


def make_certificate(names=(), addresses=(), days=3650, key=0x1234567):
    """Return certificate and key as PEM: self-signed, for these names and addresses, valid until so many days hence."""
    import hashlib

    algorithm = der(0x30, der_id("1.2.840.10045.4.3.2"))
    curve = der_id("1.2.840.10045.3.1.7")
    point = b"\x04" + b"".join(number.to_bytes(32, "big") for number in times(key, G))
    public = der(0x30, der(0x30, der_id("1.2.840.10045.2.1"), curve), der(3, b"\0", point))
    subject = der(0x30, der(0x31, der(0x30, der_id("2.5.4.3"), der(12, b"test"))))
    when = [time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + d * 86400)).encode() for d in (-3650, days)]
    own = hashlib.sha1(point).digest()
    alternatives = [der(0x82, name.encode()) for name in names]
    alternatives += [der(0x87, ipaddress.ip_address(address).packed) for address in addresses]

    def extension(identifier, value, critical=False):
        return der(0x30, der_id(identifier), der(1, b"\xff") if critical else b"", der(4, value))

    extensions = der(
        0x30,
        extension("2.5.29.19", der(0x30, der(1, b"\xff")), True),
        extension("2.5.29.15", der(3, b"\x02\x84"), True),
        extension("2.5.29.14", der(4, own)),
        extension("2.5.29.35", der(0x30, der(0x80, own))),
        extension("2.5.29.17", der(0x30, *alternatives)),
    )
    validity = der(0x30, *[der(0x18, moment) for moment in when])
    body = der(0x30, der(0xA0, der_int(2)), der_int(key + days), algorithm, subject, validity, subject, public,
               der(0xA3, extensions))  # fmt: skip
    digest = int.from_bytes(hashlib.sha256(body).digest(), "big")
    once = digest ^ 0x5DEECE66D
    r = times(once, G)[0] % N
    s = pow(once, -1, N) * (digest + r * key) % N
    whole = der(0x30, body, algorithm, der(3, b"\0", der(0x30, der_int(r), der_int(s))))
    secret = der(0x30, der_int(1), der(4, key.to_bytes(32, "big")), der(0xA0, curve))
    return pem("CERTIFICATE", whole), pem("EC PRIVATE KEY", secret)


class Identity:
    """What a TLS server shows, and a client's context that trusts it."""

    def __init__(self, folder, **options):
        certificate, key = make_certificate(**options)
        self.path = os.path.join(str(folder), "server.pem")
        with open(self.path, "w") as file:
            file.write(certificate + key)
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(self.path)
        self.names = []
        self.server.sni_callback = lambda sock, name, context: self.names.append(name)
        self.client = ssl.create_default_context(cadata=certificate)


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    names = ["files.example", "localhost", "xn--bcher-kva.example"]
    return Identity(tmp_path_factory.mktemp("tls"), names=names, addresses=["127.0.0.1", "::1"])


# The plain case


def test_an_answer_and_the_request_that_asked_for_it(serve):
    server = serve(answer(b"hello", X_Tag="a", x_tag="b", Content_Type="text/plain"))
    response = local(server.url + "/a/b?q=1#part")
    assert (response.status, response.reason, response.body) == (200, "OK", b"hello")
    assert response.headers == {"x-tag": "a, b", "content-type": "text/plain", "content-length": "5"}
    assert response.url == server.url + "/a/b?q=1"
    version = "%d.%d" % sys.version_info[:2]
    assert server.requests == [
        (
            "GET /a/b?q=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: Python/%s\r\nAccept: */*\r\n"
            "Accept-Encoding: identity\r\nConnection: close\r\n\r\n" % (server.port, version)
        ).encode()
    ]


def test_method_headers_and_body_are_sent(serve):
    server = serve(answer(status="201 Created"))
    response = local(
        server.url, method="post", body=b"{}", headers={"content-type": "application/json", "accept": "text/*"}
    )
    assert response.status == 201
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == b"{}" and head.startswith(b"POST / HTTP/1.1\r\n")
    assert b"content-type: application/json\r\naccept: text/*\r\n" in head and b"*/*" not in head
    assert b"Content-Length: 2\r\n" in head


@pytest.mark.parametrize("status", ["404 Not Found", "500 Oh no", "599 ", "200"])
def test_every_status_is_an_answer(serve, status):
    response = local(serve(answer(b"why", status)).url)
    assert (response.status, response.body) == (int(status[:3]), b"why")


def test_a_path_that_a_request_line_cannot_hold_is_percent_encoded(serve):
    server = serve(answer())
    assert local(server.url + '/\u20ac/"<>^`{|}%41?\xfc=\u65e5').url.endswith(
        "/%E2%82%AC/%22%3C%3E%5E%60%7B%7C%7D%41?%C3%BC=%E6%97%A5"
    )
    assert server.requests[0].startswith(b"GET /%E2%82%AC/%22%3C%3E%5E%60%7B%7C%7D%41?%C3%BC=%E6%97%A5 HTTP/1.1\r\n")


def test_an_ipv6_literal_is_connected_to_and_named_in_brackets(serve):
    try:
        server = serve(answer(), host="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    assert local(server.url).status == 200
    assert b"Host: [::1]:%d\r\n" % server.port in server.requests[0]


def test_a_large_body_is_sent(serve):
    server = serve(lambda head: answer(str(len(head.partition(b"\r\n\r\n")[2])).encode()))
    assert local(server.url, method="PUT", body=b"x" * 3_000_000).body == b"3000000"


def test_a_body_that_is_refused_early_still_has_its_answer():
    def refuse():
        connection = listener.accept()[0]
        connection.recv(100)
        connection.sendall(answer(b"too much", "413 Too Large"))
        connection.close()  # with bytes unread: the connection is reset

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=refuse, daemon=True).start()
        response = local("http://127.0.0.1:%d/" % listener.getsockname()[1], method="PUT", body=b"x" * 30_000_000)
    assert (response.status, response.body) == (413, b"too much")


# URLs


LOCAL_ONLY = "only URLs that begin with http:// or https:// are fetched"
BLANK = "it holds a blank, a control character or a backslash; percent-encode it"
USER = "a user name or password in a URL is refused; send it in a header"
PORT = "its port must be a number from 1 to 65535"
ODD = "it spells an address in an odd way; write four decimal numbers from 0 to 255"
NO_NAME = "the host is no name that could be looked up"
BRACKETS = "what stands in brackets is no IPv6 address"

BAD_URLS = [
    ("", '""', LOCAL_ONLY),
    ("example.com/x", '"example.com/x"', LOCAL_ONLY),
    ("file:///etc/passwd", '"file:///etc/passwd"', LOCAL_ONLY),
    ("FTP://h/", '"FTP://h/"', LOCAL_ONLY),
    ("gopher://127.0.0.1:6379/_x", '"gopher://127.0.0.1:6379/_x"', LOCAL_ONLY),
    ("data:text/plain,x", '"data:text/plain,x"', LOCAL_ONLY),
    ("http:example.com", '"http:example.com"', LOCAL_ONLY),
    ("http:/example.com", '"http:/example.com"', LOCAL_ONLY),
    ("https:\\\\example.com", '"https:\\\\\\\\example.com"', BLANK),
    ("http://example.com\\@127.0.0.1/", '"http://***"', BLANK),
    (" http://example.com", '" http://example.com"', BLANK),
    ("http://example.com/a b", '"http://example.com/a b"', BLANK),
    ("http://exa\tmple.com/", '"http://exa\\tmple.com/"', BLANK),
    ("ht\ntp://example.com/", '"ht\\ntp://example.com/"', BLANK),
    ("http://example.com/\r\nX: y", '"http://example.com/\\r\\nX: y"', BLANK),
    ("http://example.com/\0", '"http://example.com/\\u0000"', BLANK),
    ("http://example.com/\x7f", '"http://example.com/\\u007f"', BLANK),
    ("http://example.com/\u202e", '"http://example.com/\\u202e"', BLANK),
    ("http://example.com/\u3000", '"http://example.com/\u3000"', BLANK),
    ("http://example.com/\ud800", '"http://example.com/\\ud800"', BLANK),
    ("http://exa\xadmple.com/", '"http://exa\xadmple.com/"', BLANK),
    ("http://public@127.0.0.1/", '"http://***"', USER),
    ("http://user:tok-SECRET-123@example.com/", '"http://***"', USER),
    ("http://user:tok-SECRET-123?@example.com/", '"http://***"', PORT),
    ("http://user:tok-SECRET-123#@example.com/", '"http://***"', PORT),
    ("https://@example.com/", '"https://***"', USER),
    ("http:///path", '"http:///path"', "the host is missing"),
    ("http://?q", '"http://"', "the host is missing"),
    ("http://.", '"http://."', "the host is missing"),
    ("http://:80/", '"http://:80/"', "the host is missing"),
    ("http://example.com:/", '"http://example.com:/"', PORT),
    ("http://example.com:0/", '"http://example.com:0/"', PORT),
    ("http://example.com:65536/", '"http://example.com:65536/"', PORT),
    ("http://example.com:000080/", '"http://example.com:000080/"', PORT),
    ("http://example.com:%s/" % ("9" * 5000), '"http://example.com:%s"...' % ("9" * 176), PORT),
    ("http://example.com:+80/", '"http://example.com:+80/"', PORT),
    ("http://example.com:8_0/", '"http://example.com:8_0/"', PORT),
    ("http://example.com:\u0668\u0660/", '"http://example.com:\u0668\u0660/"', PORT),
    ("http://example.com:80:80/", '"http://example.com:80:80/"', NO_NAME),
    ("http://::1/", '"http://::1/"', NO_NAME),
    ("http://127.0.0.1%2f@x/", '"http://***"', USER),
    ("http://127.0.0.1%00.example.com/", '"http://127.0.0.1%00.example.com/"', NO_NAME),
    ("http://%31%32%37.0.0.1/", '"http://%31%32%37.0.0.1/"', ODD),
    ("http://exa%6dple.com/", '"http://exa%6dple.com/"', NO_NAME),
    ("http://a..example.com/", '"http://a..example.com/"', NO_NAME),
    ("http://example.com../", '"http://example.com../"', NO_NAME),
    ("http://-rf.example.com/", '"http://-rf.example.com/"', NO_NAME),
    ("http://a,b.example.com/", '"http://a,b.example.com/"', NO_NAME),
    ("http://%s.com/" % ("a" * 64), '"http://%s.com/"' % ("a" * 64), NO_NAME),
    ("http://%s/" % ".".join(["a" * 50] * 5), '"http://' + ".".join(["a" * 50] * 5)[:188] + '"...', NO_NAME),
    ("http://xn--/", '"http://xn--/"', NO_NAME),
    ("http://xn--localhost-/", '"http://xn--localhost-/"', NO_NAME),
    ("http://xn--127-.0.0.com/", '"http://xn--127-.0.0.com/"', NO_NAME),
    ("http://xn--99999999999.com/", '"http://xn--99999999999.com/"', NO_NAME),
    ("http://a\u2100b.example/", '"http://a\u2100b.example/"', NO_NAME),
    ("http://\u0378.example/", '"http://\u0378.example/"', BLANK),
    ("http://i\u2764.example/", '"http://i\u2764.example/"',
     "the host is no name of IDNA 2008; give its ASCII form (xn--...)"),
    ("http://[::1/", '"http://[::1/"', BRACKETS),
    ("http://[127.0.0.1]/", '"http://[127.0.0.1]/"', BRACKETS),
    ("http://[v1.fe80::a]/", '"http://[v1.fe80::a]/"', BRACKETS),
    ("http://[::1]x/", '"http://[::1]x/"', BRACKETS),
    ("http://[]/", '"http://[]/"', BRACKETS),
    ("http://[::1]80/", '"http://[::1]80/"', BRACKETS),
    ("http://[fe80::1%25eth0]/", '"http://[fe80::1%25eth0]/"',
     "an address with a zone (%) is refused; it leads to another machine for everyone"),
    ("http://[::1%lo]/", '"http://[::1%lo]/"',
     "an address with a zone (%) is refused; it leads to another machine for everyone"),
    ("http://example.com/" + "a" * 9000, '"http://example.com/%s"...' % ("a" * 176),
     "a URL must be text of at most 8,192 characters"),
    (None, "NoneType", "a URL must be text of at most 8,192 characters"),
    (b"http://example.com/", "bytes", "a URL must be text of at most 8,192 characters"),
]  # fmt: skip


@pytest.mark.parametrize("url, shown, why", BAD_URLS, ids=[repr(case[0])[:40] for case in BAD_URLS])
def test_a_url_that_is_refused_is_never_looked_up(net, url, shown, why):
    for allowed in (False, True):
        assert refusal(get, url, allow_private_hosts=allowed) == ("FORBIDDEN", "cannot fetch %s: %s" % (shown, why))
    assert net.looked_up == net.dialled == []


def test_what_is_not_an_authority_may_hold_an_at_sign(net, serve):
    net.names["example.com"], net.ports[PUBLIC] = [PUBLIC], serve(answer()).port
    for url in ("http://example.com/@scope/x", "http://example.com?u=a@b", "http://example.com#@127.0.0.1/"):
        assert get(url).status == 200
    assert net.dialled == [(PUBLIC, 80)] * 3


@pytest.mark.parametrize(
    "host",
    "2130706433 0x7f000001 0x7f.1 0177.0.0.1 127.1 0 010.8.8.8 \uff11\uff12\uff17.0.0.1 "
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460 "
    "127.0.0.1. 127.0.1 0x7f.0x0.0x0.0x1 0X7F.0.0.1 0x 1.0x 017700000001 127.0.0.1.1 256.1.1.1 1.2.3.4.5 00.0.0.0 "
    "127.0.0.01 127.0.0.1\u3002 127\u30020\u30020\u30021 127\uff0e0.0.1 8\uff618.8.8 \u0661\u0662\u0667.0.0.1 "
    "0xffffffffff 4294967297 99999999999999999999 127.0.0.0x1 example.0x7f example.1 1..1".split(),
)
def test_net_01_an_address_in_an_odd_spelling_is_refused_before_any_look_up(net, host):
    for allowed in (False, True):
        code, message = refusal(get, "http://%s/" % host, allow_private_hosts=allowed)
        assert code == "FORBIDDEN"
        assert message.endswith(ODD) or host in ("\u0661\u0662\u0667.0.0.1", "1..1"), message
    assert net.looked_up == net.dialled == []


@pytest.mark.parametrize(
    "url, host",
    [
        ("http://B\xdcCHER.example/", "xn--bcher-kva.example"),
        ("http://bu\u0308cher.example/", "xn--bcher-kva.example"),
        ("http://\u65e5\u672c\u8a9e\u3002jp/", "xn--wgv71a119e.jp"),
        ("http://fa\xdf.example/", "xn--fa-hia.example"),
        ("HTTP://EXAMPLE.COM./", "example.com"),
        ("http://my_bucket.example.com/", "my_bucket.example.com"),
        ("http://xn--i-7iq.ws/", "xn--i-7iq.ws"),
        ("http://1e100.net/", "1e100.net"),
        ("http://0x7f.example/", "0x7f.example"),
        ("http://\uff45xample.com/", "example.com"),
    ],
)
def test_a_host_becomes_ascii_by_our_own_step(net, serve, url, host):
    net.names[host] = [PUBLIC]
    server = serve(answer())
    net.ports[PUBLIC] = server.port
    assert get(url).url == "http://%s/" % host
    assert net.looked_up == [host]
    assert b"\r\nHost: %s\r\n" % host.encode() in server.requests[0]


# Addresses


#: The blocks of IANA's registries and of the clouds, written down a second time.
NOT_PUBLIC = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
        "192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 "
        "203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 168.63.129.16/32 ::/16 64:ff9b:1::/48 100::/32 2001::/23 "
        "2001:db8::/32 2002::/16 3fff::/16 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 2620:4f:8000::/48 "
        "::/3 4000::/2 8000::/1"
    ).split()
]


def is_public(address):
    """Judge an address by the second list."""
    if address.version == 6:
        if address in ipaddress.ip_network("64:ff9b::/96") or address.ipv4_mapped is not None:
            address = ipaddress.ip_address(int(address) & 0xFFFFFFFF)
    return not any(address in block for block in NOT_PUBLIC)


@pytest.mark.parametrize("network", [network for network, _ in nk.FETCH_BLOCKS])
def test_every_block_is_refused_to_its_edges_and_no_further(network):
    block = ipaddress.ip_network(network)  # strict: the first address of the block, nothing else
    for address in (block[0], block[-1], block[block.num_addresses // 2]):
        if address.version == 6 and address in ipaddress.ip_network("::ffff:0:0/96"):
            continue
        assert nk._fetch_private(str(address)) is not None, address
    for number in (int(block[0]) - 1, int(block[-1]) + 1):
        if 0 <= number < 2**block.max_prefixlen:
            address = type(block[0])(number)
            assert (nk._fetch_private(str(address)) is None) == is_public(address), address


def test_both_lists_say_the_same_of_many_addresses(rng):
    dice = rng
    for _ in range(400):
        block = dice.choice(NOT_PUBLIC)
        near = int(block[0]) ^ 1 << dice.randrange(block.max_prefixlen)
        for address in (type(block[0])(near), ipaddress.IPv4Address(dice.getrandbits(32)),
                        ipaddress.IPv6Address(2 << 124 | dice.getrandbits(124)),
                        ipaddress.IPv6Address(0xFFFF << 32 | dice.getrandbits(32)),
                        ipaddress.IPv6Address(0x64FF9B << 96 | dice.getrandbits(32))):  # fmt: skip
            assert (nk._fetch_private(str(address)) is None) == is_public(address), address


def test_each_block_says_why_and_stands_once():
    networks = [ipaddress.ip_network(network) for network, _ in nk.FETCH_BLOCKS]
    assert len(set(networks)) == len(networks)
    assert all(why and why == why.strip() for _, why in nk.FETCH_BLOCKS)
    for block in NOT_PUBLIC:
        assert any(block.version == n.version and block.subnet_of(n) for n in networks), block


@pytest.mark.parametrize(
    "address, why",
    [
        ("169.254.169.254", "link-local, where cloud metadata is served"),
        ("100.100.100.200", "shared inside a provider's network"),
        ("168.63.129.16", "the host of an Azure machine"),
        ("255.255.255.255", "reserved, or broadcast"),
        ("0.0.0.0", "this host or network"),
        ("::", "an IPv4 address inside an IPv6 one"),
        ("::1", "this machine"),
        ("::ffff:127.0.0.1", "this machine"),
        ("::ffff:a9fe:a9fe", "link-local, where cloud metadata is served"),
        ("::127.0.0.1", "an IPv4 address inside an IPv6 one"),
        ("::ffff:0:127.0.0.1", "special forms, the empty address too"),
        ("64:ff9b::7f00:1", "this machine"),
        ("64:ff9b::10.0.0.1", "a private network"),
        ("64:ff9b:1::808:808", "NAT64 inside a network"),
        ("2002:7f00:1::", "6to4, which hides an IPv4 address"),
        ("2002:808:808::1", "6to4, which hides an IPv4 address"),
        ("2001::4136:e378:8000:63bf:80ff:fffe", "Teredo, which hides an IPv4 address"),
        ("fd00:ec2::254", "a private network"),
        ("fec0::1", "site-local"),
        ("febf::1", "link-local"),
        ("fe80::1%eth0", "no plain address"),
        ("2606:4700::1111%eth0", "no plain address"),
        ("ff02::1", "multicast"),
        ("4000::1", "not assigned to anyone"),
        ("127.1", "no plain address"),
        ("2130706433", "no plain address"),
        ("", "no plain address"),
        ("localhost", "no plain address"),
        ("1.1.1.1\0", "no plain address"),
        ("8.8.8.8", None),
        ("::ffff:8.8.8.8", None),
        ("64:ff9b::8.8.8.8", None),
        ("2606:4700:4700::1111", None),
        ("2a00:1450:4001:82b::200e", None),
    ],
)
def test_why_an_address_is_not_public(address, why):
    assert nk._fetch_private(address) == why


@pytest.mark.parametrize(
    "host", "127.0.0.1 10.1.2.3 169.254.169.254 [::1] [::] [::ffff:127.0.0.1] [64:ff9b::7f00:1] [fec0::1]".split()
)
def test_a_private_address_in_a_url_is_refused_without_a_connection(net, host):
    code, message = refusal(get, "http://%s:8080/x?token=tok-SECRET-123" % host)
    plain = host.strip("[]")
    why = nk._fetch_private(plain)
    assert (code, message) == (
        "FORBIDDEN", 'cannot fetch "http://%s:8080/x": %s, which is not public (%s); %s' % (host, plain, why, PERMIT)
    )  # fmt: skip
    assert net.looked_up == net.dialled == []


@pytest.mark.parametrize(
    "host",
    "localhost LOCALHOST localhost. a.localhost local printer.local printer.local. metadata.google.internal internal "
    "db.internal. localhost.localdomain \u24c1ocalhost \uff4cocalhost loc\u212bl.internal".split(),
)
def test_a_name_of_the_own_network_is_refused_without_a_look_up(net, host):
    code, message = refusal(get, "http://%s/" % host)
    if host.isascii():
        name = host.lower().rstrip(".")
        assert message == 'cannot fetch "http://%s/": %s is a name inside your own network; %s' % (name, name, PERMIT)
    assert code == "FORBIDDEN" and net.looked_up == net.dialled == []


@pytest.mark.parametrize("host", ["internal.example.com", "notlocal", "localhost.example.com", "xlocalhost"])
def test_a_name_that_only_looks_like_it_is_looked_up(net, host):
    net.names[host] = ["10.0.0.9"]
    assert refusal(get, "http://%s/" % host) == (
        "FORBIDDEN",
        'cannot fetch "http://%s/": %s has the address 10.0.0.9, which is not public (a private network); %s'
        % (host, host, PERMIT),
    )


@pytest.mark.parametrize("addresses", [[PUBLIC, "127.0.0.1"], ["10.0.0.1", PUBLIC], [PUBLIC, "::1"],
                                       [PUBLIC, "fe80::1%eth0"], [PUBLIC, "::ffff:10.0.0.1"]])  # fmt: skip
def test_net_03_a_mixed_answer_is_refused(net, addresses):
    net.names["two.example"] = addresses
    code, message = refusal(get, "http://two.example/")
    assert code == "FORBIDDEN" and "two.example has the address " in message and net.dialled == []


def test_net_03_the_connection_goes_to_the_address_that_was_checked(net, serve):
    server = serve(answer())
    net.ports[PUBLIC] = server.port
    net.names["turncoat.example"] = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
    assert get("http://turncoat.example:8080/").status == 200
    assert (net.looked_up, net.dialled) == (["turncoat.example"], [(PUBLIC, 8080)])
    assert b"\r\nHost: turncoat.example:8080\r\n" in server.requests[0]


def test_net_03_a_name_that_turns_private_between_two_hops_is_refused(net, serve):
    net.ports[PUBLIC] = serve(redirect("/again")).port
    net.names["turncoat.example"] = [[PUBLIC], ["127.0.0.1"]]
    assert refusal(get, "http://turncoat.example/")[1] == (
        'cannot fetch "http://turncoat.example/again" (redirected from "http://turncoat.example/"): '
        "turncoat.example has the address 127.0.0.1, which is not public (this machine); " + PERMIT
    )
    assert net.dialled == [(PUBLIC, 80)]


def test_the_next_address_is_tried_when_one_does_not_answer(net, serve):
    net.names["two.example"] = ["2606:4700::1111", PUBLIC]
    net.ports[PUBLIC] = serve(answer()).port
    assert get("http://two.example/").status == 200
    assert net.dialled == [("2606:4700::1111", 80), (PUBLIC, 80)]


def test_private_hosts_are_fetched_where_they_are_allowed(net, serve):
    server = serve(answer())
    net.names["localhost"] = ["127.0.0.1"]
    assert get("http://localhost:%d/" % server.port, allow_private_hosts=True).status == 200


@pytest.mark.parametrize(
    "found, why",
    [
        ([], "gone.example has no address"),
        (socket.gaierror(-2, "Name not known"), "gone.example cannot be looked up (Name not known)"),
        (RuntimeError("odd"), "gone.example cannot be looked up (odd)"),
    ],
)
def test_a_name_without_addresses(monkeypatch, found, why):
    def look_up(host, port):
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(nk, "_fetch_lookup", look_up)
    message = 'cannot fetch "http://gone.example/": ' + why
    assert refusal(get, "http://gone.example/") == ("CONNECTION_REQUEST_FAILED", message)


def test_the_systems_own_look_up_gives_each_address_once(monkeypatch):
    found = nk._fetch_lookup("localhost", 80)
    assert found and len(set(found)) == len(found) and set(found) <= {"127.0.0.1", "::1"}
    twice = [(2, 1, 6, "", ("127.0.0.2", 80)), (2, 1, 6, "", ("127.0.0.1", 80)), (2, 1, 6, "", ("127.0.0.2", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: twice)
    assert nk._fetch_lookup("localhost", 80) == ["127.0.0.2", "127.0.0.1"]


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert refusal(local, "http://127.0.0.1:%d/" % port) == (
        "CONNECTION_REQUEST_FAILED",
        'cannot fetch "http://127.0.0.1:%d/": no connection to 127.0.0.1 port %d (Connection refused)' % (port, port),
    )


def test_no_connection_is_left_open(net, serve, monkeypatch):
    sockets = []

    def dial(*args):
        sockets.append(net.connect(*args))
        return sockets[-1]

    monkeypatch.setattr(nk, "_fetch_dial", dial)
    bad = [b"", b"nonsense\r\n\r\n", HEAD + b"Content-Length: 9\r\n\r\n"]
    for data in [answer(), redirect("/x"), answer(length=False)] + bad:
        try:
            local(serve(data).url, max_bytes=5)
        except nk.Error:
            pass
    assert len(sockets) == 11 and all(sock.fileno() == -1 for sock in sockets)


# Redirects


def hops(serve, net, location, status="302 Found"):
    """Return a public server whose /from redirects to location."""
    server = serve(lambda head: redirect(location, status) if b" /from" in head.split(b"\r\n")[0] else answer())
    net.names["start.example"], net.ports[PUBLIC] = [PUBLIC], server.port
    return server


@pytest.mark.parametrize(
    "location, shown, why",
    [
        ("http://169.254.169.254/latest/meta-data/?x=tok-SECRET-123", "http://169.254.169.254/latest/meta-data/",
         "169.254.169.254, which is not public (link-local, where cloud metadata is served); " + PERMIT),
        ("//127.0.0.1/x", "http://127.0.0.1/x", "127.0.0.1, which is not public (this machine); " + PERMIT),
        ("http://[::1]/", "http://[::1]/", "::1, which is not public (this machine); " + PERMIT),
        ("http://localhost/", "http://localhost/", "localhost is a name inside your own network; " + PERMIT),
        ("file:///etc/passwd", "file:///etc/passwd", LOCAL_ONLY),
        ("ftp://h/", "ftp://h/", LOCAL_ONLY),
        ("javascript:alert(1)", "javascript:alert(1)", LOCAL_ONLY),
        ("http://2130706433/", "http://2130706433/", ODD),
        ("//0x7f.1/", "http://0x7f.1/", ODD),
        ("http://a:tok-SECRET-123@example.com/", "http://***", USER),
        ("/\\127.0.0.1/", "http://start.example/\\\\127.0.0.1/", BLANK),
        ("http://127.0.0.1\t/", "http://127.0.0.1\\t/", BLANK),
        ("http://[fe80::1%25eth0]/", "http://[fe80::1%25eth0]/",
         "an address with a zone (%) is refused; it leads to another machine for everyone"),
    ],
)  # fmt: skip
def test_net_04_a_redirect_is_judged_like_a_url(net, serve, location, shown, why):
    server = hops(serve, net, location)
    code, message = refusal(get, "http://start.example/from?key=tok-SECRET-123")
    assert code in ("FORBIDDEN", "CONNECTION_REQUEST_FAILED")
    came = ' (redirected from "http://start.example/from")'
    expected = ['cannot fetch "%s"%s: %s' % (shown, came, why), 'cannot fetch "%s": %s%s' % (shown, why, came)]
    odd = 'cannot fetch "http://start.example/from": it redirects to what is no URL'
    assert message in expected or ("[fe80" in location and message == odd)
    assert len(server.requests) == 1 and net.dialled == [(PUBLIC, 80)]


@pytest.mark.parametrize("location", ["http://[::1", "http://[x]/", "//[", "http://\xff/", "ht!tp://x", "\xff\xfe"])
def test_a_redirect_to_nonsense_ends_in_a_sentence(net, serve, location):
    hops(serve, net, location)
    try:
        assert get("http://start.example/from").status == 200
    except nk.Error as error:
        assert error.code in ("FORBIDDEN", "CONNECTION_REQUEST_FAILED") and "start.example/from" in error.message


@pytest.mark.parametrize(
    "location, url",
    [
        ("/a", "http://start.example/a"),
        ("b?x=1", "http://start.example/deep/b?x=1"),
        ("../c", "http://start.example/c"),
        ("?q", "http://start.example/deep/from?q"),
        ("http://start.example:80/d", "http://start.example/d"),
        ("/\xe2\x82\xac", "http://start.example/%E2%82%AC"),
        ("HTTP://START.example/e#f", "http://start.example/e"),
    ],
)
def test_where_a_redirect_leads(net, serve, location, url):
    server = serve(lambda head: answer() if len(server.requests) > 1 else redirect(location))
    net.names["start.example"], net.ports[PUBLIC] = [PUBLIC], server.port
    assert get("http://start.example/deep/from").url == url
    assert server.requests[1].split(b" ")[1] == url[len("http://start.example"):].encode()


SECRETS = {"Authorization": "Bearer tok-SECRET-123", "Cookie": "s=tok-SECRET-123", "X-Api-Key": "tok-SECRET-123",
           "Proxy-Authorization": "Basic tok-SECRET-123", "Accept": "text/x"}  # fmt: skip


@pytest.mark.parametrize("location", ["http://other.example/to", "http://start.example:81/to", "//other.example/to"])
def test_net_04_credentials_are_dropped_when_the_origin_changes(net, serve, location):
    server = hops(serve, net, location)
    net.names["other.example"] = [PUBLIC]
    assert get("http://start.example/from", headers=dict(SECRETS)).status == 200
    assert server.requests[0].count(b"tok-SECRET-123") == 4
    assert b"tok-SECRET-123" not in server.requests[1] and b"Accept: text/x" in server.requests[1]


def test_net_04_credentials_stay_on_the_same_origin(net, serve):
    server = hops(serve, net, "http://start.example:80/to")
    assert get("http://start.example/from", headers=dict(SECRETS)).status == 200
    assert server.requests[1].count(b"tok-SECRET-123") == 4


def test_credentials_do_not_come_back_with_the_first_origin(net, serve):
    def reply(head):
        there, back = redirect("http://other.example/"), redirect("http://start.example/")
        return [there, back, answer()][len(server.requests) - 1]

    server = serve(reply)
    net.names.update({"start.example": [PUBLIC], "other.example": [PUBLIC]})
    net.ports[PUBLIC] = server.port
    assert get("http://start.example/", headers={"Cookie": "s=1"}).status == 200
    assert [b"Cookie" in request for request in server.requests] == [True, False, False]


def test_net_04_a_loop_ends_at_the_limit(net, serve):
    server = hops(serve, net, "/from")
    assert refusal(get, "http://start.example/from") == (
        "CONNECTION_REQUEST_FAILED",
        'cannot fetch "http://start.example/from" (redirected from "http://start.example/from"): '
        "more than 5 redirects (max_redirects); give the final URL",
    )
    assert len(server.requests) == 6 and len(net.looked_up) == 6


def test_five_redirects_are_followed_and_the_sixth_answer_is_the_answer(net, serve):
    server = serve(lambda head: redirect("/x") if len(server.requests) < 6 else answer(b"end"))
    net.names["start.example"], net.ports[PUBLIC] = [PUBLIC], server.port
    assert get("http://start.example/").body == b"end"


def test_a_redirect_without_location_or_with_redirects_off_is_an_answer(serve):
    assert local(serve(answer(b"x", "302 Found")).url).status == 302
    assert local(serve(answer(b"x", "304 Not Modified", Location="/x", length=False)).url).status == 304
    assert local(serve(answer(b"x", "300 Choices", Location="/x")).url).status == 300
    response = local(serve(redirect("http://169.254.169.254/")).url, max_redirects=0)
    assert (response.status, response.headers["location"]) == (302, "http://169.254.169.254/")


@pytest.mark.parametrize(
    "status, method, sent, body",
    [
        ("301 x", "POST", b"GET", b""), ("302 x", "POST", b"GET", b""), ("303 x", "PUT", b"GET", b""),
        ("307 x", "POST", b"POST", b"data"), ("308 x", "PUT", b"PUT", b"data"), ("302 x", "HEAD", b"HEAD", None),
    ],
)  # fmt: skip
def test_what_a_redirect_repeats(net, serve, status, method, sent, body):
    server = hops(serve, net, "/to", status)
    get("http://start.example/from", method=method, body=b"data" if body is not None else None,
        headers={"Content-Type": "text/x"})  # fmt: skip
    head, _, data = server.requests[1].partition(b"\r\n\r\n")
    assert (head.split(b" ")[0], data) == (sent, body or b"")
    assert (b"Content-Type" in head) == (sent == b"POST" or sent == b"PUT" or method == "HEAD")


def test_a_body_goes_to_no_other_origin(net, serve):
    server = hops(serve, net, "http://other.example/to?x=1", "307 Temporary Redirect")
    net.names["other.example"] = [PUBLIC]
    assert refusal(get, "http://start.example/from", method="POST", body=b"tok-SECRET-123") == (
        "FORBIDDEN",
        'cannot fetch "http://start.example/from": it redirects to "http://other.example/to", '
        "and a body is sent to no other origin",
    )
    assert len(server.requests) == 1


# TLS


def test_tls_is_verified_and_host_and_server_name_stay_those_of_the_url(net, serve, identity):
    server = serve(answer(b"safe"), context=identity.server)
    net.names["files.example"], net.ports[PUBLIC] = [PUBLIC], server.port
    identity.names.clear()
    response = get("https://FILES.example./x", ssl_context=identity.client)
    assert (response.body, response.url) == (b"safe", "https://files.example/x")
    assert identity.names == ["files.example"] and net.dialled == [(PUBLIC, 443)]
    assert b"\r\nHost: files.example\r\n" in server.requests[0]


def test_tls_to_an_address_checks_the_address(serve, identity):
    assert local(serve(answer(), context=identity.server).url, ssl_context=identity.client).status == 200


def test_tls_with_a_certificate_of_nobody_we_trust_is_refused(serve, identity):
    server = serve(answer(), context=identity.server)
    code, message = refusal(local, server.url)
    assert code == "CONNECTION_REQUEST_FAILED" and server.requests == []
    assert message.startswith('cannot fetch "%s/": its certificate is not valid here (self' % server.url)


def test_tls_for_another_host_is_refused(net, serve, identity):
    server = serve(answer(), context=identity.server)
    net.names["other.example"], net.ports[PUBLIC] = [PUBLIC], server.port
    assert refusal(get, "https://other.example/", ssl_context=identity.client) == (
        "CONNECTION_REQUEST_FAILED",
        'cannot fetch "https://other.example/": its certificate is not valid here (Hostname mismatch, certificate is '
        "not valid for 'other.example'.)",
    )
    assert server.requests == []


def test_tls_that_has_expired_is_refused(serve, tmp_path):
    old = Identity(tmp_path, names=["localhost"], addresses=["127.0.0.1"], days=-1)
    code, message = refusal(local, serve(answer(), context=old.server).url, ssl_context=old.client)
    assert code == "CONNECTION_REQUEST_FAILED" and "certificate has expired" in message


@pytest.mark.parametrize("weak", ["no names", "nothing", "optional", "text"])
def test_a_context_that_does_not_verify_is_refused(weak):
    context = ssl.create_default_context()
    context.check_hostname = weak == "optional"
    if weak == "optional":
        context.verify_mode = ssl.CERT_OPTIONAL
    if weak == "nothing":
        context.verify_mode = ssl.CERT_NONE
    elif weak == "text":
        context = "strict"
    assert refusal(get, "https://example.com/", ssl_context=context) == (
        "FORBIDDEN",
        "the ssl_context does not verify certificates and host names; load your own authority with "
        "load_verify_locations",
    )


def test_tls_that_is_cut_off_is_no_end_of_a_body(serve, identity, monkeypatch):
    def reply(head, connection):
        connection.sendall(answer(b"half of it", length=False))
        connection.shutdown(socket.SHUT_RDWR)  # the connection ends, and TLS has not said that it does

    monkeypatch.setenv("SSL_CERT_FILE", identity.path)
    code, message = refusal(local, serve(reply, context=identity.server).url)
    assert code == "CONNECTION_REQUEST_FAILED" and "EOF" in message


def test_tls_trusts_what_the_system_trusts(serve, identity, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", identity.path)
    assert local(serve(answer(), context=identity.server).url).status == 200


def test_tls_that_ends_in_order_is_the_end_of_a_body(serve, identity):
    server = serve(answer(b"all of it", length=False), context=identity.server)
    assert local(server.url, ssl_context=identity.client).body == b"all of it"


def test_what_is_no_tls(serve):
    code, message = refusal(local, serve(answer()).url.replace("http", "https"))
    assert code == "CONNECTION_REQUEST_FAILED" and message.startswith('cannot fetch "https://127.0.0.1:')


def test_https_never_leads_to_http(net, serve, identity):
    server = serve(redirect("http://files.example/plain?x=1"), context=identity.server)
    net.names["files.example"], net.ports[PUBLIC] = [PUBLIC], server.port
    assert refusal(get, "https://files.example/", ssl_context=identity.client) == (
        "FORBIDDEN",
        'cannot fetch "https://files.example/": it redirects to "http://files.example/plain", '
        "and https never leads to plain http",
    )


def test_http_leads_to_https_without_its_credentials(net, serve, identity):
    safe = serve(answer(b"safe"), context=identity.server)
    plain = serve(redirect("https://files.example/"))
    net.names["files.example"] = [[PUBLIC], [PUBLIC_TOO]]
    net.ports.update({PUBLIC: plain.port, PUBLIC_TOO: safe.port})
    options = {"ssl_context": identity.client, "headers": {"Authorization": "Bearer x"}}
    assert get("http://files.example/", **options).body == b"safe"
    assert b"Authorization" in plain.requests[0] and b"Authorization" not in safe.requests[0]


def test_https_only_takes_plain_http_from_this_machine_alone(net, serve):
    why = "only https is fetched here, and plain http from this machine; use https"
    net.names.update({"start.example": [PUBLIC], "mixed.example": ["127.0.0.1", "10.0.0.1"]})
    assert refusal(get, "http://start.example/", https_only=True)[1].endswith(why)
    assert refusal(local, "http://10.0.0.1/", https_only=True)[1].endswith(why)
    assert refusal(local, "http://mixed.example/", https_only=True)[1].endswith(why)
    assert net.dialled == []
    assert local(serve(answer()).url, https_only=True).status == 200
    assert refusal(get, "http://127.0.0.1/", https_only=True)[1].endswith(PERMIT)


# Proxies


def test_net_03_a_proxy_of_the_environment_sees_nothing_unless_asked_for(net, serve):
    recorder = serve(answer(b"proxy"))
    net.names["start.example"], net.ports[PUBLIC] = [PUBLIC], serve(answer(b"direct")).port
    env = env_of(HTTP_PROXY=recorder.url, http_proxy=recorder.url, ALL_PROXY=recorder.url)
    assert get("http://start.example/", env=env).body == b"direct"
    assert recorder.requests == []


def test_a_failure_names_the_proxy_variable_and_the_switch(net):
    env = env_of(HTTPS_PROXY="http://user:tok-SECRET-123@proxy:3128")
    assert refusal(get, "https://gone.example/", env=env) == (
        "CONNECTION_REQUEST_FAILED",
        'cannot fetch "https://gone.example/": gone.example cannot be looked up (Name or service not known); '
        'HTTPS_PROXY is set, but a proxy is used only with proxy="environment"',
    )
    assert refusal(get, "http://gone.example/", env=env)[1].endswith("not known)")
    assert "HTTPS_PROXY" not in refusal(get, "https://10.0.0.1/", env=env)[1]


def test_plain_http_goes_through_the_proxy_with_the_whole_url(net, serve):
    recorder = serve(answer(b"via"))
    env = env_of(http_proxy="http://us%65r:p%40ss@" + recorder.url[7:])
    response = get("http://start.example:8080/a?b=1", env=env, proxy="environment")
    assert (response.body, response.url) == (b"via", "http://start.example:8080/a?b=1")
    head = recorder.requests[0]
    assert head.startswith(b"GET http://start.example:8080/a?b=1 HTTP/1.1\r\nHost: start.example:8080\r\n")
    assert b"\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n" in head
    assert net.looked_up == []


def tunnel(identity, log, reply=b"HTTP/1.1 200 Connection established\r\n\r\n", inner=answer(b"through")):
    def talk(head, connection):
        connection.sendall(reply)
        if b" 200 " in reply:
            safe = identity.server.wrap_socket(connection, server_side=True)
            log.append(read_request(safe))
            safe.sendall(inner)
            safe.close()

    return talk


def test_https_goes_through_a_tunnel_and_is_verified_at_its_end(net, serve, identity):
    log = []
    proxy = serve(tunnel(identity, log))
    net.names["proxy.local"] = ["127.0.0.1"]
    env = env_of(ALL_PROXY="user:pw@proxy.local:%d" % proxy.port)
    response = get("https://files.example/x", env=env, proxy="environment", ssl_context=identity.client)
    assert response.body == b"through" and net.looked_up == ["proxy.local"]
    assert proxy.requests[0] == (
        b"CONNECT files.example:443 HTTP/1.1\r\nHost: files.example:443\r\n"
        b"Proxy-Authorization: Basic dXNlcjpwdw==\r\n\r\n"
    )
    assert log[0].startswith(b"GET /x HTTP/1.1\r\n") and b"Proxy-Authorization" not in log[0]
    code, message = refusal(get, "https://other.example/", env=env, proxy="environment", ssl_context=identity.client)
    assert message.endswith(" (through the proxy proxy.local:%d, so addresses were not checked)" % proxy.port)


@pytest.mark.parametrize("reply", [b"HTTP/1.1 407 No\r\n\r\n", b"HTTP/1.1 200 Yes\r\n\r\nearly"])
def test_a_proxy_that_refuses(serve, identity, reply):
    proxy = serve(reply)
    env = env_of(https_proxy=proxy.url)
    status = reply[9:12].decode()
    assert refusal(get, "https://files.example/", env=env, proxy="environment") == (
        "CONNECTION_REQUEST_FAILED",
        'cannot fetch "https://files.example/": the proxy answered %s '
        "(through the proxy 127.0.0.1:%d, so addresses were not checked)" % (status, proxy.port),
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "http://localhost/", "https://10.0.0.1/", "http://[::1]/"])
def test_a_proxy_does_not_lift_the_rules_that_need_no_look_up(serve, url):
    recorder = serve(answer())
    env = env_of(ALL_PROXY=recorder.url)
    code, message = refusal(get, url, env=env, proxy="environment")
    assert code == "FORBIDDEN" and PERMIT in message and recorder.requests == []


@pytest.mark.parametrize(
    "value", ["socks5://tok-SECRET-123:1080", "https://p:3128", "http://", "http://p:x", "http://127.1:3128", "\udcff"]
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(value):
    env = env_of(HTTPS_PROXY=value)
    assert refusal(get, "https://files.example/", env=env, proxy="environment") == (
        "BAD_REQUEST",
        'cannot fetch "https://files.example/": the proxy in HTTPS_PROXY must be http://host:port',
    )


@pytest.mark.parametrize(
    "listed, url, skipped",
    [
        ("*", "http://a.example/", True), ("a.example", "http://a.example/", True),
        ("example", "http://a.example/", True),
        (".example", "http://a.example/", True), ("*.example", "http://a.example/", True),
        ("b.example, a.example", "http://a.example/", True), ("A.EXAMPLE", "http://a.example/", True),
        ("a.example:80", "http://a.example/", True), ("a.example:81", "http://a.example/", False),
        ("ample", "http://a.example/", False), ("b.a.example", "http://a.example/", False),
        ("", "http://a.example/", False),
        ("93.184.216.34", "http://93.184.216.34/", True), ("2606:4700::1111", "http://[2606:4700::1111]/", True),
        ("[2606:4700::1111]:80", "http://[2606:4700::1111]/", False),
    ],
)  # fmt: skip
def test_no_proxy(listed, url, skipped):
    environ = {"NO_PROXY": listed}
    assert nk._fetch_skips_proxy(environ, nk._fetch_read_url(url)) is skipped
    assert not nk._fetch_skips_proxy({"no_proxy": "x", "NO_PROXY": "*"}, nk._fetch_read_url(url))


def test_a_host_that_no_proxy_names_is_checked_as_ever(net, serve):
    recorder = serve(answer())
    net.names["inside.example"] = ["10.0.0.1"]
    env = env_of(http_proxy=recorder.url, no_proxy="inside.example")
    assert refusal(get, "http://inside.example/", env=env, proxy="environment")[0] == "FORBIDDEN"
    assert recorder.requests == []


def test_under_cgi_a_header_of_the_caller_is_no_proxy():
    environ = {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}
    assert nk._fetch_proxy_setting(environ, "http") == ("", "")
    assert nk._fetch_proxy_setting({"HTTP_PROXY": "http://p:1"}, "http") == ("HTTP_PROXY", "http://p:1")


# Deadlines


def drip(first, piece, count=100000):
    """Return an answer that comes piece by piece, for ever."""

    def talk(head, connection):
        connection.sendall(first)
        for _ in range(count):
            connection.sendall(piece)

    return talk


def test_net_r1_a_drip_of_header_bytes_ends_at_the_deadline(serve):
    server = serve(drip(b"HTTP/1.1 200 OK\r\nX: ", b"a"))
    clock = Clock(step=0.5)  # so much passes for each read
    assert refusal(local, server.url, env=env_of(clock)) == (
        "CONNECTION_TIMEOUT",
        'cannot fetch "%s/": 15 seconds (timeout) passed while waiting for the answer' % server.url,
    )
    assert clock.now <= 100 + 15 + 1.5


def test_net_r1_a_drip_of_body_bytes_ends_at_the_deadline(serve):
    server = serve(drip(answer(b"", length=False), b"a"))
    clock = Clock(step=0.5)
    assert refusal(local, server.url, env=env_of(clock), body_timeout=30, max_bytes=10**9) == (
        "CONNECTION_TIMEOUT",
        'cannot fetch "%s/": 30 seconds (body_timeout) passed while reading the body' % server.url,
    )
    assert clock.now <= 100 + 15 + 30 + 1.5


@pytest.mark.parametrize("secure", [False, True])
def test_net_r1_a_drip_ends_in_real_time_too(serve, identity, secure):
    def slowly(head, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            connection.sendall(b"a")
            time.sleep(0.03)

    server = serve(slowly, context=identity.server if secure else None)
    started = time.monotonic()
    code, message = refusal(local, server.url, body_timeout=0.3, ssl_context=identity.client)
    assert code == "CONNECTION_TIMEOUT" and "0.3 seconds (body_timeout)" in message
    assert 0.25 < time.monotonic() - started < 3


def test_silence_ends_at_the_deadline(serve):
    silent = threading.Event()
    server = serve(lambda head: silent.wait(5) and b"")
    started = time.monotonic()
    code, message = refusal(local, server.url, timeout=0.2)
    silent.set()
    assert code == "CONNECTION_TIMEOUT"
    assert message.endswith("0.2 seconds (timeout) passed while waiting for the answer")
    assert time.monotonic() - started < 2


def test_a_server_that_never_speaks_tls_ends_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = "https://127.0.0.1:%d/" % listener.getsockname()[1]
        code, message = refusal(local, url, timeout=0.2)
    assert code == "CONNECTION_TIMEOUT" and message.endswith("passed while agreeing on TLS")


def test_a_look_up_that_hangs_ends_at_the_deadline(monkeypatch):
    waiting = threading.Event()
    monkeypatch.setattr(nk, "_fetch_lookup", lambda host, port: waiting.wait(5) and [])
    code, message = refusal(get, "http://slow.example/", timeout=0.2)
    waiting.set()
    assert (code, message) == (
        "CONNECTION_TIMEOUT",
        'cannot fetch "http://slow.example/": 0.2 seconds (timeout) passed while looking up the host',
    )


def test_addresses_that_do_not_answer_share_the_time(monkeypatch, net):
    shares, clock = [], Clock()

    def hang(address, port, seconds):
        shares.append(seconds)
        clock.now += seconds
        raise socket.timeout("timed out")

    monkeypatch.setattr(nk, "_fetch_dial", hang)
    net.names["slow.example"] = ["93.184.216.%d" % n for n in range(12)]
    code, message = refusal(get, "http://slow.example/", env=env_of(clock), timeout=16)
    assert code == "CONNECTION_TIMEOUT" and message.endswith("16 seconds (timeout) passed while connecting")
    assert shares == [2.0] * 8


def test_redirects_share_one_deadline(net, serve):
    clock = Clock()

    def reply(head):
        clock.now += 4
        return redirect("/again")

    net.names["start.example"], net.ports[PUBLIC] = [PUBLIC], serve(reply).port
    assert refusal(get, "http://start.example/", env=env_of(clock))[0] == "CONNECTION_TIMEOUT"
    assert clock.now == 116


def test_a_cancelled_call_ends_soon(serve):
    cancel, silent = nk.Cancel(), threading.Event()

    def reply(head):
        cancel.cancel("enough")
        silent.wait(5)

    server = serve(reply)
    started = time.monotonic()
    assert refusal(local, server.url, cancel=cancel)[0] == "REQUEST_ABORTED"
    silent.set()
    assert time.monotonic() - started < 2
    assert refusal(local, server.url, cancel=cancel)[0] == "REQUEST_ABORTED" and len(server.requests) == 1


# Sizes


def too_large(url, limit, what="the body (max_bytes)"):
    message = 'cannot fetch "%s/": %s has more than %s bytes' % (url, what, format(limit, ","))
    return "CONNECTION_RESPONSE_TOO_LARGE", message


def test_exactly_the_limit_is_taken_and_one_byte_more_is_not(serve):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n"
    for data in (answer(b"12345"), answer(b"12345", length=False), chunked):
        server = serve(data)
        assert local(server.url, max_bytes=5).body == b"12345"
        assert refusal(local, server.url, max_bytes=4) == too_large(server.url, 4)
    assert local(serve(answer(b"")).url, max_bytes=0).body == b""


def test_a_body_is_read_once(serve):
    response = local(serve(answer()).url)
    assert refusal(lambda: list(response.chunks()))[0] == "CONNECTION_REQUEST_FAILED"


def test_net_r1_an_endless_body_ends_at_the_limit(serve):
    chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for first, piece in ((answer(b"", length=False), b"a" * 65536), (chunk, b"400\r\n" + b"a" * 1024 + b"\r\n")):
        server = serve(drip(first, piece))
        assert refusal(local, server.url) == too_large(server.url, 8 * 1024 * 1024)


def test_a_body_that_announces_too_much_is_not_read(serve):
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n")
    assert refusal(local, server.url) == too_large(server.url, 8 * 1024 * 1024)


@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 ", b"", b"HTTP/1.1 100 Go\r\nX: "])
def test_endless_headers_end_at_the_limit(serve, first):
    server = serve(drip(first, b"a" * 4096))
    code, message = refusal(local, server.url)
    assert code == "CONNECTION_RESPONSE_TOO_LARGE" and "the header has more than " in message


@pytest.mark.parametrize("first, lines, size", [(b"OK", 60, 1200), (b"OK" * 30_000, 6, 1200), (b"OK", 1, 66_000)])
def test_headers_that_are_too_large_together(serve, first, lines, size):
    start, line = b"HTTP/1.1 200 " + first + b"\r\n", b"X: %s\r\n" % (b"a" * size)
    fits, over = start + line * (lines - 9), start + line * lines
    if lines > 9:
        assert local(serve(fits + b"\r\n").url).status == 200
    code, message = refusal(local, serve(over + b"\r\n").url)
    assert code == "CONNECTION_RESPONSE_TOO_LARGE" and "the header has more than " in message


def test_too_many_header_lines(serve):
    assert local(serve(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 198 + b"Content-Length: 0\r\n\r\n").url).status == 200
    server = serve(drip(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"))
    assert refusal(local, server.url)[1].endswith("the answer has more than 200 header lines")


def test_endless_trailers_end_at_the_limit(serve):
    server = serve(drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"))
    assert refusal(local, server.url)[0] == "CONNECTION_REQUEST_FAILED"


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "DEFLATE"])
def test_compression_is_asked_for_and_undone(serve, coding):
    plain = bytes(range(256)) * 2000
    data = gzip.compress(plain) if "gzip" in coding else zlib.compress(plain)
    server = serve(answer(data, Content_Encoding=coding))
    assert local(server.url, compressed=True).body == plain
    assert b"Accept-Encoding: gzip, deflate\r\n" in server.requests[0]
    assert local(server.url).body == data  # bytes as they were sent, unless asked otherwise


def test_compression_without_its_header_and_in_pieces(serve):
    plain = b"the same again and again " * 9000
    bare = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = bare.compress(plain) + bare.flush()
    assert local(serve(answer(data, Content_Encoding="deflate")).url, compressed=True).body == plain
    two = gzip.compress(plain[:1000]) + gzip.compress(plain[1000:])
    assert local(serve(answer(two, Content_Encoding="gzip")).url, compressed=True).body == plain
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in two) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert local(serve(head + chunks).url, compressed=True).body == plain
    assert local(serve(answer(b"", Content_Encoding="gzip")).url, compressed=True).body == b""
    assert local(serve(answer(b"x", Content_Encoding="Identity")).url, compressed=True).body == b"x"


def test_compression_that_ends_inside_a_step(serve):
    for size in range(65536, 65800, 13):
        bare = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = bare.compress(b"a" * size) + bare.flush()
        assert len(local(serve(answer(data, Content_Encoding="deflate")).url, compressed=True).body) == size


@pytest.mark.parametrize("size", [65535, 65536, 65537, 131072])
def test_compression_around_the_size_of_a_step(serve, size):
    data = gzip.compress(b"a" * size)
    assert local(serve(answer(data, Content_Encoding="gzip")).url, compressed=True).body == b"a" * size
    server = serve(answer(data, Content_Encoding="gzip"))
    assert refusal(local, server.url, compressed=True, max_bytes=size - 1) == too_large(server.url, size - 1)


def test_net_r1_a_gzip_bomb_is_bounded(serve):
    import tracemalloc

    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(engine.compress(b"\0" * 2**20) for _ in range(60)) + engine.flush()
    server = serve(answer(bomb, Content_Encoding="gzip"))
    tracemalloc.start()
    try:
        assert refusal(local, server.url, compressed=True) == too_large(server.url, 8 * 1024 * 1024)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data, coding, why",
    [
        (gzip.compress(b"a" * 500)[:-9], "gzip", "its compressed bytes end too early"),
        (gzip.compress(b"a" * 500)[:5], "gzip", "its compressed bytes end too early"),
        (b"plain text", "gzip", "its compressed bytes are damaged"),
        (gzip.compress(b"a") + b"tail", "gzip", "its compressed bytes are damaged"),
        (gzip.compress(b"a" * 50)[:-8] + b"\0" * 8, "gzip", "its compressed bytes are damaged"),
        (b"x", "br", 'its compression "br" was not asked for'),
        (b"x", "gzip, gzip", 'its compression "gzip, gzip" was not asked for'),
    ],
)
def test_compressed_bytes_that_are_none(serve, data, coding, why):
    server = serve(answer(data, Content_Encoding=coding))
    assert refusal(local, server.url, compressed=True) == (
        "CONNECTION_REQUEST_FAILED", 'cannot fetch "%s/": %s' % (server.url, why)
    )  # fmt: skip


# Framing


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "data, body",
    [
        (HEAD + b"\r\n", b""),
        (b"HTTP/1.0 200 OK\r\n\r\nold", b"old"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nlf", b"lf"),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", b"ok"),
        (HEAD + b"Content-Length: 2\r\n\r\nok and more", b"ok"),
        (HEAD + b"X: a\r\n b\r\nContent-Length: 1\r\n\r\nx", b"x"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + answer(b"end"), b"end"),
        (CHUNKED + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", b"abc0123456789"),
        (CHUNKED.replace(b"chunked", b"Chunked") + b"0003 \r\nabc\r\n000\r\n\r\n", b"abc"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n1\r\nx\r\n0\r\n\r\n", b"x"),
        (b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", b""),
    ],
)
def test_framings_of_a_body(serve, data, body):
    assert local(serve(data).url).body == body


CUT = "the connection ended before the answer was complete"
LENGTH = "the answer has a length that is no number"
NOT_HTTP = "the answer is no HTTP/1.1"
LINE = "the answer has a header line that is none"


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", CUT), (b"HTTP/1.1 200 OK\r\nX: y", CUT), (HEAD + b"Content-Length: 5\r\n\r\nabc", CUT),
        (CHUNKED + b"5\r\nabc", CUT), (CHUNKED + b"3\r\nabc\r\n", CUT), (CHUNKED + b"3\r\nabc\r\n0\r\n", CUT),
        (CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n", LENGTH), (CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n", LENGTH),
        (CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n", LENGTH), (CHUNKED + b"\r\nabc\r\n0\r\n\r\n", LENGTH),
        (CHUNKED + b"1_0\r\nabc\r\n0\r\n\r\n", LENGTH), (CHUNKED + b"f" * 16 + b"\r\nabc", LENGTH),
        (CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", "a chunk of the answer has not the length it claims"),
        (HEAD + b"Content-Length: -1\r\n\r\n", LENGTH), (HEAD + b"Content-Length: +1\r\n\r\nx", LENGTH),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", LENGTH),
        (HEAD + b"Content-Length: \r\n\r\n", LENGTH),
        (HEAD + b"Content-Length: 1_0\r\n\r\nx", LENGTH), (HEAD + b"Content-Length: \xb2\r\n\r\nx", LENGTH),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "its transfer encoding is not chunked"),
        (HEAD + b"Transfer-Encoding: x\r\n\r\n", "its transfer encoding is not chunked"),
        (b"hello\r\n\r\n", NOT_HTTP), (b"HTTP/2 200 OK\r\n\r\n", NOT_HTTP), (b"HTTP/1.1 2x0 OK\r\n\r\n", NOT_HTTP),
        (b"HTTP/1.1 20 OK\r\n\r\n", NOT_HTTP), (b"HTTP/1.1 0200 OK\r\n\r\n", NOT_HTTP),
        (b"HTTP/1.1 101 Switching\r\n\r\n", NOT_HTTP), (b"\r\n\r\n", NOT_HTTP),
        (b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n", NOT_HTTP), (b"HTTP/1.1 099 OK\r\n\r\n", NOT_HTTP),
        (HEAD + b"no colon\r\n\r\n", LINE), (HEAD + b": empty\r\n\r\n", LINE), (HEAD + b"a b: c\r\n\r\n", LINE),
        (HEAD + b" folded first\r\n\r\n", LINE), (HEAD + b"X: a\0b\r\n\r\n", LINE), (HEAD + b"X: a\rb\r\n\r\n", LINE),
        (b"HTTP/1.1 100 x\r\n\r\n" * 8 + answer(), "more than 8 interim answers"),
    ],
)  # fmt: skip
def test_answers_that_are_none(serve, data, why):
    server = serve(data)
    assert refusal(local, server.url) == ("CONNECTION_REQUEST_FAILED", 'cannot fetch "%s/": %s' % (server.url, why))


def test_an_answer_to_head_has_no_body(serve):
    server = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
    response = local(server.url, method="HEAD")
    assert (response.body, response.headers["content-length"]) == (b"", "99999999999")


def test_the_servers_words_cannot_move_a_cursor(serve):
    response = local(serve(b"HTTP/1.1 200 \x1b[31mOK\r\nContent-Length: 0\r\n\r\n").url)
    assert response.reason == "\\x1b[31mOK"


# Options


@pytest.mark.parametrize(
    "options, message",
    [
        ({"headers": {"X": "a\r\nEvil: b"}}, "the value of the header X must be printable ASCII on one line"),
        ({"headers": {"X": "tok-SECRET\0"}}, "the value of the header X must be printable ASCII on one line"),
        ({"headers": {"X": "\xe9"}}, "the value of the header X must be printable ASCII on one line"),
        ({"headers": {"X": 1}}, "the value of the header X must be printable ASCII on one line"),
        ({"headers": {"X\r\nEvil": "b"}}, '"X\\r\\nEvil" is no name of a header; use letters, digits and hyphens'),
        ({"headers": {"": "b"}}, '"" is no name of a header; use letters, digits and hyphens'),
        ({"headers": {"a b": "b"}}, '"a b" is no name of a header; use letters, digits and hyphens'),
        ({"headers": {"HOST": "evil"}}, "the header HOST is set by fetch itself; leave it out"),
        ({"headers": {"Transfer-Encoding": "chunked"}},
         "the header Transfer-Encoding is set by fetch itself; leave it out"),
        ({"headers": [("a", "b")]}, "headers must be a dict of names and values, not list"),
        ({"method": "GET / HTTP/1.1\r\nX:"},
         '"GET / HTTP/1.1\\r\\nX:" is no method to fetch with; give GET, POST or another word'),
        ({"method": "connect"}, '"connect" is no method to fetch with; give GET, POST or another word'),
        ({"method": None}, "null is no method to fetch with; give GET, POST or another word"),
        ({"body": "text"}, "the body must be bytes, not str; encode it first"),
        ({"max_bytes": -1}, "max_bytes must be a number from 0 on, not -1"),
        ({"max_bytes": 1.5}, "max_bytes must be a number from 0 on, not 1.5"),
        ({"max_bytes": True}, "max_bytes must be a number from 0 on, not true"),
        ({"max_redirects": None}, "max_redirects must be a number from 0 on, not null"),
        ({"timeout": "5"}, 'timeout must be a number from 0 on, not "5"'),
        ({"body_timeout": -0.5}, "body_timeout must be a number from 0 on, not -0.5"),
        ({"allow_private_hosts": "false"}, 'a switch of fetch must be True or False, not "false"'),
        ({"https_only": None}, "a switch of fetch must be True or False, not null"),
        ({"compressed": 1}, "a switch of fetch must be True or False, not 1"),
        ({"proxy": "http://p:1"}, 'proxy must be None or "environment"; put its address into HTTPS_PROXY'),
    ],
)
def test_an_option_that_cannot_be_used(net, options, message):
    assert refusal(get, "http://example.com/", **options) == ("BAD_REQUEST", message)
    assert net.looked_up == []


def test_no_time_is_too_little_and_endless_time_is_taken(serve):
    server = serve(answer())
    assert refusal(local, server.url, timeout=0)[0] == "CONNECTION_TIMEOUT"
    assert refusal(local, server.url, timeout=float("nan"))[0] == "BAD_REQUEST"
    assert local(server.url, timeout=float("inf"), body_timeout=float("inf")).status == 200


def test_fetch_works_in_the_surroundings_of_this_process(serve):
    assert nk.fetch(serve(answer()).url, allow_private_hosts=True).body == b"ok"


# Random input


def test_random_urls_are_fetched_where_they_say_or_refused(net, rng):
    """What is taken must name the very host and port that Python's own reader finds."""
    from urllib.parse import urlsplit

    dice = rng
    words = ["http", "https", "HTTP", "://", ":", "/", "//", "\\", "@", "?", "#", "[", "]", "[::1]", "%", "%2e", ".",
             "a", "example.com", "127.0.0.1", "0x7f", "1", "80", ":80",
             "\t", "\n", " ", "\uff0e", "\u2460", "xn--", "-", "\xfc",
             "\u3002", "\xdf", "\0", ";", "&", "=", "localhost", "\u212a"]  # fmt: skip
    taken = 0
    for _ in range(12000):
        start = dice.choice(["http://", "https://", "", "http://a"])
        text = start + "".join(dice.choices(words, k=dice.randrange(1, 6)))
        try:
            url = nk._fetch_read_url(text)
        except nk.Error as error:
            assert error.code == "FORBIDDEN" and error.message.isprintable()
            continue
        taken += 1
        theirs = urlsplit(text)
        scheme, host, literal, port, target = url
        assert scheme == theirs.scheme and port == (theirs.port or nk.FETCH_PORTS[scheme])
        assert host.isascii() and host == host.lower() and target.startswith("/")
        if theirs.hostname.isascii():
            assert host == (theirs.hostname[:-1] if theirs.hostname.endswith(".") else theirs.hostname)
        whole = nk._fetch_origin(url) + target
        assert whole.isprintable() and " " not in target
        assert nk._fetch_read_url(whole) == url  # stable
        if literal:
            ipaddress.ip_address(host)
    assert taken > 1500


def test_random_answers_end_in_an_answer_or_a_sentence(serve, rng):
    dice = rng
    seeds = [answer(b"body"), CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
             answer(gzip.compress(b"x" * 99), Content_Encoding="gzip"),
             redirect("/elsewhere"), b"HTTP/1.1 100 x\r\n\r\n" + answer()]  # fmt: skip
    current = []
    server = serve(lambda head: current[0])
    for _ in range(250):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(data))
            data[at : at + dice.randrange(2)] = dice.choice([b"", b"\r", b"\n", b"0", b":", b"\xff", b"\0", b"9", b" "])
        current[:] = [bytes(data)]
        try:
            local(server.url, compressed=True, max_bytes=1000, timeout=2, body_timeout=2)
        except nk.Error as error:
            assert error.code in ("CONNECTION_REQUEST_FAILED", "CONNECTION_RESPONSE_TOO_LARGE", "FORBIDDEN"), error
            assert error.message.startswith("cannot fetch ") and error.message.isprintable()


# Downloads


class Saver:
    """Download into a folder, from loopback; what was said and what stands there."""

    def __init__(self, folder):
        self.folder, self.said = str(folder), ""

    def __call__(self, items, folder=None, private=True, **options):
        env = nk.Env(environ={}, cwd=self.folder, stderr=io.BytesIO())
        try:
            failures = nk._fetch_download(items, folder or "out", env=env, private_hosts=private, **options)
        finally:
            self.said = env.stderr.getvalue().decode()
        return [(error.code, error.message) for error in failures]

    def files(self, folder="out"):
        found = {}
        for name in os.listdir(os.path.join(self.folder, folder)):
            with open(os.path.join(self.folder, folder, name), "rb") as file:
                found[name] = file.read()
        return found


@pytest.fixture
def save(tmp_path):
    return Saver(tmp_path)


def item(server, name, path="/f"):
    return {"url": server.url + path, "name": name}


def test_downloads_are_saved_and_told(serve, save):
    server = serve(lambda head: answer(head.split(b" ")[1]))
    assert save([item(server, "a.txt", "/1?sig=tok-SECRET-123"), item(server, "b.bin", "/2")]) == []
    assert save.files() == {"a.txt": b"/1?sig=tok-SECRET-123", "b.bin": b"/2"}
    assert save.said == "saved out/a.txt (21 bytes)\nsaved out/b.bin (2 bytes)\n"
    assert save([item(server, "c")], quiet=True) == [] and save.said == ""
    mask = os.umask(0)
    os.umask(mask)
    mode = os.stat(os.path.join(save.folder, "out", "a.txt")).st_mode
    assert stat.S_IMODE(mode) == 0o666 & ~mask or os.name == "nt"


def test_downloads_come_as_they_are_stored(serve, save):
    data = gzip.compress(b"x" * 999)
    server = serve(answer(data, Content_Encoding="gzip"))
    assert save([item(server, "x.gz")]) == [] and save.files() == {"x.gz": data}
    assert b"Accept-Encoding: identity" in server.requests[0]


def test_a_taken_name_is_numbered_and_nothing_is_overwritten(serve, save, tmp_path):
    server = serve(lambda head: answer(str(len(server.requests)).encode()))
    os.mkdir(str(tmp_path / "out"))
    (tmp_path / "out" / "a.txt").write_bytes(b"mine")
    (tmp_path / "out" / "a (3).txt").write_bytes(b"mine too")
    os.mkdir(str(tmp_path / "out" / "folder"))
    names = ["a.txt", "a.txt", "x/../a.txt", "b", "b", "folder"]
    assert save([item(server, name) for name in names]) == []
    os.rmdir(str(tmp_path / "out" / "folder"))
    assert save.files() == {"a.txt": b"mine", "a (2).txt": b"1", "a (3).txt": b"mine too", "a (4).txt": b"2",
                            "a (5).txt": b"3", "b": b"4", "b (2)": b"5", "folder (2)": b"6"}  # fmt: skip


def test_the_numbers_end(serve, save, monkeypatch):
    monkeypatch.setattr(nk, "FETCH_NAME_NUMBERS", 3)
    server = serve(answer())
    failures = save([item(server, "a")] * 3)
    why = 'cannot save "a" (3 names like it are taken); make room or choose another folder'
    assert failures == [("OUTPUT_FAILED", why)] and sorted(save.files()) == ["a", "a (2)"]


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_nothing_is_written_through_a_link(serve, save, tmp_path):
    server = serve(answer(b"new"))
    os.mkdir(str(tmp_path / "real"))
    (tmp_path / "victim").write_bytes(b"victim")
    os.symlink(str(tmp_path / "victim"), str(tmp_path / "real" / "a"))
    os.symlink(str(tmp_path / "nowhere"), str(tmp_path / "real" / "b"))
    os.symlink(str(tmp_path / "real"), str(tmp_path / "out"))
    assert save([item(server, "a"), item(server, "b")]) == []
    assert (tmp_path / "victim").read_bytes() == b"victim" and not (tmp_path / "nowhere").exists()
    assert sorted(os.listdir(str(tmp_path / "real"))) == ["a", "a (2)", "b", "b (2)"]


@pytest.mark.parametrize(
    "name, safe",
    [
        ("a.png", "a.png"), ("../../etc/passwd", "passwd"), ("/etc/passwd", "passwd"), ("..\\..\\x.txt", "x.txt"),
        ("C:\\x\\y.txt", "y.txt"), ("C:y.txt", "C_y.txt"), ("a.txt:stream", "a.txt_stream"), ("", "download"),
        (".", "download"), ("..", "download"), ("...", "download"), ("a/", "download"), ("a/..", "download"),
        (".bashrc", "_bashrc"), ("-rf", "_rf"), ("~root", "_root"), (" a", "_a"), ("a. . .", "a"), ("a\0b", "a_b"),
        ("a\nb\x1b[2Jc", "a_b_[2Jc"), ("a\u202etxt.exe", "a_txt.exe"), ("\ud800x", "_x"), ("CON", "_CON"),
        ("nul.tar.gz", "_nul.tar.gz"), ("COM\xb9.txt", "_COM\xb9.txt"), ("aux ", "_aux"),
        ("caf\u0065\u0301", "caf\xe9"),
        ("a?b*c<d>e|f\"g", "a_b_c_d_e_f_g"), ("x" * 300 + ".png", "x" * 196 + ".png"), ("\xe9" * 200, "\xe9" * 100),
        ("x." + "y" * 300, "x." + "y" * 198), ("x" * 199 + ". a", "x" * 197 + ". a"),
        ("\u65e5\u672c.txt", "\u65e5\u672c.txt"),
        ("a b (1).txt", "a b (1).txt"), ("a .txt", "a .txt"), (".new-1", "_new-1"),
        ("x" * 198 + ".  " + "y" * 30, "x" * 198),
    ],
)  # fmt: skip
def test_names_become_plain_files(name, safe):
    assert nk._fetch_file_name(name) == safe
    assert nk._fetch_file_name(safe) == safe


def test_random_names_become_plain_files(tmp_path, rng):
    dice = rng
    marks = ["..", "con", "nul.", "x" * 90]
    marks += "ab./\\ -~:?*\0\n\x7f\u202e\u0301\xe9\ud800\udfff\uff0f\u2024\u2215\U0001f600"
    for _ in range(3000):
        name = nk._fetch_file_name("".join(dice.choices(marks, k=dice.randrange(6))))
        assert name and "/" not in name and "\\" not in name and name.isprintable() and name[0] not in ".-~ "
        assert name not in (".", "..") and not name.endswith((".", " ")) and len(name.encode()) <= 201
        assert nk._paths_windows_fault(name) is None
        assert os.path.basename(name) == name


def test_one_failure_leaves_the_others_their_turn(serve, save):
    good, bad = serve(answer(b"good")), serve(answer(b"secret page", "404 Not Found"))
    cut = serve(HEAD + b"Content-Length: 50\r\n\r\nhalf")
    failures = save([item(bad, "1", "/x?sig=tok-SECRET-123"), item(cut, "2"), item(good, "3"),
                     {"url": "ftp://h/x?s", "name": "4"},
                     {"name": "5"}, "text", None, {"url": 1, "name": "x"}, item(good, "6")])  # fmt: skip
    mend = 'a download must be {"url": text, "name": text}; mend the download function'
    assert failures == [
        ("CONNECTION_REQUEST_FAILED", 'cannot fetch "%s/x": the server answered 404' % bad.url),
        ("CONNECTION_REQUEST_FAILED", 'cannot fetch "%s/f": %s' % (cut.url, CUT)),
        ("FORBIDDEN", 'cannot fetch "ftp://h/x": ' + LOCAL_ONLY),
        ("BAD_REQUEST", mend), ("BAD_REQUEST", mend), ("BAD_REQUEST", mend), ("BAD_REQUEST", mend),
    ]  # fmt: skip
    assert save.files() == {"3": b"good", "6": b"good"}
    lines = save.said.splitlines()
    assert lines[0] == "not saved: " + failures[0][1] and lines[2] == "saved out/3 (4 bytes)"
    assert save([item(bad, "1")], quiet=True) and save.said.startswith("not saved: ")


def test_a_private_host_is_refused_and_the_switch_is_the_applications(save):
    failures = save([{"url": "http://127.0.0.1/x?s=tok-SECRET-123", "name": "x"}], private=False)
    assert failures == [
        (
            "FORBIDDEN",
            'cannot fetch "http://127.0.0.1/x": 127.0.0.1, which is not public (this machine); '
            "download_private_hosts=True permits it, if you trust the URL",
        )
    ]


def test_limits_on_a_file_on_all_and_on_their_number(serve, save, monkeypatch):
    server = serve(answer(b"12345"))
    monkeypatch.setattr(nk, "FETCH_FILE_BYTES", 4)
    assert save([item(server, "a")]) == [
        (
            "CONNECTION_RESPONSE_TOO_LARGE",
            'cannot fetch "%s/f": the body (max_bytes) has more than 4 bytes' % server.url,
        )
    ]
    assert save.files() == {}
    monkeypatch.setattr(nk, "FETCH_FILE_BYTES", 100)
    monkeypatch.setattr(nk, "FETCH_FILES_BYTES", 12)
    assert [code for code, _ in save([item(server, "a")] * 4)] == ["CONNECTION_RESPONSE_TOO_LARGE"] * 2
    monkeypatch.setattr(nk, "FETCH_FILES_BYTES", 10)
    why = "one call saves at most 10 bytes; the rest is left out"
    assert save([item(server, "b")] * 9) == [("CONNECTION_RESPONSE_TOO_LARGE", why)]
    monkeypatch.setattr(nk, "FETCH_FILES", 1)

    def endless():
        while True:
            yield item(server, "c")

    why = "one call saves at most 1 files; the rest is left out"
    assert save(endless()) == [("CONNECTION_RESPONSE_TOO_LARGE", why)]
    assert sorted(save.files()) == ["a", "a (2)", "b", "b (2)", "c"]


def test_a_folder_that_cannot_be_made(serve, save, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    server = serve(answer())
    no_name = "no file can have this name"
    for folder, reason in (("file", "File exists"), ("file/x", "Not a directory"), ("a\0b", no_name)):
        why = 'cannot make the folder "%s" (%s); choose another place' % (folder.replace("\0", "\\u0000"), reason)
        assert save([item(server, "a"), item(server, "b")], folder) == [("OUTPUT_FAILED", why)]
    assert server.requests == []


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_full_disk_leaves_no_half_file(serve, save, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    server = serve(answer(b"x" * 100))
    monkeypatch.setattr(nk.os, "write", full)
    failures = save([item(server, "a")])
    monkeypatch.undo()
    why = 'cannot save "a" (No space left on device); make room or choose another folder'
    assert failures == [("OUTPUT_FAILED", why)] and save.files() == {}


def test_a_file_system_without_hard_links(serve, save, monkeypatch):
    def refuse(*args, **options):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(nk.os, "link", refuse)
    assert save([item(serve(answer()), "a")] * 2) == [] and sorted(save.files()) == ["a", "a (2)"]


@pytest.mark.parametrize("stop", [nk.Error("REQUEST_ABORTED", "x"), KeyboardInterrupt(), RuntimeError("bug")])
def test_whatever_stops_a_download_nothing_half_done_stays(serve, save, monkeypatch, stop):
    server = serve(drip(HEAD + b"Content-Length: 9999999\r\n\r\n", b"a" * 1000, 100))

    def interrupt(descriptor, data):
        raise stop

    monkeypatch.setattr(nk.os, "write", interrupt)
    with pytest.raises(type(stop)):
        save([item(server, "a"), item(server, "b")])
    monkeypatch.undo()
    assert save.files() == {} and len(server.requests) == 1


def test_a_download_is_streamed(serve, save):
    import tracemalloc

    size = 30 * 2**20
    server = serve(drip(HEAD + b"Content-Length: %d\r\n\r\n" % size, b"a" * 2**20, 30))
    tracemalloc.start()
    try:
        assert save([item(server, "big")]) == []
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
    assert os.path.getsize(os.path.join(save.folder, "out", "big")) == size


# Regressions


# Regressions

def answering(*parts):
    """A raw loopback server that answers each connection with the next bytes and counts what it could send."""
    import socket
    import threading

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    sent = [0]

    def serve():
        for part in parts:
            try:
                peer, _ = listener.accept()
                peer.recv(65536)
                for at in range(0, len(part), 10000):
                    peer.sendall(part[at:at + 10000])
                    sent[0] += 10000
            except OSError:
                pass
            finally:
                peer.close()

    threading.Thread(target=serve, daemon=True).start()
    return "http://127.0.0.1:%d/" % listener.getsockname()[1], sent, listener


@pytest.mark.parametrize("answer, why", [
    (b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-2/100\r\nContent-Length: 3\r\n\r\nabc", "the server answered 206"),
    (b"HTTP/1.1 204 None\r\n\r\n", "the server answered 204"),
])
def test_a_body_that_is_no_whole_file_is_not_saved(tmp_path, answer, why):
    import io

    url, _, listener = answering(answer)
    failures = nk._fetch_download([{"url": url, "name": "f"}], str(tmp_path), env=nk.Env(stderr=io.BytesIO()),
                                  private_hosts=True)
    listener.close()
    assert len(failures) == 1 and why in failures[0].message and os.listdir(tmp_path) == []


def test_what_could_not_be_kept_counts_towards_the_total(tmp_path, monkeypatch):
    import io

    monkeypatch.setattr(nk, "FETCH_FILE_BYTES", 100_000)
    monkeypatch.setattr(nk, "FETCH_FILES_BYTES", 300_000)
    url, sent, listener = answering(*[b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 150_000] * 20)
    items = [{"url": url, "name": "f%d" % number} for number in range(20)]
    failures = nk._fetch_download(items, str(tmp_path), env=nk.Env(stderr=io.BytesIO()), private_hosts=True)
    listener.close()
    assert len(failures) <= 6 and "the rest is left out" in failures[-1].message and os.listdir(tmp_path) == []


def test_a_cancel_ends_a_connection_attempt_that_hangs(monkeypatch):
    import threading
    import time

    asked = threading.Event()

    def hang(address, port, seconds):
        asked.set()
        time.sleep(5)
        raise OSError

    monkeypatch.setattr(nk, "_fetch_dial", hang)
    cancel = nk.Cancel()
    threading.Thread(target=lambda: asked.wait(5) and cancel.cancel(), daemon=True).start()
    began = time.monotonic()
    with pytest.raises(nk.Error) as caught:
        nk.fetch("http://127.0.0.1:9/", allow_private_hosts=True, timeout=4, cancel=cancel)
    assert caught.value.code == "REQUEST_ABORTED" and time.monotonic() - began < 3


@pytest.mark.parametrize("name", ["timeout", "body_timeout"])
def test_a_deadline_no_clock_can_count_is_refused(name):
    with pytest.raises(nk.Error) as caught:
        nk.fetch("http://127.0.0.1:9/", allow_private_hosts=True, **{name: 10 ** 400})
    assert caught.value.code == "BAD_REQUEST" and caught.value.message.startswith(name + " must be a number from 0 on")
