//! [`blocking`]: file access that may block, off the daemon's own thread.

/// Does `work` on another thread.
pub(super) async fn blocking<T: Default + Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    // The work does not panic, and no caller cancels it.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}
