//! The page in a real browser: Debian's Chromium, if it is installed (hack/test does that).
//!
//! `SCREENSHOTS=DIR cargo test --test programs page` also leaves pictures of nodes of several sizes there,
//! for people to look at.

use crate::support::events::{create, local};
use crate::support::observed::{CONFIG, Observed};
use ledger::{Admission, Qos};
use nri_cpu_manager::serve::{endpoint, page};
use nri_cpu_manager::view::status::{NodeStatus, RecordStatus};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use topology::synthetic::{Machine, Numbering};

/// Names that a hostile author of a pod would choose.
const HOSTILE: &str =
    "</svg><script>document.title='harm'</script><img src=x onerror=document.title='harm'>\"'&";

/// What a browser needs at most to do something and end.
const PATIENCE: Duration = Duration::from_secs(60);

fn installed() -> bool {
    let found = Command::new("chromium").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: the page in a browser: chromium is not installed");
    }
    found
}

/// Runs the browser, with a profile of its own, until it is done or has had its time.
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

async fn serve(daemon: &Observed) -> SocketAddr {
    let listener = endpoint::listen("127.0.0.1:0".parse().unwrap()).await.unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(endpoint::serve(listener, daemon.observer.clone()));
    address
}

/// Has the browser ask by way of us: `before` hears of each request before it is passed on, with
/// how many there have been of its path. What the browser said, and all paths.
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
            // A browser may change its mind about what it needs.
            let _ = tokio::io::copy(&mut server, &mut asking).await;
        };
        // The browser opens connections for later, too.
        let _ = tokio::time::timeout(Duration::from_secs(2), pass).await;
    }
}

/// The page follows the node by itself, and no name in it has an effect.
#[tokio::test]
async fn the_page_refreshes_itself() {
    if !installed() {
        return;
    }
    local(async {
        let daemon = Observed::connected(CONFIG).await;
        daemon.create("early", Qos::Guaranteed, 4000).await.unwrap();
        let mut hostile = create("hostile", Qos::Guaranteed, 2000);
        if let Admission::Create { pod, container } = &mut hostile {
            pod.name = HOSTILE.to_owned();
            pod.namespace = HOSTILE.to_owned();
            container.name = HOSTILE.to_owned();
        }
        daemon.event(hostile).await.unwrap();
        let server = serve(&daemon).await;
        // When the browser asks for the third time, something has happened.
        let happens = async |path: &str, times: usize| {
            if (path, times) == ("/fragment", 3) {
                daemon.create("late", Qos::Guaranteed, 3000).await.unwrap();
            }
        };
        let arguments = ["--virtual-time-budget=9000", "--dump-dom"];
        let (output, paths) = browse_watched(server, PATIENCE, &arguments, happens).await;
        let dom = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        println!("{paths:?}");
        let asked = paths.iter().filter(|path| *path == "/fragment").count();
        assert!(asked >= 3, "{paths:?}\n{dom}\n{log}");
        for part in
            ["ns/early/c", ": C ns/late/c</title>", "<p id=\"state\" role=\"status\">live</p>"]
        {
            assert!(dom.contains(part), "{part:?} is not in\n{dom}\n{log}");
        }
        assert!(dom.contains("<title>CPUs of this node</title>"), "{dom}");
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

/// A server of the page that answers twice, and then takes requests and is silent, or ends the
/// connections. The page tells times in seconds from its beginning. What the browser said, and how
/// often it asked.
async fn browse_falling_silent(hangs: bool, time: Duration, arguments: &[&str]) -> (Output, usize) {
    const SECONDS: &str = "const start = Date.now();
        Date.prototype.toLocaleTimeString = function () { return `${Math.round((this - start) / 1000)} s`; };";
    let daemon = Observed::connected(CONFIG).await;
    let status = daemon.status().await;
    let script = page::SCRIPT.replacen("\"use strict\";", SECONDS, 1);
    let contents = Arc::new((page::page(&status), script, page::fragment(&status)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
    arguments.push(format!("http://{}/", listener.local_addr().unwrap()));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = tokio::spawn(async move {
        loop {
            let (mut asking, _) = listener.accept().await.unwrap();
            let (contents, asked) = (Arc::clone(&contents), Arc::clone(&count));
            tokio::spawn(async move {
                let mut head = vec![0; 8192];
                let n = asking.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..n]).into_owned();
                let (media, body) = match head.split(' ').nth(1) {
                    Some("/") => ("text/html", &contents.0),
                    Some("/page.js") => ("text/javascript", &contents.1),
                    Some("/fragment") if asked.fetch_add(1, Ordering::Relaxed) < 2 => {
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
                // A browser may change its mind about what it needs.
                let _ = asking.write_all(answer.as_bytes()).await;
            });
        }
    });
    let output = browse(time, arguments).await;
    server.abort();
    (output, asked.load(Ordering::Relaxed))
}

/// A page without a server does not go on looking alive, and shows its age.
#[tokio::test]
async fn a_page_without_a_server_says_since_when() {
    if !installed() {
        return;
    }
    local(async {
        let arguments = ["--virtual-time-budget=9000", "--dump-dom"];
        let (output, _) = browse_falling_silent(false, PATIENCE, &arguments).await;
        let dom = String::from_utf8_lossy(&output.stdout);
        assert!(dom.contains(">no answer since 2 s, showing the last state<"), "{dom}");
        // The browser's own clock stands still while it waits for an answer, so this takes as long
        // as it takes.
        let (_, asked) =
            browse_falling_silent(true, Duration::from_secs(20), &["--remote-debugging-port=0"])
                .await;
        assert!(asked > 3, "asked {asked} times");
    })
    .await;
}

/// Waits until the status is as it should be.
async fn until(daemon: &Observed, holds: impl Fn(&NodeStatus) -> bool) {
    while !daemon.status().await.node.is_some_and(|node| holds(&node)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A namespace that a configuration names, and a mistake beside it.
const SECRET: &str = "secret-team";

/// A node whose configuration was changed to one that needs a restart, then to one that cannot be
/// used, and whose runtime has come back and not listed its containers.
async fn troubled() -> Observed {
    let daemon = Observed::following(CONFIG).await;
    daemon.create("db", Qos::Guaranteed, 4000).await.unwrap();
    daemon.swap_config(&format!("{CONFIG}strict: true\n"));
    until(&daemon, |node| !node.config_source.waiting_for_restart.is_empty()).await;
    let tie = format!("namespaces:\n- names: [{SECRET}]\n- names: [{SECRET}]\n");
    daemon.swap_config(&format!("{CONFIG}{tie}"));
    until(&daemon, |node| node.config_source.state == "rejected").await;
    daemon.introduce(2).await;
    daemon
}

/// What a person should see to stands at the top, by a word and a sign.
#[tokio::test]
async fn notices_are_at_the_top() {
    local(async {
        let well = Observed::connected(CONFIG).await.status().await;
        assert!(!page::fragment(&well).contains("notices"), "{}", page::fragment(&well));

        let mut status = troubled().await.status().await;
        let node = status.node.as_mut().unwrap();
        (node.drifting, node.stance) = (1, "observe".to_owned());
        let of_db = |kind: &str, text: &str| RecordStatus {
            at: "2026-05-01T00:00:00Z".to_owned(),
            namespace: "ns".to_owned(),
            pod: "db".to_owned(),
            container: "c".to_owned(),
            kind: kind.to_owned(),
            text: text.to_owned(),
        };
        node.troubles.push(of_db("drifted", "decided CPUs 2-5, but <others>"));
        let html = page::fragment(&status);
        let start = "<ul class=\"notices\" aria-label=\"Notices\"><li class=\"error\"><b>\
                     <span aria-hidden=\"true\">✗</span> Not ready:</b> the runtime has not listed its containers yet";
        assert!(html.starts_with(start), "{html}");
        let fault = "config.yaml, line 5: namespaces[0]: &quot;secret-team&quot; and";
        for part in [
            "▲</span> Configuration rejected:</b> the last valid configuration stays in force: ",
            fault,
            "▲</span> Restart needed:</b> restart the plugin to apply strict<",
            "▲</span> Observing only:</b> the kubelet&#39;s own CPU manager is active",
            "<h2>Recent drifts and other troubles</h2><ul><li><time>2026-05-01T00:00:00Z</time> <b>ns/db/c</b>: \
             decided CPUs 2-5, but &lt;others&gt;</li>",
            "▲</span> Drift:</b> 1 container not as decided",
        ] {
            assert!(html.contains(part), "{part:?} is not in\n{html}");
        }
        assert!(!page::fragment(&status.clone().without_names()).contains("ns/db"));
        // Not ready is worse than the rest.
        assert_eq!(html.matches("<li class=\"error\">").count(), 1, "{html}");
    })
    .await;
}

/// A client that may not see the pods' names does not get them from a fault of the configuration.
#[tokio::test]
async fn notices_name_nothing_to_others() {
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
            let part =
                "Configuration rejected:</b> the file is invalid in line 5; the last valid configuration";
            assert!(elsewhere.contains(part), "{path}: {elsewhere}");
        }
        // Without a configuration, what is in the way can quote the one that was refused.
        let mut status = daemon.status().await;
        (status.node, status.obstacles) =
            (None, vec!["not connected".to_owned(), SECRET.to_owned()]);
        assert!(page::fragment(&status).contains(SECRET));
        let html = page::fragment(&status.without_names());
        assert!(html.contains("not connected") && !html.contains(SECRET), "{html}");
    })
    .await;
}

/// A browser without scripts loads the whole page anew every few seconds.
#[tokio::test]
async fn without_scripts() {
    if !installed() {
        return;
    }
    local(async {
        let daemon = Observed::connected(CONFIG).await;
        let server = serve(&daemon).await;
        // A browser without scripts takes no command to end: it stays until its time is over.
        let arguments = ["--blink-settings=scriptEnabled=false", "--remote-debugging-port=0"];
        let time = Duration::from_secs(20);
        let (_, paths) = browse_watched(server, time, &arguments, async |_, _| {}).await;
        println!("{paths:?}");
        assert!(paths.iter().filter(|path| *path == "/").count() >= 2, "{paths:?}");
        assert!(!paths.iter().any(|path| path == "/fragment"), "a script ran: {paths:?}");
    })
    .await;
}

/// Not a test: pictures for people.
#[tokio::test]
async fn screenshots() {
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
            75,
        ),
    ];
    local(async {
        for (name, machine, pods) in machines {
            let more = "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}\n";
            let config = CONFIG.replace("\"0-1\"", "\"0\"") + more;
            let daemon = Observed::connected_on(&machine, &config).await;
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
            let svg = page::picture(&daemon.status().await);
            std::fs::write(into.join(format!("{name}.svg")), svg.unwrap()).unwrap();
        }
        shoot(&troubled().await, into, "notices").await;
    })
    .await;
}

/// The page of a node as a light and as a dark picture.
async fn shoot(daemon: &Observed, into: &Path, name: &str) {
    let address = serve(daemon).await;
    for (scheme, setting) in [("light", 1), ("dark", 0)] {
        let shot = into.join(format!("{name}-{scheme}.png"));
        let output = browse(
            PATIENCE,
            vec![
                format!("--blink-settings=preferredColorScheme={setting}"),
                "--window-size=1366,1400".into(),
                "--virtual-time-budget=3000".into(),
                format!("--screenshot={}", shot.display()),
                format!("http://{address}/"),
            ],
        )
        .await;
        assert!(shot.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
