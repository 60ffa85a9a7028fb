//! A kubelet's podresources with prepared answers.

use http::{HeaderMap, Response};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::task::AbortHandle;

/// Ends when dropped.
pub(crate) struct Kubelet(AbortHandle);

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A message or a gRPC status by method.
pub(crate) type Answers = BTreeMap<&'static str, Result<Vec<u8>, (u32, &'static str)>>;

impl Kubelet {
    pub(crate) fn start(socket: &Path, answers: Answers) -> Kubelet {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let answers = Arc::new(answers);
        let serving = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let answers = Arc::clone(&answers);
                tokio::spawn(async move { drop(connection(stream, &answers).await) });
            }
        };
        Kubelet(tokio::spawn(serving).abort_handle())
    }

    /// Accepts connections and never answers.
    pub(crate) fn silent(socket: &Path) -> Kubelet {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let serving = async move {
            let mut streams = Vec::new();
            loop {
                streams.push(listener.accept().await.unwrap());
            }
        };
        Kubelet(tokio::spawn(serving).abort_handle())
    }
}

async fn connection(stream: tokio::net::UnixStream, answers: &Answers) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, mut respond) = call?;
        let path = request.uri().path();
        let answer = answers.get(path).cloned().unwrap_or(Err((12, "unknown")));
        let mut head = Response::new(());
        head.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        match answer {
            Ok(message) => {
                let length = (message.len() as u32).to_be_bytes();
                let mut body = respond.send_response(head, false)?;
                body.send_data([&[0], &length[..], &message].concat().into(), false)?;
                body.send_trailers(status(0, ""))?;
            }
            Err((code, text)) => {
                head.headers_mut().extend(status(code, text));
                respond.send_response(head, true)?;
            }
        }
    }
    Ok(())
}

fn status(code: u32, text: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", code.into());
    fields.insert("grpc-message", text.parse().unwrap());
    fields
}
