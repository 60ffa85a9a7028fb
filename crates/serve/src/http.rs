//! The part of HTTP/1.1 (RFC 9112) that a scraper, a probe and `curl` need: one request per
//! connection, with a body only where the server takes one.
//!
//! A client may send anything, slowly or never: bytes and time per connection are bounded.
//!
//! httparse, which hyper uses as well, reads the head. hyper (1.x, `http1` and `server`) would
//! replace only `read` and the writing of the answer's head, and would need an adapter between its
//! I/O traits and tokio's, a service and a body type. The limits of time and connections and the
//! orderly end would stay here: hyper leaves these to its caller.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 8 << 10;
/// The most header fields of a request.
const MAX_FIELDS: usize = 64;
/// How long a connection may last.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How many bytes to discard from a client after its answer. The kernel resets a connection that is
/// closed with unread data, and the client could lose the answer.
const MAX_REST: usize = 64 << 10;

/// Keep a browser from loading anything from other servers, running any script but the page's,
/// showing the answer in another site's page, and guessing another media type.
const SECURITY_HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; \
                       img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                       X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Without the query.
    pub path: String,
    /// Without its question mark, not decoded; empty if there is none.
    pub query: String,
    /// Empty if there is none.
    pub host: String,
    /// `Some` for POST.
    pub body: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: StatusCode,
    pub media_type: &'static str,
    /// Clients that read slowly share it.
    pub body: Arc<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusCode {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    BodyTooLarge,
    Internal,
    Unavailable,
}

impl StatusCode {
    fn line(self) -> &'static str {
        match self {
            StatusCode::Ok => "200 OK",
            StatusCode::BadRequest => "400 Bad Request",
            StatusCode::NotFound => "404 Not Found",
            StatusCode::MethodNotAllowed => "405 Method Not Allowed",
            StatusCode::HeadTooLarge => "431 Request Header Fields Too Large",
            StatusCode::BodyTooLarge => "413 Content Too Large",
            StatusCode::Internal => "500 Internal Server Error",
            StatusCode::Unavailable => "503 Service Unavailable",
        }
    }
}

impl Response {
    /// A text for people, ending in a new line.
    pub fn text(status: StatusCode, text: impl AsRef<str>) -> Response {
        let body = format!("{}\n", text.as_ref().trim_end()).into_bytes();
        Response { status, media_type: "text/plain; charset=utf-8", body: body.into() }
    }

    pub fn ok(media_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
        Response { status: StatusCode::Ok, media_type, body: body.into().into() }
    }
}

/// Serves one connection: reads a request and writes its answer. Ends within five seconds. A POST may have this many
/// bytes; without any, it is refused.
pub async fn serve<A: Future<Output = Response>>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    most_body: usize,
    answer: impl FnOnce(Request) -> A,
) {
    // A client that went away or is too slow gets nothing.
    let _ = timeout(MAX_TIME, async {
        let (response, with_body) = match read(&mut stream, most_body).await? {
            Ok((request, with_body)) => (answer(request).await, with_body),
            Err(refusal) => (refusal, true),
        };
        let head = format!(
            "HTTP/1.1 {}\r\n{SECURITY_HEADERS}Content-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            response.status.line(),
            response.media_type,
            response.body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        if with_body {
            stream.write_all(&response.body).await?;
        }
        stream.shutdown().await?;
        let mut rest = stream.take(MAX_REST as u64);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    })
    .await;
}

/// What a request says before its body.
#[derive(Debug)]
struct Head {
    request: Request,
    /// Whether the answer has a body.
    is_shown: bool,
    /// In bytes.
    length: usize,
    /// The length of its body in bytes; `None` if the method has none.
    body: Option<usize>,
}

/// The request, and whether its answer has a body; or a refusal.
async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    most_body: usize,
) -> std::io::Result<Result<(Request, bool), Response>> {
    let mut bytes = Vec::with_capacity(512);
    let head = loop {
        match parse(&bytes, most_body) {
            Some(Ok(head)) => break head,
            Some(Err(refusal)) => return Ok(Err(refusal)),
            None => {}
        }
        if bytes.len() >= MAX_HEAD {
            let why = format!("the request has more than {MAX_HEAD} bytes before its body");
            return Ok(Err(Response::text(StatusCode::HeadTooLarge, why)));
        }
        let rest = (MAX_HEAD - bytes.len()) as u64;
        if (&mut *stream).take(rest).read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let Head { request, is_shown, length, body } = head;
    let Some(size) = body else { return Ok(Ok((request, is_shown))) };
    let mut body = bytes.split_off(length);
    body.truncate(size);
    let rest = size - body.len();
    if (&mut *stream).take(rest as u64).read_to_end(&mut body).await? < rest {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Ok((Request { body: Some(body), ..request }, is_shown)))
}

/// The head in these bytes, or the refusal; `None` if more bytes are needed.
fn parse(bytes: &[u8], most_body: usize) -> Option<Result<Head, Response>> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(length)) => Some(head(&request, length, most_body)),
        Err(httparse::Error::TooManyHeaders) => {
            let why = format!("the request has more than {MAX_FIELDS} header fields");
            Some(Err(Response::text(StatusCode::HeadTooLarge, why)))
        }
        Err(error) => {
            let why = format!("not HTTP/1.1: {error}");
            Some(Err(Response::text(StatusCode::BadRequest, why)))
        }
    }
}

fn head(
    request: &httparse::Request<'_, '_>,
    length: usize,
    most_body: usize,
) -> Result<Head, Response> {
    let field = |name: &str| {
        let field = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(field.value).trim().to_owned())
    };
    let (is_shown, body) = match request.method {
        Some("GET") => (true, None),
        Some("HEAD") => (false, None),
        Some("POST") if most_body > 0 => {
            let size = field("content-length").and_then(|length| length.parse().ok());
            let why = "the request has a body without Content-Length";
            (true, Some(size.ok_or_else(|| Response::text(StatusCode::BadRequest, why))?))
        }
        _ => {
            let why = "read-only: use GET or HEAD";
            return Err(Response::text(StatusCode::MethodNotAllowed, why));
        }
    };
    if body.is_some_and(|size| size > most_body) {
        let why = format!("the request's body has more than {most_body} bytes");
        return Err(Response::text(StatusCode::BodyTooLarge, why));
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (path, query) = (path.to_owned(), query.to_owned());
    let host = field("host").unwrap_or_default();
    Ok(Head { request: Request { path, query, host, body: None }, is_shown, length, body })
}
