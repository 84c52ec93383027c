//! A real etcd: the suite on one server, which is stopped and killed; three servers of which some die; users; TLS. Each test is
//! skipped, and says so, if etcd is not installed (Debian: `etcd-server`, `etcd-client`).

mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_cluster::register::conformance::{self, Place};
use cenote_cluster::register::{EtcdOptions, EtcdRegister, Login, Register, SwapError, Swapped, Tls};
use cenote_model::ErrorKind;

use self::server::{Etcd, start};
use super::fresh_name;

const TIMEOUT: Duration = Duration::from_secs(3);

struct InEtcd {
    etcd: Arc<Etcd>,
    key: String,
    how: How,
}

/// How the server is kept away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is stopped: connections are taken and nothing is answered.
    Stopped,
    /// It is killed: connections are refused.
    Killed,
}

impl InEtcd {
    fn options(&self) -> EtcdOptions {
        EtcdOptions { timeout: TIMEOUT, ..EtcdOptions::new(self.etcd.endpoints(), self.key.clone()) }
    }
}

impl Place for InEtcd {
    fn client(&self) -> Box<dyn Register> {
        Box::new(EtcdRegister::new(&self.options()).unwrap())
    }
    fn damage(&self, bytes: &[u8]) {
        self.etcd.put(&self.key, bytes);
    }
    fn set_away(&self, is_away: bool) -> bool {
        match (self.how, is_away) {
            (How::Stopped, is_away) => self.etcd.set_stopped(0, is_away),
            (How::Killed, true) => self.etcd.kill(0),
            (How::Killed, false) => self.etcd.run(0),
        }
        true
    }
    fn patience(&self) -> Duration {
        TIMEOUT + Duration::from_secs(1)
    }
}

#[test]
fn a_key_of_etcd() {
    let Some(etcd) = start(1, &[]) else { return };
    let etcd = Arc::new(etcd);
    conformance::register(|| InEtcd {
        etcd: Arc::clone(&etcd),
        key: format!("/cenote/{}/view", fresh_name()),
        how: How::Stopped,
    });
}

#[test]
fn an_etcd_that_is_killed_and_started_again() {
    let Some(etcd) = start(1, &[]) else { return };
    let place = InEtcd { etcd: Arc::new(etcd), key: "/cenote/view".into(), how: How::Killed };
    let client = place.client();
    let Ok(Swapped::Won(token)) = client.swap(None, &conformance::view(1)) else { panic!("it is empty") };
    place.set_away(true);
    let begin = Instant::now();
    let refused = client.swap(Some(&token), &conformance::view(2)).unwrap_err();
    // Nobody was there to take it: no need to ask what became of it.
    assert!(matches!(&refused, SwapError::Failed(error) if error.kind() == ErrorKind::Disconnected), "{refused}");
    assert!(begin.elapsed() < TIMEOUT);
    place.set_away(false);
    assert_eq!(client.read().unwrap(), Some((conformance::view(1), token.clone())));
    assert!(matches!(client.swap(Some(&token), &conformance::view(2)), Ok(Swapped::Won(_))));
}

/// Any of the endpoints will do, as long as most servers are there.
#[test]
fn three_servers_of_which_one_dies() {
    let Some(etcd) = start(3, &[]) else { return };
    let place = InEtcd { etcd: Arc::new(etcd), key: "/cenote/view".into(), how: How::Killed };
    let client = place.client();
    let mut token = None;
    for round in 0..3_u64 {
        let server = round as usize;
        if round == 1 {
            place.etcd.set_stopped(server, true);
        } else {
            place.etcd.kill(server);
        }
        token = Some(swap_within(client.as_ref(), token.as_ref(), round + 1, Duration::from_secs(30)));
        if round == 1 {
            place.etcd.set_stopped(server, false);
        } else {
            place.etcd.run(server);
        }
    }
    assert_eq!(client.read().unwrap().unwrap().0, conformance::view(3));
    place.etcd.kill(0);
    place.etcd.kill(1);
    let begin = Instant::now();
    assert_eq!(client.read().unwrap_err().kind(), ErrorKind::Disconnected, "one of three decides nothing");
    assert!(begin.elapsed() < TIMEOUT + Duration::from_secs(1));
}

/// Makes one attempt until it is answered: a leader has to be chosen first.
fn swap_within(
    client: &dyn Register,
    seen: Option<&cenote_cluster::register::Token>,
    number: u64,
    within: Duration,
) -> cenote_cluster::register::Token {
    let (until, stamp) = (Instant::now() + within, cenote_cluster::register::Stamp::draw().unwrap());
    loop {
        match client.swap_as(seen, &conformance::view(number), stamp) {
            Ok(Swapped::Won(token)) => return token,
            Err(error) if Instant::now() < until => {
                assert_eq!(error.error().kind(), ErrorKind::Disconnected, "{error}");
                std::thread::sleep(Duration::from_millis(100));
            }
            other => panic!("view {number}: {other:?}"),
        }
    }
}

#[test]
fn a_change_is_seen_at_once() {
    let Some(etcd) = start(1, &[]) else { return };
    let place = InEtcd { etcd: Arc::new(etcd), key: "/cenote/view".into(), how: How::Killed };
    let (client, other) = (place.client(), place.client());
    let Ok(Swapped::Won(mut token)) = client.swap(None, &conformance::view(1)) else { panic!("it is empty") };
    let mut waits = Vec::new();
    for number in 2..7 {
        let seen = token.clone();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let found = client.wait_change(Some(&seen), Duration::from_secs(20)).unwrap().expect("a change");
                (Instant::now(), found)
            });
            // Looks without a watch would be half a second apart by then.
            std::thread::sleep(Duration::from_millis(1500));
            let Ok(Swapped::Won(next)) = other.swap(Some(&seen), &conformance::view(number)) else {
                panic!("it is open")
            };
            let won = Instant::now();
            let (seen_at, found) = waiting.join().unwrap();
            assert_eq!(found, (conformance::view(number), next.clone()));
            waits.push(seen_at.saturating_duration_since(won));
            token = next;
        });
    }
    waits.sort_unstable();
    eprintln!("seen after {waits:?}");
    assert!(waits[waits.len() / 2] < Duration::from_millis(200), "a watch and not only looks: {waits:?}");
}

#[test]
fn users_and_passwords() {
    let Some(etcd) = start(1, &[]) else { return };
    for command in [
        "user add root:secret",
        "role add cenote",
        "role grant-permission cenote --prefix=true readwrite /cenote/",
        "user add node:word",
        "user grant-role node cenote",
        "user grant-role root root",
        "auth enable",
    ] {
        etcd.ctl(command);
    }
    let options = |user: &str, password: &str, key: &str| EtcdOptions {
        login: (!user.is_empty()).then(|| Login { user: user.into(), password: password.into() }),
        ..EtcdOptions::new(etcd.endpoints(), key)
    };
    let client = EtcdRegister::new(&options("node", "word", "/cenote/view")).unwrap();
    assert!(matches!(client.swap(None, &conformance::view(1)), Ok(Swapped::Won(_))));
    assert_eq!(client.read().unwrap().unwrap().0, conformance::view(1));
    for (user, password, key) in
        [("", "", "/cenote/view"), ("node", "other", "/cenote/view"), ("node", "word", "/elsewhere")]
    {
        let refused = EtcdRegister::new(&options(user, password, key)).unwrap();
        let error = refused.read().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{user} {key}: {error}");
        let error = refused.swap(None, &conformance::view(1)).unwrap_err();
        assert!(matches!(&error, SwapError::Failed(error) if error.kind() == ErrorKind::PermissionDenied), "{error}");
    }
    assert!(!format!("{:?}", options("node", "word", "k")).contains("word"), "passwords stay out of logs");
    // The server forgets who had been let in.
    etcd.kill(0);
    etcd.run(0);
    assert_eq!(client.read().unwrap().unwrap().0, conformance::view(1));
}

#[test]
fn what_is_no_etcd_is_told() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let options = EtcdOptions { timeout: Duration::from_millis(400), ..EtcdOptions::new([address], "k") };
    let client = EtcdRegister::new(&options).unwrap();
    let begin = Instant::now();
    assert_eq!(client.read().unwrap_err().kind(), ErrorKind::Disconnected);
    let error = client.swap(None, &conformance::view(1)).unwrap_err();
    assert!(matches!(error, SwapError::Unknown(..)), "it was sent: {error}");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(EtcdRegister::new(&EtcdOptions::new([""; 0], "k")).err().unwrap().kind(), ErrorKind::InvalidInput);
}

#[test]
fn certificates_on_both_sides() {
    let Some(certificates) = server::certificates() else { return };
    let file = |name: &str| certificates.path().join(name);
    let text = |name: &str| file(name).display().to_string();
    let options = [
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", text("ca.pem")),
        format!("--cert-file={}", text("server.pem")),
        format!("--key-file={}", text("server.key")),
    ];
    let Some(etcd) = start(1, &options) else { return };
    let tls = Tls { authority: Some(file("ca.pem")), certificate: Some((file("client.pem"), file("client.key"))) };
    let client = |tls: Tls| EtcdRegister::new(&EtcdOptions { tls, ..EtcdOptions::new(etcd.endpoints(), "k") }).unwrap();
    let known = client(tls.clone());
    assert!(matches!(known.swap(None, &conformance::view(1)), Ok(Swapped::Won(_))));
    assert_eq!(known.read().unwrap().unwrap().0, conformance::view(1));
    for stranger in [Tls { certificate: None, ..tls.clone() }, Tls { authority: None, ..tls }] {
        assert_eq!(client(stranger).read().unwrap_err().kind(), ErrorKind::Disconnected);
    }
    let missing = Tls { authority: Some("/nonexistent".into()), certificate: None };
    let error = EtcdRegister::new(&EtcdOptions { tls: missing, ..EtcdOptions::new(["https://127.0.0.1:1"], "k") });
    assert_eq!(error.err().unwrap().kind(), ErrorKind::NotFound);
}
