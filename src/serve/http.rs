//! The part of HTTP/1.1 (RFC 9112) that a scraper, a probe and `curl` need: one request per
//! connection, no bodies.
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
    TooLarge,
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
            StatusCode::TooLarge => "431 Request Header Fields Too Large",
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

/// Serves one connection: reads a request and writes its answer. Ends within five seconds.
pub async fn serve<A: Future<Output = Response>>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl FnOnce(Request) -> A,
) {
    // A client that went away or is too slow gets nothing.
    let _ = timeout(MAX_TIME, async {
        let (response, with_body) = match read(&mut stream).await? {
            Ok((request, method)) => (answer(request).await, method == Method::Get),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Head,
}

/// The request to answer, or a refusal.
type Head = Result<(Request, Method), Response>;

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Head> {
    let mut bytes = Vec::with_capacity(512);
    loop {
        if let Some(head) = parse(&bytes) {
            return Ok(head);
        }
        if bytes.len() >= MAX_HEAD {
            let why = format!("the request has more than {MAX_HEAD} bytes before its body");
            return Ok(Err(Response::text(StatusCode::TooLarge, why)));
        }
        let rest = (MAX_HEAD - bytes.len()) as u64;
        if (&mut *stream).take(rest).read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The request in these bytes, or the refusal; `None` if more bytes are needed.
fn parse(bytes: &[u8]) -> Option<Head> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            let why = format!("the request has more than {MAX_FIELDS} header fields");
            return Some(Err(Response::text(StatusCode::TooLarge, why)));
        }
        Err(error) => {
            let why = format!("not HTTP/1.1: {error}");
            return Some(Err(Response::text(StatusCode::BadRequest, why)));
        }
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => {
            let why = "read-only: use GET or HEAD";
            return Some(Err(Response::text(StatusCode::MethodNotAllowed, why)));
        }
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let host = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
    let host = host.map(|field| String::from_utf8_lossy(field.value).trim().to_owned());
    let host = host.unwrap_or_default();
    Some(Ok((Request { path: path.to_owned(), query: query.to_owned(), host }, method)))
}
