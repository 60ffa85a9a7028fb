//! Prints the runtime's calls about pods and containers: `logger [SOCKET]`.

use nri::{Answer, Call, CallError, Endpoint, Identity, Plugin};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};

struct Logger;

impl Plugin for Logger {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let pod = call.pod().map_or("", |pod| &pod.name);
        let container = call.container().map_or("", |container| &container.name);
        println!("{} {pod} {container}", call.name());
        Ok(Answer::default())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::env::args().nth(1).unwrap_or_else(|| nri::DEFAULT_SOCKET.to_owned());
    let mut term = signal(SignalKind::terminate())?;
    let stop = async {
        tokio::select! { _ = term.recv() => {}, _ = ctrl_c() => {} }
    };
    let identity = Identity::new("logger", "10")?;
    nri::run(Endpoint::Socket(socket.into()), &identity, |_| Logger, stop).await?;
    Ok(())
}
