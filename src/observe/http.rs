//! As much of HTTP/1.1 (RFC 9112) as a scraper, a probe and `curl` need: one request a connection,
//! no bodies.
//!
//! A client may send anything, slowly or never: what it can cost is bounded in bytes and time.
//!
//! httparse, hyper's own parser, reads the head; the rest is short because the task is. hyper (1.x,
//! `http1` and `server`) would replace only `read` and the writing of the answer's head. Its place
//! would take an adapter between its I/O traits and tokio's, a service and a body type, and the
//! limits of time and of connections, and the orderly end, would stay here, as hyper leaves these
//! to its caller. It is also larger than all that is here.

use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 8 << 10;
/// The most header fields of a request.
const MAX_FIELDS: usize = 64;
/// How long a connection may last, all in all.
const MAX_TIME: Duration = Duration::from_secs(5);
/// How much more is read, and thrown away, from a client that has its answer. Closing a connection
/// with something unread could take the answer away from it.
const MAX_REST: usize = 64 << 10;

/// What a browser must not do with an answer: load anything from elsewhere, run any script but the
/// page's own, show it in another site's page, or take it for another type than it is.
const SECURITY_HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; \
                       img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
                       X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The path, without the query.
    pub path: String,
    /// The query, without its question mark; empty if there is none. As it came: nothing is
    /// decoded.
    pub query: String,
    /// The name by which the client called this server; empty if it did not.
    pub host: String,
}

/// What it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, and its words.
    pub status: StatusCode,
    /// The media type of the body.
    pub media_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

/// The status codes that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusCode {
    /// 200.
    Ok,
    /// 400.
    BadRequest,
    /// 404.
    NotFound,
    /// 405.
    MethodNotAllowed,
    /// 431.
    TooLarge,
    /// 500.
    Internal,
    /// 503.
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
        Response { status, media_type: "text/plain; charset=utf-8", body }
    }
}

/// Serves one connection: reads a request, has it answered, writes the answer. Never lasts long.
pub async fn serve<A: Future<Output = Response>>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl FnOnce(Request) -> A,
) {
    // A client that goes away, or is too slow, has no one to be told.
    let _ = timeout(MAX_TIME, async {
        let (response, with_body) = match read(&mut stream).await? {
            Head::Of(request, method) => (answer(request).await, method == Method::Get),
            Head::Refused(response) => (response, true),
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

enum Head {
    Of(Request, Method),
    Refused(Response),
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Head> {
    let mut bytes = Vec::with_capacity(512);
    loop {
        if let Some(head) = parse(&bytes) {
            return Ok(head);
        }
        if bytes.len() >= MAX_HEAD {
            let why = format!("a request may have {MAX_HEAD} bytes before its body");
            return Ok(Head::Refused(Response::text(StatusCode::TooLarge, why)));
        }
        let room = (MAX_HEAD - bytes.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The request in these bytes, or why there is none; `None` if there may be one yet.
fn parse(bytes: &[u8]) -> Option<Head> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let refused = |status, why: String| Some(Head::Refused(Response::text(status, why)));
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return refused(
                StatusCode::TooLarge,
                format!("a request may have {MAX_FIELDS} fields"),
            );
        }
        Err(error) => {
            return refused(StatusCode::BadRequest, format!("this is not HTTP/1.1: {error}"));
        }
    }
    let method = match request.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => {
            let why = "there is nothing to change here: GET and HEAD only";
            return refused(StatusCode::MethodNotAllowed, why.to_owned());
        }
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let host = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
    let host = host.map(|field| String::from_utf8_lossy(field.value).trim().to_owned());
    let (path, query) = (path.to_owned(), query.to_owned());
    Some(Head::Of(Request { path, query, host: host.unwrap_or_default() }, method))
}
