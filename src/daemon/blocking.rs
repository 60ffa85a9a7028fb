//! Files that may make a thread wait are read and written on another one than the daemon's own.

/// The result of this work, which is done on another thread.
pub(super) async fn blocking<T: Default + Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    // The work does not panic, and no caller cancels it.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}
