//! The page in a real browser: Debian's Chromium, if it is installed (hack/test does that).
//!
//! `SCREENSHOTS=DIR cargo test --test programs page` also saves screenshots of nodes of several
//! sizes.

use crate::support::events::{local, pod_and_container};
use crate::support::observed::{CONFIG, ObservedDaemon};
use ledger::{Admission, Qos, Stance};
use machines::synthetic::{Machine, Numbering};
use serde::de::DeserializeOwned;
use serve::endpoint;
use serve::page::{self, Reader};
use status::facts::Fact;
use status::outline::Outline;
use status::snapshot::{Node, Record};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Names that a hostile author of a pod would choose.
const HOSTILE: &str =
    "</svg><script>document.title='harm'</script><img src=x onerror=document.title='harm'>\"'&";

/// The longest time that a browser needs to load a page and exit.
const PATIENCE: Duration = Duration::from_secs(60);

fn installed() -> bool {
    let is_installed =
        Command::new("chromium").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_installed {
        println!("skipped: the page in a browser: chromium is not installed");
    }
    is_installed
}

/// Runs the browser with a new profile until it exits, or for this time.
async fn browse(time: Duration, arguments: Vec<String>) -> Output {
    let run = tokio::task::spawn_blocking(move || {
        let profile = tempfile::tempdir().unwrap();
        Command::new("timeout")
            .arg(time.as_secs().to_string())
            .args(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(arguments)
            .output()
            .unwrap()
    });
    run.await.unwrap()
}

async fn serve(daemon: &ObservedDaemon) -> SocketAddr {
    let listener = endpoint::listen("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(endpoint::serve(listener, daemon.observer.clone(), daemon.pages.clone()));
    address
}

/// Runs the browser with a proxy before the server. The proxy calls `before` with the path of each
/// request and the number of requests for it so far. Returns the browser's output, and all paths.
async fn browse_watched(
    server: SocketAddr,
    time: Duration,
    arguments: &[&str],
    mut before: impl AsyncFnMut(&str, usize),
) -> (Output, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    arguments.push(format!("http://{}/", listener.local_addr().unwrap()));
    let browser = browse(time, arguments);
    tokio::pin!(browser);
    let mut paths: Vec<String> = Vec::new();
    loop {
        let mut asking = tokio::select! {
            output = &mut browser => return (output, paths),
            accepted = listener.accept() => accepted.unwrap().0,
        };
        let pass = async {
            let mut head = vec![0; 8192];
            let n = asking.read(&mut head).await.unwrap();
            head.truncate(n);
            let text = String::from_utf8_lossy(&head);
            let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
            paths.push(path.clone());
            before(&path, paths.iter().filter(|other| **other == path).count()).await;
            let mut server = TcpStream::connect(server).await.unwrap();
            server.write_all(&head).await.unwrap();
            // The browser may have closed the connection.
            let _ = tokio::io::copy(&mut server, &mut asking).await;
        };
        // The browser also opens connections on which it sends nothing.
        let _ = tokio::time::timeout(Duration::from_secs(2), pass).await;
    }
}

#[tokio::test]
async fn the_page_follows_the_node_and_runs_no_script_from_names() {
    if !installed() {
        return;
    }
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        daemon.create("early", Qos::Guaranteed, 4000).await.unwrap();
        let (mut pod, mut container) = pod_and_container("hostile", Qos::Guaranteed, 2000);
        pod.name = HOSTILE.to_owned();
        pod.namespace = HOSTILE.to_owned();
        container.name = HOSTILE.to_owned();
        daemon.event(Admission::Create { pod, container }).await.unwrap();
        let server = serve(&daemon).await;
        // A container starts before the browser's third request, which shares no earlier answer.
        let start_late = async |path: &str, times: usize| {
            if (path, times) == ("/fragment", 3) {
                daemon.create("late", Qos::Guaranteed, 3000).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1100)).await;
            }
        };
        let arguments = ["--virtual-time-budget=9000", "--dump-dom"];
        let (output, paths) = browse_watched(server, PATIENCE, &arguments, start_late).await;
        let dom = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        println!("{paths:?}");
        let requests = paths.iter().filter(|path| *path == "/fragment").count();
        assert!(requests >= 3, "{paths:?}\n{dom}\n{log}");
        for part in
            ["ns/early/c", ": C ns/late/c</title>", "<p id=\"state\" role=\"status\">live</p>"]
        {
            assert!(dom.contains(part), "{part:?} is not in\n{dom}\n{log}");
        }
        assert!(dom.contains("<title>CPUs of node node</title>"), "{dom}");
        assert!(!dom.contains("<img") && dom.matches("<script").count() == 1, "{dom}");
        for complaint in ["Content Security Policy", "Uncaught", "Failed to load"] {
            assert!(!log.contains(complaint), "{log}");
        }
        let elsewhere: Vec<&String> = paths
            .iter()
            .filter(|path| !["/", "/fragment", "/page.js", "/icon.svg"].contains(&path.as_str()))
            .collect();
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
    })
    .await;
}

/// Runs the browser with a server that answers two requests for the fragment, and then either hangs
/// or closes the connections. The page shows times in seconds since its start. Returns the
/// browser's output, and the number of its requests for the fragment.
async fn browse_failing_server(hangs: bool, time: Duration, arguments: &[&str]) -> (Output, usize) {
    const SECONDS: &str = "const start = Date.now();
        Date.prototype.toLocaleTimeString = function () { return `${Math.round((this - start) / 1000)} s`; };";
    let daemon = ObservedDaemon::connected(CONFIG).await;
    let status = daemon.status().await;
    let script = page::SCRIPT.replacen("\"use strict\";", SECONDS, 1);
    let reader = Reader::Entitled(&status);
    let contents = Arc::new((page::page(reader), script, page::fragment(reader)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    arguments.push(format!("http://{}/", listener.local_addr().unwrap()));
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let server = tokio::spawn(async move {
        loop {
            let (mut asking, _) = listener.accept().await.unwrap();
            let contents = Arc::clone(&contents);
            let requests = Arc::clone(&count);
            tokio::spawn(async move {
                let mut head = vec![0; 8192];
                let n = asking.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..n]).into_owned();
                let (media, body) = match head.split(' ').nth(1) {
                    Some("/") => ("text/html", &contents.0),
                    Some("/page.js") => ("text/javascript", &contents.1),
                    Some("/fragment") if requests.fetch_add(1, Ordering::Relaxed) < 2 => {
                        ("text/html", &contents.2)
                    }
                    Some("/fragment") if hangs => return std::future::pending().await,
                    _ => return,
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {media}; charset=utf-8\r\n\
                     Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                );
                // The browser may have closed the connection.
                let _ = asking.write_all(answer.as_bytes()).await;
            });
        }
    });
    let output = browse(time, arguments).await;
    server.abort();
    (output, requests.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_page_without_a_server_shows_its_age_and_keeps_asking() {
    if !installed() {
        return;
    }
    local(async {
        let arguments = ["--virtual-time-budget=9000", "--dump-dom"];
        let (output, _) = browse_failing_server(false, PATIENCE, &arguments).await;
        let dom = String::from_utf8_lossy(&output.stdout);
        let says = |seconds| format!(">no answer since {seconds} s, showing the last state<");
        assert!([2, 3].iter().any(|seconds| dom.contains(&says(*seconds))), "{dom}");
        // The browser's virtual clock stops while it waits for an answer, so this takes real time.
        let (_, requests) =
            browse_failing_server(true, Duration::from_secs(20), &["--remote-debugging-port=0"])
                .await;
        assert!(requests > 3, "{requests} requests");
    })
    .await;
}

fn moment<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_value(text.into()).unwrap()
}

/// Waits for a status for which this holds.
async fn until(daemon: &ObservedDaemon, holds: impl Fn(&Node) -> bool) {
    while !daemon.status().await.node.is_some_and(|node| holds(&node)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What holds for the node, and since when each container has its CPUs.
#[tokio::test]
async fn the_page_shows_mechanism_engine_budget_and_ages() {
    local(async {
        let moves = "rebalance: {movesPer100Starts: 10}\nplacement: compact\n";
        let daemon = ObservedDaemon::connected(&format!("{CONFIG}{moves}")).await;
        daemon.create("db", Qos::Guaranteed, 4000).await.unwrap();
        let mut status = daemon.status().await;
        let now = status.at;
        status.node.as_mut().unwrap().containers[0].since = Some(now);
        let html = page::page(Reader::Entitled(&status));
        for part in [
            "<h1>CPUs of node node</h1>",
            "<dt>Exclusivity</dt><dd>runtime</dd>",
            "<dt>Placement</dt><dd>compact</dd>",
            "budget: 2 of 2 moves left",
            "<dt>Reserved</dt><dd>0-1</dd>",
            "<dt>Settings since</dt><dd>20",
            &format!(
                "<td>runtime</td><td><time datetime=\"{now}\" title=\"{now}\">under 2m</time></td>"
            ),
        ] {
            assert!(html.contains(part), "{part:?} is not in\n{html}");
        }
        status.at = moment("2026-11-28T12:00:00Z");
        for (since, age) in [
            ("2026-11-28T11:57:00Z", "3m"),
            ("2026-11-28T09:30:00Z", "2h"),
            ("2026-11-08T12:00:00Z", "20d"),
            ("2027-01-01T00:00:00Z", "under 2m"),
        ] {
            status.node.as_mut().unwrap().containers[0].since = Some(moment(since));
            let html = page::fragment(Reader::Entitled(&status));
            assert!(html.contains(&format!(">{age}</time>")), "{since}: {html}");
        }
        status.node_name = None;
        assert!(page::page(Reader::Entitled(&status)).contains("<title>CPUs of this node</title>"));
        status.node_name = Some("<b>".to_owned());
        assert!(
            page::page(Reader::Entitled(&status)).contains("<title>CPUs of node &lt;b&gt;</title>")
        );
    })
    .await;
}

/// A namespace in an invalid configuration.
const SECRET: &str = "secret-team";

/// A node whose configuration was changed to one that needs a restart, then to an invalid one. Its
/// runtime has reconnected and not listed its containers.
async fn troubled() -> ObservedDaemon {
    let daemon = ObservedDaemon::following(CONFIG).await;
    daemon.create("db", Qos::Guaranteed, 4000).await.unwrap();
    daemon.swap_config(&format!("{CONFIG}strict: true\n"));
    until(&daemon, |node| !node.parts.config_source.waiting.is_empty()).await;
    let tie = format!("namespaces:\n- names: [{SECRET}]\n- names: [{SECRET}]\n");
    daemon.swap_config(&format!("{CONFIG}{tie}"));
    until(&daemon, |node| node.parts.config_source.fault.is_some()).await;
    daemon.connect_runtime(2).await;
    daemon
}

/// Each has a sign and a word.
#[tokio::test]
async fn notices_are_at_the_top() {
    local(async {
        let config = format!("{CONFIG}exclusivity: runtime\n");
        let well = ObservedDaemon::connected(&config).await.status().await;
        let html = page::fragment(Reader::Entitled(&well));
        assert!(!html.contains("notices"), "{html}");

        let mut status = troubled().await.status().await;
        let node = status.node.as_mut().unwrap();
        node.parts.drift.drifting = 1;
        node.figures.stance = Stance::Observe;
        let of_db = |kind: &str, text: &str| Record {
            at: moment("2026-05-01T00:00:00Z"),
            namespace: "ns".to_owned(),
            pod: "db".to_owned(),
            container: "c".to_owned(),
            kind: kind.to_owned(),
            text: text.to_owned(),
            settled: false,
        };
        node.troubles.push(of_db("drifted", "should have CPUs 2-5, but <others>"));
        let html = page::fragment(Reader::Entitled(&status));
        let start = "<ul class=\"notices\" aria-label=\"Notices\"><li class=\"error\"><b>\
                     <span aria-hidden=\"true\">✗</span> Not ready, runtime:</b> the runtime has not listed its containers yet";
        assert!(html.starts_with(start), "{html}");
        let fault = "config.yaml, line 5: namespaces[0]: &quot;secret-team&quot; and";
        for part in [
            "▲</span> Warning, config:</b> configuration rejected, the last good one stays in force: ",
            fault,
            "▲</span> Warning, config:</b> configuration changed, restart the plugin to apply strict<",
            "▲</span> Warning, stance:</b> mode: observe: the plugin changes nothing",
            "<h2>Recent drifts and other troubles</h2><ul><li><b>ns/<wbr>db/<wbr>c</b>: \
             should have CPUs 2-5, but &lt;others&gt; <time datetime=\"2026-05-01T00:00:00Z\"",
            "▲</span> Warning, drifting:</b> 1 container not as decided",
        ] {
            assert!(html.contains(part), "{part:?} is not in\n{html}");
        }
        let outline = Outline::of(&status);
        let stranger = page::fragment(Reader::Stranger(&outline));
        assert!(!stranger.contains("ns/") && !stranger.contains("notices"), "{stranger}");
        // Only "Not ready" is an error.
        assert_eq!(html.matches("<li class=\"error\">").count(), 1, "{html}");
    })
    .await;
}

/// A client that may not see the pods' names does not get them from an error in the configuration.
#[tokio::test]
async fn notices_hide_names_from_clients_that_are_not_local() {
    local(async {
        let daemon = troubled().await;
        let server = serve(&daemon).await;
        let get = async |path: &str, host: &str| {
            let mut stream = TcpStream::connect(server).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        for path in ["/", "/fragment"] {
            let nearby = get(path, "localhost").await;
            assert!(nearby.contains(SECRET), "{path}: {nearby}");
            let elsewhere = get(path, "rebound.example").await;
            assert!(!elsewhere.contains(SECRET), "{path}: {elsewhere}");
            assert!(elsewhere.contains("<dt>Ready</dt><dd><b class=\"bad\">no</b>"), "{elsewhere}");
        }
        // Without a valid configuration, the obstacles can quote the rejected one.
        let mut status = daemon.status().await;
        status.node = None;
        status.health.0.push(Fact { value: SECRET.to_owned(), ..status.health.0[0].clone() });
        assert!(page::fragment(Reader::Entitled(&status)).contains(SECRET));
        let html = page::page(Reader::Stranger(&Outline::of(&status)));
        assert!(html.contains("<b class=\"bad\">no</b>") && !html.contains(SECRET), "{html}");
    })
    .await;
}

#[tokio::test]
async fn the_whole_page_is_reloaded_in_a_browser_without_scripts() {
    if !installed() {
        return;
    }
    local(async {
        let daemon = ObservedDaemon::connected(CONFIG).await;
        let server = serve(&daemon).await;
        // A browser without scripts cannot be made to exit: it runs until its time is over.
        let arguments = ["--blink-settings=scriptEnabled=false", "--remote-debugging-port=0"];
        let time = Duration::from_secs(20);
        let (_, paths) = browse_watched(server, time, &arguments, async |_, _| {}).await;
        println!("{paths:?}");
        assert!(paths.iter().filter(|path| *path == "/").count() >= 2, "{paths:?}");
        assert!(!paths.iter().any(|path| path == "/fragment"), "a script ran: {paths:?}");
    })
    .await;
}

/// Not a test: the screenshots are for review by people.
#[tokio::test]
async fn screenshots_are_saved_on_request() {
    let Some(into) = std::env::var_os("SCREENSHOTS").filter(|_| installed()) else { return };
    let into = Path::new(&into);
    std::fs::create_dir_all(into).unwrap();
    let interleaved = Numbering::Interleaved;
    let machines = [
        ("2", Machine { cores: 2, ..Machine::default() }, 1),
        ("32", Machine { caches: 4, cores: 32, ..Machine::default() }, 4),
        (
            "hybrid",
            Machine {
                cores: 16,
                threads: 2,
                efficient: 8,
                offline: "3".parse().unwrap(),
                memory_only: 1,
                ..Machine::default()
            },
            3,
        ),
        (
            "snc",
            Machine {
                sockets: 2,
                nodes: 2,
                cores: 16,
                threads: 2,
                numbering: interleaved,
                ..Machine::default()
            },
            9,
        ),
        (
            "384",
            Machine {
                sockets: 2,
                caches: 12,
                cores: 96,
                threads: 2,
                numbering: interleaved,
                ..Machine::default()
            },
            40,
        ),
        (
            "512",
            Machine {
                sockets: 2,
                nodes: 4,
                caches: 16,
                cores: 128,
                threads: 2,
                numbering: interleaved,
                ..Machine::default()
            },
            90,
        ),
    ];
    local(async {
        for (name, machine, pods) in machines {
            let more = "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n";
            let config = CONFIG.replace("\"0-1\"", "\"0\"") + more;
            let daemon = ObservedDaemon::connected_on(&machine, &config).await;
            daemon.create("web", Qos::Burstable, 500).await.unwrap();
            let sizes = [8, 4, 2, 6, 16, 1, 3, 12, 2, 4];
            for (pod, size) in (0..pods).zip(sizes.into_iter().cycle()) {
                let size = if pods < 4 { size.min(2) } else { size };
                let size = if pods == 1 { 1 } else { size };
                let _ =
                    daemon.create(&format!("inference-{pod}"), Qos::Guaranteed, size * 1000).await;
            }
            let _ = daemon.create("too-large", Qos::Guaranteed, 600_000).await;
            shoot(&daemon, into, name).await;
            let svg = page::picture(Reader::Entitled(&daemon.status().await));
            std::fs::write(into.join(format!("{name}.svg")), svg.unwrap()).unwrap();
        }
        shoot(&troubled().await, into, "notices").await;
    })
    .await;
}

/// Saves a light and a dark screenshot of a node's page, and one of a narrow screen.
async fn shoot(daemon: &ObservedDaemon, into: &Path, name: &str) {
    let address = serve(daemon).await;
    for (scheme, setting, size) in
        [("light", 1, "1500,1400"), ("dark", 0, "1500,1400"), ("narrow", 1, "400,1400")]
    {
        let shot = into.join(format!("{name}-{scheme}.png"));
        let output = browse(
            PATIENCE,
            vec![
                format!("--blink-settings=preferredColorScheme={setting}"),
                format!("--window-size={size}"),
                "--virtual-time-budget=3000".into(),
                format!("--screenshot={}", shot.display()),
                format!("http://{address}/"),
            ],
        )
        .await;
        assert!(shot.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
