"""A class on this machine, and phones without a browser."""

import asyncio
import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from attention_course.classroom.server import open_class
from attention_course.classroom.session import Session

QUESTION = {
    "question": "How much is <b>half</b> of `one`?",
    "choices": [
        {"text": "None", "explanation": "There is some left."},
        {"text": "`1 / 2`", "explanation": "One of two equal parts.", "right": True},
        {"text": "<script>alert(1)</script>", "explanation": "That is <i>code</i>."},
    ],
}
QUESTIONS = [("half", QUESTION), ("again", QUESTION)]


@dataclass
class Class:
    session: Session
    phones: str  # the address for phones
    teacher: str
    file: Path


@contextmanager
def opened(folder: Path, questions=QUESTIONS) -> Iterator[Class]:
    """Open a class, whose server runs in a thread."""
    file = folder / "votes.jsonl"
    session, ready, found = Session(questions, file), threading.Event(), []

    async def serve():
        server, phones, teacher = open_class(session, "127.0.0.1", 0)
        over = asyncio.Event()
        found.extend([Class(session, phones, teacher, file), asyncio.get_running_loop(), over])
        ready.set()
        await over.wait()
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    made, loop, over = found
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)


class Client:
    """A phone, or with the teacher's address the teacher: it keeps one cookie, and follows no redirect."""

    def __init__(self, address: str):
        self.host, self.cookie = urlsplit(address).netloc, ""
        self.status, self.text, self.headers = 0, "", {}
        self.get(urlsplit(address).path or "/")

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> "Client":
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else {}
        with closing(http.client.HTTPConnection(self.host, timeout=60)) as connection:
            connection.request(method, path, body, {"Cookie": self.cookie, **form, **headers})
            answer = connection.getresponse()
            self.status, self.text, self.headers = answer.status, answer.read().decode(), answer.headers
        self.cookie = (answer.headers["Set-Cookie"] or self.cookie).partition(";")[0]
        return self

    def get(self, path: str, **headers: str) -> "Client":
        return self.ask("GET", path, **headers)

    def vote(self, choice: object, question: str = "half", round: object = 1) -> "Client":
        return self.post("/", question=question, round=round, choice=choice)

    def act(self, action: str, stage: str, question: str = "half") -> "Client":
        return self.post("/screen/", action=action, stage=stage, question=question)

    def post(self, path: str, **form: object) -> "Client":
        return self.ask("POST", path, urlencode(form).encode())
