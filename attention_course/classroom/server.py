"""The pages of a class: one for phones, one for the teacher's screen. Each asks every second what is new."""

import hmac
import io
import re
import secrets
import socket
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import segno
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.log import app_log
from tornado.template import Loader
from tornado.web import Application, HTTPError, RequestHandler

from attention_course.classroom.session import LETTERS, MOST, RefusedError, Session
from attention_course.files import printable
from attention_course.plots.style import coloured
from attention_course.questions import marked

try:
    import resource
except ImportError:  # on Windows
    resource = None

HERE = Path(__file__).parent
LONGEST = 1000  # bytes of what a page sends
FILES = 4 * MOST  # that may be open at once, where the system agrees; half of them are for connections
CUT = 2**16  # bytes after which a connection is closed without a word
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TYPES = {"css": "text/css", "js": "text/javascript"}
PHONE, TEACHER = "attention_phone", "attention_teacher"  # the cookies
NOT_IN = "The class does not know this phone. Open its page again, and allow it to keep a cookie."
NOT_KEPT = "The vote could not be kept, so it does not count: {}."
NOT_THE_TEACHER = "Only the teacher's page does that. Its address is where the class was started."


class Page(RequestHandler):
    """What all pages have in common: what they refuse, in a sentence."""

    session: Session
    secret: str
    hosts: set[str]

    def initialize(self, session: Session, secret: str, hosts: set[str]) -> None:
        """Take the class, the teacher's secret, and the names of this server."""
        self.session, self.secret, self.hosts = session, secret, hosts

    def set_default_headers(self) -> None:
        """Set headers, also of errors."""
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def prepare(self) -> None:
        """Refuse what does not come from a page of this class."""
        origin = self.request.headers.get("Origin")
        if self.request.host not in self.hosts:
            raise HTTPError(421, "This class has another address: look at the screen.")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            raise HTTPError(403, "Another page sent this. Open the page of the class.")
        if len(self.request.body) > LONGEST:
            raise HTTPError(413, "That is too long. A vote takes a few bytes: press one of the buttons.")

    def write_error(self, status_code: int, **kwargs) -> None:
        """Say why, as plain text."""
        error = kwargs.get("exc_info", (None, None))[1]
        said = error.log_message if isinstance(error, HTTPError) else None
        if isinstance(error, OSError):
            said = NOT_KEPT.format(error.strerror)
        known = {404: "There is no such page. Look at the screen for the address."}
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(said or known.get(status_code, f"This cannot be done ({self._reason})."))

    def log_exception(self, typ, value, tb) -> None:
        """Log a bug, and in a line what the system refuses; what we refuse is no news in a terminal."""
        if isinstance(value, OSError):
            app_log.error(printable(NOT_KEPT.format(f"{self.session.file}: {value.strerror}")))
        elif not isinstance(value, HTTPError):
            super().log_exception(typ, value, tb)

    def field(self, name: str) -> str:
        """Return a field of a form; "" if it is missing or no text."""
        try:
            return self.get_body_argument(name, "")
        except HTTPError:
            return ""

    def show(self, template: str, **values: object) -> None:
        """Answer with a page; each value in it is escaped."""
        session = self.session
        letters = list(zip(LETTERS, session.entry["choices"], strict=False))
        self.finish(
            TEMPLATES.load(template).generate(
                session=session, letters=letters, marked=marked, percent=percent, **values
            )
        )


class Phone(Page):
    """The page of a phone, or with `now` the part of it that changes."""

    def get(self, now: str) -> None:
        """Answer with the page. A phone is in the class once it brings back its cookie: some keep none."""
        phone = (self.get_signed_cookie(PHONE) or b"").decode()
        if not phone:
            self.set_signed_cookie(PHONE, secrets.token_urlsafe(16), None, httponly=True, samesite="Lax")
        else:
            try:
                self.session.hear(phone)
            except RefusedError as error:
                raise HTTPError(503, str(error)) from error
        self.show("phone_now.html" if now else "phone.html", chosen=self.session.chosen(phone))

    def post(self, _: str) -> None:
        """Take a vote."""
        phone = (self.get_signed_cookie(PHONE) or b"").decode()
        if not phone:
            raise HTTPError(409, NOT_IN)
        try:
            self.session.vote(phone, *(self.field(name) for name in ("question", "round", "choice")))
        except RefusedError as error:
            raise HTTPError(409, str(error)) from error
        self.redirect("./", status=303)


class Screen(Page):
    """The teacher's page, or with `now` the part of it that changes."""

    def prepare(self) -> None:
        """Refuse all others."""
        super().prepare()
        if not hmac.compare_digest((self.get_cookie(TEACHER, "") or "").encode(), self.secret.encode()):
            raise HTTPError(403, NOT_THE_TEACHER)

    def get(self, now: str) -> None:
        """Answer with the page."""
        address = f"http://{self.request.host}"
        self.show("screen_now.html" if now else "screen.html", address=address)

    def post(self, _: str) -> None:
        """Lead the class on."""
        try:
            self.session.act(*(self.field(name) for name in ("action", "question", "stage")))
        except RefusedError as error:
            raise HTTPError(409, str(error)) from error
        self.redirect("./", status=303)


class Door(Page):
    """The teacher's address. Its secret becomes a cookie, so that no projector shows it."""

    def get(self, secret: str) -> None:
        """Let the teacher in."""
        if not hmac.compare_digest(secret.encode(), self.secret.encode()):
            raise HTTPError(403, NOT_THE_TEACHER)
        self.set_cookie(TEACHER, secret, httponly=True, samesite="Lax")
        self.redirect("/screen/")


class Code(Page):
    """The address of the class as a QR code."""

    def get(self) -> None:
        """Answer with the picture, dark on light also on a dark page: not every phone reads the reverse."""
        picture = io.BytesIO()
        code = segno.make(f"http://{self.request.host}/", micro=False)
        code.save(picture, kind="svg", scale=8, dark="#000", light="#fff", omitsize=True)
        self.set_header("Content-Type", "image/svg+xml")
        self.finish(picture.getvalue())


class File(Page):
    """The style and the script."""

    def get(self, kind: str) -> None:
        """Answer with the file."""
        self.set_header("Content-Type", f"{TYPES[kind]}; charset=utf-8")
        self.finish(coloured((HERE / f"class.{kind}").read_text(encoding="utf-8")))


class Nowhere(Page):
    """Every other address."""

    def prepare(self) -> None:
        """Refuse it."""
        super().prepare()
        raise HTTPError(404)


TEMPLATES = Loader(str(HERE))


def percent(share: float) -> int:
    """Return a share in percent."""
    return round(100 * share)


def quiet(_: RequestHandler) -> None:
    """Log nothing: a terminal is no place for what phones ask every second."""


class Server(HTTPServer):
    """A server that closes the oldest connection where one more would be too many.

    A phone that is still there makes another. Without this, connections that ask for nothing would keep all
    others out.
    """

    def initialize(self, *args, most: int, **kwargs) -> None:
        """Take the number of connections that may be open at once."""
        super().initialize(*args, **kwargs)
        self.most, self.streams = most, list[IOStream]()

    def handle_stream(self, stream: IOStream, address: tuple) -> None:
        """Take a connection."""
        self.streams = [each for each in self.streams if not each.closed()]
        if len(self.streams) >= self.most:
            self.streams.pop(0).close()
        self.streams.append(stream)
        super().handle_stream(stream, address)


def room() -> int:
    """Ask the system for FILES, and return how many connections there is room for."""
    if resource is None:
        return 250  # of the 512 that Windows waits for at once
    given = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (FILES if each == resource.RLIM_INFINITY else min(each, FILES) for each in given)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, given[1]))
    return hard // 2


def in_browsers(address: str) -> str:
    """Return an address of a computer as browsers write it, who ask for MacBook.local as macbook.local.

    Raises:
        ValueError: it is the address of no single computer, or none that a browser opens; the message says
            what is.
    """
    try:
        found = ip_address(address)
        is_one = not (found.is_unspecified or found.is_multicast or found == IPv4Address("255.255.255.255"))
        if is_one and "%" not in address:
            return str(found)
    except ValueError:
        name = idna(address)
        if re.fullmatch(r"([\w-]+\.)*(?!(\d+|0x[\da-f]*)$)[\w-]+", name, re.ASCII):  # else read as a number
            return name
    raise ValueError(
        f"{address!a} is no address that a phone can open. Name one of this computer's own addresses, "
        "such as --address 192.168.1.7, or its name, such as --address macbook.local"
    )


def idna(name: str) -> str:
    """Return a name in the letters that the network knows; "" if it has none."""
    try:
        return name.encode("idna").decode().lower()
    except UnicodeError:
        return ""


def open_class(session: Session, address: str, port: int) -> tuple[HTTPServer, str, str]:
    """Open a class at an address of this machine, and nowhere else.

    Args:
        session: the class.
        address: an IP address or a name of this machine, as `in_browsers` returns it.
        port: 0 for any that is free.

    Returns:
        The server, the address for phones, and the teacher's, which has a secret in it.

    Raises:
        OSError: the address is not of this machine, or the port is in use.
    """
    secret, hosts = secrets.token_urlsafe(16), set[str]()
    given = {"session": session, "secret": secret, "hosts": hosts}
    pages = [
        (r"/(|now)", Phone),
        (r"/screen/(|now)", Screen),
        (r"/teacher/([\w-]*)", Door),
        (r"/code\.svg", Code),
        (r"/class\.(css|js)", File),
    ]
    application = Application(
        [(path, page, given) for path, page in pages],
        default_handler_class=Nowhere,
        default_handler_args=given,
        log_function=quiet,
        cookie_secret=secrets.token_bytes(32),  # the cookies of an earlier class are not of this one
    )
    server = Server(
        application,
        most=room(),
        max_buffer_size=CUT,
        max_body_size=CUT,
        max_header_size=CUT // 4,
        body_timeout=10,
    )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listening = socket.create_server((address, port), family=family, backlog=128)
    listening.setblocking(False)
    server.add_socket(listening)
    port = listening.getsockname()[1]
    host = f"[{address}]" if ":" in address else address
    hosts.update([f"{host}:{port}", *([host] if port == 80 else [])])  # browsers leave out 80
    return server, f"http://{host}:{port}", f"http://{host}:{port}/teacher/{secret}"
