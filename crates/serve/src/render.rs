//! [`Renderer`]: makes answers of a view, on a thread of the least priority. A page takes a tenth of a second.
//!
//! It makes one at a time, and each kind once a second, however many clients ask.

use super::http::{Response, StatusCode};
use super::page::{self, Reader};
use super::question::{DryRun, ViewSource};
use serde::Serialize;
use state::clock::now;
use state::worker::Worker;
use status::outline::Outline;
use status::outlook::Change;
use status::{NodeView, Snapshot, metrics};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long clients share an answer.
pub(crate) const SHARED: Duration = Duration::from_secs(1);
/// How many clients may wait in the queue; others wait for a place in it.
const QUEUE: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Metrics,
    Page {
        names: bool,
    },
    Fragment {
        names: bool,
    },
    Picture {
        names: bool,
    },
    Status,
    /// What the query selects.
    Explain(String),
}

/// Clones share the answers.
#[derive(Debug, Clone)]
pub(super) struct Renderer(mpsc::Sender<Wanted>);

#[derive(Debug)]
struct Wanted {
    answer: Answer,
    reply: oneshot::Sender<Response>,
}

#[derive(Debug)]
enum Answer {
    Show {
        what: What,
        /// Whether an answer that is not older than [`SHARED`] will do.
        may_share: bool,
    },
    Try(Change),
}

impl Renderer {
    pub(super) fn start(source: ViewSource, worker: Worker) -> Renderer {
        let (ask, wanted) = mpsc::channel(QUEUE);
        tokio::spawn(render_each(wanted, source, worker));
        Renderer(ask)
    }

    pub(super) async fn render(&self, what: What, may_share: bool) -> Response {
        self.answer(Answer::Show { what, may_share }).await
    }

    /// What this change would do.
    pub(super) async fn try_out(&self, change: Change) -> Response {
        self.answer(Answer::Try(change)).await
    }

    async fn answer(&self, answer: Answer) -> Response {
        let (reply, response) = oneshot::channel();
        let _ = self.0.send(Wanted { answer, reply }).await;
        response.await.unwrap_or_else(|_| unavailable("the plugin is stopping"))
    }
}

/// Until the last [`Renderer`] is dropped.
async fn render_each(mut wanted: mpsc::Receiver<Wanted>, source: ViewSource, worker: Worker) {
    let mut recent: Vec<(What, Instant, Response)> = Vec::new();
    while let Some(Wanted { answer, reply }) = wanted.recv().await {
        // The client may have gone while others were served.
        if reply.is_closed() {
            continue;
        }
        let (what, may_share) = match answer {
            Answer::Show { what, may_share } => (what, may_share),
            Answer::Try(change) => {
                let _ = reply.send(try_out(change, &source, &worker).await);
                continue;
            }
        };
        recent.retain(|(_, made, _)| made.elapsed() < SHARED);
        let shared = recent.iter().find(|(made_of, ..)| may_share && *made_of == what);
        let response = match shared {
            Some((_, _, response)) => response.clone(),
            None => {
                let response = render(what.clone(), &source, &worker).await;
                if may_share {
                    // From now: clients that have waited for it share it, however long it took.
                    recent.push((what, Instant::now(), response.clone()));
                }
                response
            }
        };
        let _ = reply.send(response);
    }
}

async fn render(what: What, source: &ViewSource, worker: &Worker) -> Response {
    let view = match source.view().await {
        Ok(view) => view,
        Err(why) => return unavailable(&why.to_string()),
    };
    made_by(worker, move || what.of(&view)).await
}

async fn try_out(change: Change, source: &ViewSource, worker: &Worker) -> Response {
    let dry_run = match source.dry_run().await {
        Ok(Ok(DryRun(answer))) => answer,
        Ok(Err(why)) => return unavailable(&why),
        Err(why) => return unavailable(&why.to_string()),
    };
    let answer = move || match dry_run(&change) {
        Ok(outlook) => json(&outlook),
        Err(why) => Response::text(StatusCode::BadRequest, why),
    };
    made_by(worker, answer).await
}

async fn made_by(worker: &Worker, make: impl FnOnce() -> Response + Send + 'static) -> Response {
    let (made, response) = oneshot::channel();
    worker.give(move || {
        // The client may have gone.
        let _ = made.send(make());
    });
    response.await.unwrap_or_else(|_| unavailable("the thread that makes pages is busy"))
}

impl What {
    fn of(&self, view: &NodeView) -> Response {
        let snapshot = || view.snapshot(now());
        match self {
            What::Metrics => Response::ok(metrics::MEDIA_TYPE, metrics::text(&snapshot())),
            What::Page { names } => html(shown(&snapshot(), *names, page::page)),
            What::Fragment { names } => html(shown(&snapshot(), *names, page::fragment)),
            What::Picture { names } => match shown(&snapshot(), *names, page::picture) {
                Ok(picture) => Response::ok("image/svg+xml", picture),
                Err(why) => unavailable(&why),
            },
            What::Status => json(&snapshot()),
            What::Explain(query) => json(&view.explain(query)),
        }
    }
}

/// `names`: whether the reader may see what runs on the node.
fn shown<T>(snapshot: &Snapshot, names: bool, show: impl FnOnce(Reader<'_>) -> T) -> T {
    if names {
        show(Reader::Entitled(snapshot))
    } else {
        show(Reader::Stranger(&Outline::of(snapshot)))
    }
}

fn html(text: String) -> Response {
    Response::ok("text/html; charset=utf-8", text)
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => Response::ok("application/json", body),
        Err(error) => Response::text(StatusCode::Internal, error.to_string()),
    }
}

fn unavailable(why: &str) -> Response {
    Response::text(StatusCode::Unavailable, why)
}
