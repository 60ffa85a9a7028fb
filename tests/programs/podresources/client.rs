//! A gRPC client.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request};
use std::path::Path;
use tokio::net::UnixStream;

pub(crate) const LIST: &str = "/v1.PodResourcesLister/List";
pub(crate) const GET: &str = "/v1.PodResourcesLister/Get";
pub(crate) const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// A message, or the code and the text of the status.
pub(crate) type Answer = Result<Vec<u8>, (u32, String)>;

pub(crate) struct Client(SendRequest<Bytes>);

impl Client {
    pub(crate) async fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        Client(sender)
    }

    pub(crate) async fn call(&mut self, path: &str, message: &[u8]) -> Answer {
        let length = (message.len() as u32).to_be_bytes();
        self.send(path, [&[0], &length[..], message].concat()).await.unwrap()
    }

    /// Sends any bytes as the body of a request.
    pub(crate) async fn send(&mut self, path: &str, body: Vec<u8>) -> Result<Answer, h2::Error> {
        let request = Request::builder().method(Method::POST);
        let request = request.uri(format!("http://localhost{path}"));
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let mut sender = self.0.clone().ready().await?;
        let (response, mut stream) = sender.send_request(request, false)?;
        stream.send_data(body.into(), true)?;
        let (head, mut body) = response.await?.into_parts();
        assert_eq!(head.headers["content-type"], "application/grpc");
        if let Some(status) = status(&head.headers) {
            return Ok(Err(status));
        }
        let mut message = Vec::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len()).unwrap();
            message.extend_from_slice(&data);
        }
        let trailers = body.trailers().await?.unwrap();
        assert_eq!(status(&trailers), Some((0, String::new())));
        let (head, message) = message.split_at(5);
        assert_eq!(head, [&[0][..], &(message.len() as u32).to_be_bytes()].concat());
        Ok(Ok(message.to_vec()))
    }
}

fn status(fields: &HeaderMap) -> Option<(u32, String)> {
    let code = fields.get("grpc-status")?.to_str().unwrap().parse().unwrap();
    let message = fields.get("grpc-message").map(|text| text.to_str().unwrap());
    Some((code, message.unwrap_or_default().to_owned()))
}

/// Makes one call on a new connection.
pub(crate) async fn call(socket: &Path, path: &str, message: &[u8]) -> Answer {
    Client::connect(socket).await.call(path, message).await
}
