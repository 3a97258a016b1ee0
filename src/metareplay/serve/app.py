"""The HTTP side of a server: paths, bodies, statuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from metareplay.errors import MetaReplayError
from metareplay.faults import fault_of
from metareplay.serve import openapi
from metareplay.serve.access import App, Guard, Message, Receive, Scope, Send
from metareplay.serve.answers import as_json
from metareplay.serve.counting import Counted
from metareplay.serve.jobs import Wanted
from metareplay.serve.labelled_images import ZIP, LabelledFile, zipped_images
from metareplay.serve.learning import KINDS, Examples, Text
from metareplay.serve.metrics import CONTENT_TYPE
from metareplay.serve.pages import docs_page, front_page, page_headers
from metareplay.serve.refusals import RequestError, status_of
from metareplay.serve.service import Service, Upload
from metareplay.serve.settings import ServeSettings
from metareplay.version import __version__

NewName = Annotated[str | None, Query(description="Name of the new task.")]
LabelName = Annotated[str | None, Query(description="Column of the labels; default: the one the model learned.")]
MaxChange = Annotated[
    float | None, Query(ge=0, description="Refuse the task if the answers of known tasks would move further; 0 to 1.")
]
JobNumber = Annotated[int, PathParameter(description="As /tasks or /jobs said.")]
MOST_FILES = 1000


def build_app(folder: str | Path, settings: ServeSettings | None = None) -> Counted:
    """The ASGI application that serves the model in a folder."""
    settings = settings or ServeSettings()
    service = Service(Path(folder), settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        background = [asyncio.create_task(service.batcher.run()), asyncio.create_task(service.watch())]
        try:
            yield
        finally:
            await service.jobs.stop()
            for work in background:
                work.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    app = FastAPI(
        title="metareplay",
        version=__version__,
        description=openapi.DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _answer_errors(app)
    _add_predict(app, service)
    _add_learning(app, service)
    _add_facts(app, service)
    _add_pages(app)
    return Counted(Guard(Shortcut(app, service), settings), service, frozenset(app.openapi()["paths"]))


class Shortcut:
    """Answers plain rows as JSON itself: for single rows the layers of a web framework would take as long as the model.

    Everything else, and whatever goes wrong, is the framework's; a prediction that fails is made once more there.
    """

    def __init__(self, app: App, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http" or scope["path"] != "/predict" or scope["query_string"] or not _plain_json(scope):
            await self.app(scope, receive, send)
            return
        told: list[Message] = []
        try:
            told.append(await receive())
            if told[0]["type"] != "http.request" or told[0].get("more_body", False):
                raise _PartialBodyError
            async with _within(self.service.settings.timeout):
                content = await self.service.predict_json(told[0].get("body", b""), None, None)
            await send({"type": "http.response.start", "status": 200, "headers": _headers(len(content))})
            await send({"type": "http.response.body", "body": content})
        except MetaReplayError as error:
            await _refusal(error)(scope, receive, send)
        except Exception:  # of a large body, or a fault, which the framework tells when it has it again
            await self.app(scope, _told_again(told, receive), send)


class _PartialBodyError(Exception):
    """The body comes in several parts."""


def _told_again(told: list[Message], receive: Receive) -> Receive:
    async def again() -> Message:
        return told.pop() if told else await receive()

    return again


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Refuse what takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RequestError(
            504, f"the request took more than {seconds:g} seconds (--timeout); send fewer rows"
        ) from None


def _refusal(error: MetaReplayError) -> Response:
    headers = error.headers if isinstance(error, RequestError) else None
    return _json({"error": str(error)}, status_of(error), headers)


def _plain_json(scope: Scope) -> bool:
    return scope["method"] == "POST" and (b"content-type", b"application/json") in scope["headers"]


def _headers(length: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", str(length).encode()), (b"content-type", b"application/json")]


def _answer_errors(app: FastAPI) -> None:
    """Every error is JSON with one sentence."""

    @app.exception_handler(MetaReplayError)
    async def refused(_: Request, error: MetaReplayError) -> Response:
        return _refusal(error)

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:
        words = {
            404: f"there is nothing at {request.url.path}; see /docs for what is available",
            405: f"{request.method} is not allowed at {request.url.path}; see /docs for what is allowed",
        }
        return _json({"error": words.get(error.status_code, str(error.detail))}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return _json({"error": f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"}, 422)

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        fault = fault_of(error)  # the sentence may name files of the server
        words = f"the server failed on this request (fault {fault.number}); its log says why"
        return _json({"error": words, "fault": fault.number}, 500)


def _add_predict(app: FastAPI, service: Service) -> None:
    seconds = service.settings.timeout

    @app.post("/predict", openapi_extra=openapi.PREDICT, responses=openapi.ANSWERS, tags=["predictions"])
    async def predict(request: Request) -> Response:
        """Label, task, probabilities and uncertainties for each input; for regression, mean and spread."""
        kind, asked = _kind(request), request.query_params  # read by hand: this path has to be quick
        task, criterion = asked.get("task"), asked.get("criterion")
        async with _within(seconds):
            return Response(await _predicted(request, kind, service, task, criterion), media_type="application/json")


async def _predicted(request: Request, kind: str, service: Service, task: str | None, criterion: str | None) -> bytes:
    if kind == "application/json":
        return await service.predict_json(await request.body(), task, criterion)
    if kind in ("text/csv", "text/tab-separated-values"):
        return await service.predict_csv(await request.body(), task, criterion)
    if kind in ("image/png", "image/jpeg"):
        return await service.predict_images([("the image", await request.body())], task, criterion)
    if kind == "multipart/form-data":
        files = await _uploads(request)
        if len(files) == 1 and files[0][0].lower().endswith((".csv", ".tsv")):
            return await service.predict_csv(files[0][1], task, criterion)
        return await service.predict_images(files, task, criterion)
    raise RequestError(
        415,
        f"a body of type {kind or 'unknown'!r} cannot be read; send application/json, text/csv, image/png, "
        "image/jpeg or multipart/form-data",
    )


async def _uploads(request: Request) -> list[Upload]:
    """The files of a form."""
    return [(file.name, file.content) for file in await _form_files(request)]


async def _form_files(request: Request) -> list[LabelledFile]:
    """The files of a form, each with the name of its field."""
    async with request.form(max_files=MOST_FILES, max_fields=MOST_FILES) as form:
        parts = [(field, part) for field, part in form.multi_items() if isinstance(part, UploadFile)]
        files = [LabelledFile(field, part.filename or "the file", await part.read()) for field, part in parts]
    if not files:
        raise RequestError(422, "the form holds no file; add a CSV file, or PNG or JPEG images")
    return files


async def _examples(request: Request, kind: str, settings: ServeSettings) -> Examples:
    """What a task is to be learned from: rows, or images with labels."""
    if kind in ZIP:
        return await asyncio.to_thread(zipped_images, await request.body(), settings)
    if kind == "multipart/form-data":
        files = await _form_files(request)
        if len(files) > 1 or not files[0].name.lower().endswith((".csv", ".zip")):
            return files
        if files[0].name.lower().endswith(".zip"):
            return await asyncio.to_thread(zipped_images, files[0].content, settings)
        return Text("text/csv", files[0].content)
    if kind not in KINDS:
        known = ", ".join((*KINDS, ZIP[0]))
        raise RequestError(415, f"a body of type {kind!r} cannot be learned from; send {known} or multipart/form-data")
    return Text(kind, await request.body())


def _add_learning(app: FastAPI, service: Service) -> None:
    @app.post("/tasks", status_code=202, openapi_extra=openapi.LEARN, tags=["model"])
    async def learn(
        request: Request, name: NewName = None, label: LabelName = None, max_change: MaxChange = None
    ) -> Response:
        """Learn another task in the background; when it is learned, the server switches to the new model."""
        service.refuse_read_only()
        examples = await _examples(request, _kind(request), service.settings)
        return _json(await service.learn(examples, Wanted(name, label, max_change)), 202)

    @app.get("/jobs", tags=["model"])
    async def jobs() -> Response:
        """The tasks that were or are being learned since the server began, the newest first."""
        return _json({"jobs": service.jobs.facts()})

    @app.get("/jobs/{number}", tags=["model"])
    async def job(number: JobNumber) -> Response:
        """One of these: learning, done or failed."""
        return _json(service.jobs.of(number))


def _add_facts(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["server"])
    async def health() -> Response:
        """Whether the server answers, and with which generation of the model."""
        return _json(service.health())

    @app.get("/model", tags=["model"])
    async def model() -> Response:
        """What the model is, what its inputs are, and the limits of the server."""
        return _json(service.model())

    @app.get("/tasks", tags=["model"])
    async def tasks() -> Response:
        """The tasks that the model has learned."""
        return _json(service.tasks())

    @app.get("/audit", tags=["model"])
    async def audit() -> Response:
        """How far later tasks have moved each task."""
        return _json(await asyncio.to_thread(service.audit))

    @app.get("/metrics", tags=["server"])
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def front() -> Response:
        return Response(front_page(), media_type="text/html", headers=page_headers())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(docs_page(app.openapi()), media_type="text/html", headers=page_headers())


def _kind(request: Request) -> str:
    """The type of a body, without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _json(content: Any, status: int = 200, headers: Any = None) -> Response:
    return Response(as_json(content), status, headers=headers, media_type="application/json")
