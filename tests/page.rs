//! The page in a real browser: Debian's Chromium, if it is installed (hack/test does that).
//!
//! `SCREENSHOTS=DIR cargo test --test page` also leaves pictures of nodes of several sizes there, for people to look at.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/fake_sysfs.rs"]
mod fake_sysfs;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "support/observed.rs"]
mod observed;

use nri_cpu_manager::ledger::{Event, Qos};
use nri_cpu_manager::observe::endpoint;
use nri_cpu_manager::topology::synthetic::{Machine, Numbering};
use observed::{CONFIG, Observed, create, local};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Names that a pod's author would choose who wants to do harm.
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

/// Has the browser ask by way of us: `before` hears of each request before it is passed on, with how many there have been
/// of its path. What the browser said, and all paths.
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

/// The page follows the node by itself, and nobody's name does anything to it.
#[tokio::test]
async fn the_page_refreshes_itself() {
    if !installed() {
        return;
    }
    local(async {
        let daemon = Observed::connected(CONFIG).await;
        daemon.create("early", Qos::Guaranteed, 4000).await.unwrap();
        let mut hostile = create("hostile", Qos::Guaranteed, 2000);
        if let Event::Create { pod, container } = &mut hostile {
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

/// Somebody who lets no scripts run has the whole page anew every few seconds.
#[tokio::test]
async fn without_scripts() {
    if !installed() {
        return;
    }
    local(async {
        let daemon = Observed::connected(CONFIG).await;
        let server = serve(&daemon).await;
        // Without scripts a browser cannot be told to do something and end: it stays until its time is over.
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
            let address = serve(&daemon).await;
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
            let svg =
                nri_cpu_manager::observe::page::picture(&daemon.observer.status().await.unwrap());
            std::fs::write(into.join(format!("{name}.svg")), svg.unwrap()).unwrap();
        }
    })
    .await;
}
