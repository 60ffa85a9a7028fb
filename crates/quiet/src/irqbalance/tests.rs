use super::*;
use kernel::Linux;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::PassCred};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// irqbalance's side of the socket, as in its `sock_handle`. A list counts after [`Daemon::scan`].
struct Daemon {
    directory: TempDir,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    banned: CpuSet,
    received: Option<CpuSet>,
    messages: Vec<String>,
}

impl Daemon {
    fn start(banned: &str) -> Daemon {
        let daemon = Daemon { directory: tempfile::tempdir().unwrap(), shared: Arc::default() };
        daemon.shared.lock().unwrap().banned = banned.parse().unwrap();
        daemon.listen(7);
        daemon
    }

    fn listen(&self, process: u32) {
        let path = self.directory.path().join(format!("irqbalance{process}.sock"));
        let listener = UnixListener::bind(path).unwrap();
        setsockopt(&listener, PassCred, &true).unwrap();
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(&mut stream.unwrap(), &mut shared.lock().unwrap());
            }
        });
    }

    fn scan(&self) {
        let mut shared = self.shared.lock().unwrap();
        if let Some(received) = shared.received.take() {
            shared.banned = received;
        }
    }

    fn settings(&self) -> Vec<String> {
        let mut shared = self.shared.lock().unwrap();
        shared.messages.drain(..).filter(|message| message != "setup").collect()
    }

    fn client(&self) -> Irqbalance {
        Irqbalance::new(vec![self.directory.path().to_owned(), self.directory.path().join(".")])
    }
}

fn answer(stream: &mut UnixStream, shared: &mut Shared) {
    let mut buffer = [0; 16384];
    let mut control = nix::cmsg_space!(nix::libc::ucred);
    let (length, user) = {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let received =
            recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut control), MsgFlags::empty())
                .unwrap();
        let user = received.cmsgs().unwrap().find_map(|message| match message {
            ControlMessageOwned::ScmCredentials(credentials) => Some(credentials.uid()),
            _ => None,
        });
        (received.bytes, user)
    };
    assert_eq!(user, Some(nix::unistd::getuid().as_raw()));
    let message = String::from_utf8(buffer[..length].to_vec()).unwrap();
    if let Some(list) = message.strip_prefix("settings cpus ") {
        let list = if list == "NULL" { "" } else { list };
        shared.received = Some(list.parse().unwrap());
    } else if message == "setup" {
        let bits: u32 = shared.banned.iter().map(|cpu| 1 << cpu).sum();
        let reply = format!("SLEEP 10 IRQ 4 LOAD 0 DIFF 0 CLASS 5 BANNED 00000000,{bits:08x}");
        stream.write_all(reply.as_bytes()).unwrap();
    }
    shared.messages.push(message);
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

#[test]
fn banned_cpus_are_added_verified_and_restored() {
    let daemon = Daemon::start("7");
    let mut client = daemon.client();
    let mut originals = Originals::default();
    let mut follow =
        |originals: &mut Originals, list: &str| client.follow(&Linux, originals, cpus(list));
    assert_eq!(follow(&mut originals, ""), BanState::Unasked);
    assert_eq!(follow(&mut originals, "7"), BanState::Banned);
    assert!(originals.is_empty());
    assert_eq!(follow(&mut originals, "2-3"), BanState::Pending);
    assert_eq!(daemon.settings(), ["settings cpus 2-3,7"]);
    assert_eq!(follow(&mut originals, "2-3"), BanState::Pending);
    assert_eq!(daemon.settings(), [""; 0]);
    daemon.scan();
    assert_eq!(follow(&mut originals, "2-3"), BanState::Banned);
    assert_eq!(follow(&mut originals, "2"), BanState::Pending);
    daemon.scan();
    assert_eq!(follow(&mut originals, "2"), BanState::Banned);
    assert_eq!(daemon.settings(), ["settings cpus 2,7"]);
    // Another client's list.
    daemon.shared.lock().unwrap().banned = cpus("0");
    let states: Vec<BanState> = (0..RESEND).map(|_| follow(&mut originals, "2")).collect();
    assert!(states.iter().all(|state| *state == BanState::Pending));
    assert_eq!(daemon.settings(), ["settings cpus 2,7"]);
    daemon.scan();
    assert!(daemon.client().restore(&Linux, &mut originals).unwrap());
    assert_eq!(daemon.settings(), ["settings cpus 7"]);
    assert!(originals.is_empty());
    assert!(!daemon.client().restore(&Linux, &mut originals).unwrap());
}

#[test]
fn without_avoided_cpus_the_first_list_is_back() {
    let daemon = Daemon::start("");
    let mut client = daemon.client();
    let mut originals = Originals::default();
    client.follow(&Linux, &mut originals, cpus("2"));
    daemon.scan();
    assert_eq!(client.follow(&Linux, &mut originals, CpuSet::EMPTY), BanState::Pending);
    assert_eq!(daemon.settings(), ["settings cpus 2", "settings cpus NULL"]);
    daemon.scan();
    assert_eq!(client.follow(&Linux, &mut originals, CpuSet::EMPTY), BanState::Banned);
    assert!(originals.is_empty());
}

#[test]
fn another_daemon_has_its_own_list() {
    let daemon = Daemon::start("7");
    let mut client = daemon.client();
    let mut originals = Originals::default();
    client.follow(&Linux, &mut originals, cpus("2"));
    fs_remove(&daemon, 7);
    daemon.shared.lock().unwrap().banned = cpus("5");
    daemon.listen(8);
    assert_eq!(client.follow(&Linux, &mut originals, cpus("2")), BanState::Pending);
    assert_eq!(daemon.settings(), ["settings cpus 2,7", "settings cpus 2,5"]);
    fs_remove(&daemon, 8);
    assert_eq!(client.follow(&Linux, &mut originals, cpus("2")), BanState::Absent);
    assert!(originals.is_empty());
    assert!(!client.restore(&Linux, &mut originals).unwrap());
}

fn fs_remove(daemon: &Daemon, process: u32) {
    let path = daemon.directory.path().join(format!("irqbalance{process}.sock"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_daemon_that_does_not_answer_costs_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("irqbalance1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut client = Irqbalance::new(vec![directory.path().to_owned()]);
    let began = Instant::now();
    let state = client.follow(&Linux, &mut Originals::default(), cpus("2"));
    assert!(matches!(state, BanState::Failed(_)), "{state:?}");
    assert!(began.elapsed() < 2 * PATIENCE);
    // The socket of an ended daemon.
    drop(listener);
    assert_eq!(client.follow(&Linux, &mut Originals::default(), cpus("2")), BanState::Absent);
}

#[test]
fn a_full_queue_costs_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("irqbalance1.sock");
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let mut client = Irqbalance::new(vec![directory.path().to_owned()]);
    let began = Instant::now();
    let state = client.follow(&Linux, &mut Originals::default(), cpus("2"));
    assert!(matches!(state, BanState::Failed(_)), "{state:?}");
    assert!(began.elapsed() < 2 * PATIENCE);
}

#[test]
fn replies_without_a_mask_are_errors() {
    assert_eq!(parse_setup("SLEEP 10 BANNED 00000000,000000f0").unwrap(), cpus("4-7"));
    assert_eq!(parse_setup("SLEEP 10 BANNED f\0").unwrap(), cpus("0-3"));
    for reply in ["", "SLEEP 10", "BANNED x", "BANNED \u{1b}[2J"] {
        parse_setup(reply).unwrap_err();
    }
}

/// Sends `length` bytes, and keeps the connection open.
fn long_reply(length: usize, patience: Duration) -> io::Result<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("irqbalance1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The reader may have closed it.
        let _ = stream.write_all(&vec![b'x'; length]);
        thread::sleep(Duration::from_secs(5));
    });
    exchange(&path, "setup", Instant::now() + patience)
}

#[test]
fn a_reply_without_end_is_an_error() {
    let longest = LONGEST_REPLY as usize;
    let too_long = long_reply(longest + 4096, Duration::from_secs(4)).unwrap_err();
    assert_eq!(too_long.kind(), io::ErrorKind::FileTooLarge);
    let begun = Instant::now();
    let error = long_reply(longest, PATIENCE).unwrap_err();
    assert_ne!(error.kind(), io::ErrorKind::FileTooLarge);
    assert!(begun.elapsed() < 3 * PATIENCE);
}
