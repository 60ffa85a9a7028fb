//! podresources as another program sees them: what gRPC's own library reads from the plugin's
//! socket, and what `status` says at that time.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::command::{command, run};
use crate::files;
use crate::plugin::PluginFiles;

/// In the plugin's state directory, as in the overlay `podresources`.
const DIRECTORY: &str = "pod-resources";

/// It prints a line for each call.
const CLIENT: &str = include_str!("../../tests/clients/podresources.py");

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodResources {
    /// What the client printed.
    pub answers: String,
    /// The KubeletConfiguration beside the socket.
    pub policy: String,
    /// `nri-cpu-manager status --output json`.
    pub status: String,
}

/// What a client sends as `:authority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authority {
    /// What its library chooses.
    Default,
    /// The path of the socket, as newer versions of that library choose.
    Path,
}

impl PodResources {
    /// Needs Python with grpcio. `pod`, in the namespace `default`, is the one that `Get` asks for.
    pub fn ask(
        files: &PluginFiles,
        program: &Path,
        pod: &str,
        authority: Authority,
    ) -> Result<Self> {
        let directory = files.state().join(DIRECTORY);
        let socket = directory.join("kubelet.sock");
        let mut client = command("python3", ["-c", CLIENT]);
        client.arg(&socket).args(["default", pod]);
        if authority == Authority::Path {
            client.arg(&socket);
        }
        let answers = run(&mut client)?;
        let policy = files::read(&directory.join("config.yaml"))?;
        Ok(Self { answers, policy, status: files.status_as_json(program)? })
    }
}
