//! Views and messages as bytes; what becomes of attempts without an answer; the file's own dangers.

use cenote_ha::{ClusterId, Home, HomeId, Identity, Member, MemberState};
use cenote_model::NodeId;
use proptest::prelude::*;

use super::*;

fn state() -> impl Strategy<Value = MemberState> {
    prop_oneof![
        any::<u64>().prop_map(|since_view| MemberState::Live { since_view }),
        any::<(bool, u64)>().prop_map(|(is_owed, since_view)| MemberState::Excluded { is_owed, since_view }),
        any::<u64>().prop_map(|since_view| MemberState::GivenUp { since_view }),
    ]
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let member = (any::<u16>(), "[a-z0-9.\u{e9}:-]{0,40}", any::<u128>(), state(), any::<bool>()).prop_map(
        |(id, address, identity, state, is_leaving)| Member {
            id: NodeId(id),
            address,
            identity: Identity(identity),
            state,
            is_leaving,
        },
    );
    prop::collection::vec(member, 0..12).prop_map(|mut members| {
        let mut seen = std::collections::BTreeSet::new();
        members.retain(|member| seen.insert(member.id));
        members
    })
}

fn homes() -> impl Strategy<Value = Vec<Home>> {
    let nodes = prop::collection::btree_set(any::<u16>(), 1..5);
    let home = (any::<u16>(), nodes, any::<u64>(), any::<usize>(), any::<bool>(), any::<bool>()).prop_map(
        |(id, nodes, term, mirrors_wanted, is_reversed, is_shared)| {
            let mut nodes: Vec<NodeId> = nodes.into_iter().map(NodeId).collect();
            if is_reversed {
                nodes.reverse();
            }
            let wanted_host = NodeId(term as u16);
            let (host, mirrors) = (nodes[0], nodes[1..].to_vec());
            let moving = is_reversed.then_some((NodeId(id), wanted_host));
            Home { id: HomeId(id), host, wanted_host, mirrors, moving, term, mirrors_wanted, is_shared }
        },
    );
    prop::collection::vec(home, 0..8).prop_map(|mut homes| {
        let mut seen = std::collections::BTreeSet::new();
        homes.retain(|home| seen.insert(home.id));
        homes
    })
}

fn views() -> impl Strategy<Value = View> {
    (any::<u128>(), 1..u64::MAX, any::<usize>(), members(), homes()).prop_map(
        |(cluster, number, survives, members, homes)| View {
            cluster: ClusterId(cluster),
            number,
            survives,
            members,
            homes,
        },
    )
}

fn token(number: u64, stamps: &[u128]) -> Token {
    let mut token = None;
    for (back, stamp) in stamps.iter().enumerate() {
        let number = number - (stamps.len() - 1 - back) as u64;
        token = Some(Token::following(token.as_ref(), number, Stamp(*stamp)));
    }
    token.expect("a stamp")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_come_back(view in views(), stamps in prop::collection::vec(any::<u128>(), 1..20), cut in any::<prop::sample::Index>()) {
        let mut view = view;
        view.number = view.number.max(20);
        let token = token(view.number, &stamps);
        let bytes = record::encode("a test", &token, &view).unwrap();
        prop_assert_eq!(record::decode("a test", &bytes).unwrap(), (view.clone(), token.clone()));
        let cut = cut.index(bytes.len());
        prop_assert_eq!(record::decode("a test", &bytes[..cut]).unwrap_err().kind(), ErrorKind::Corrupt);
        let mut changed = bytes.clone();
        changed[cut] ^= 0x10;
        prop_assert!(record::decode("a test", &changed).is_err());
        for held in [None, Some((view.clone(), token.clone()))] {
            check_answer(&RegisterAnswer::Held(held.clone()), cut)?;
            check_answer(&RegisterAnswer::Lost(held), cut)?;
        }
        check_answer(&RegisterAnswer::Won(token.clone()), cut)?;
        for seen in [None, Some(token)] {
            let request = RegisterRequest::Swap { seen, view: view.clone(), stamp: Stamp(stamps[0]) };
            let bytes = request.encode();
            prop_assert_eq!(RegisterRequest::decode(&bytes).unwrap(), request);
            prop_assert!(RegisterRequest::decode(&bytes[..cut.min(bytes.len() - 1)]).is_err());
        }
    }

    #[test]
    fn hostile_bytes_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(record::decode("a test", &bytes).is_err());
        let framed = [&[4, 2][..], &bytes].concat();
        for bytes in [&bytes, &framed] {
            let _ = (RegisterRequest::decode(bytes), RegisterAnswer::decode(bytes));
        }
        let mut input = cenote_codec::Decoder::new(&bytes);
        let _ = view::decode(&mut input);
    }
}

fn check_answer(answer: &RegisterAnswer, cut: usize) -> Result<(), TestCaseError> {
    let bytes = answer.encode();
    prop_assert_eq!(&RegisterAnswer::decode(&bytes).unwrap(), answer);
    prop_assert!(RegisterAnswer::decode(&bytes[..cut.min(bytes.len() - 1)]).is_err());
    prop_assert!(RegisterAnswer::decode(&[&bytes[..], &[0]].concat()).is_err());
    Ok(())
}

/// Another program may read it: changed bytes need another version.
#[test]
fn records_lie_as_they_always_did() {
    let view = conformance::view(2);
    let bytes = record::encode("a test", &token(2, &[5, 6]), &view).unwrap();
    assert_eq!((bytes.len(), cenote_device::sums::sum_of(&bytes[..bytes.len() - 4])), (321, 751_554_554));
}

#[test]
fn records_of_later_versions_are_told_apart_from_damage() {
    let mut bytes = record::encode("a test", &token(1, &[5]), &conformance::view(1)).unwrap();
    bytes[8] += 1;
    assert_eq!(record::decode("a test", &bytes).unwrap_err().kind(), ErrorKind::VersionMismatch);
    let request = [6, 1];
    let answered = RegisterAnswer::decode(&answer(&MemoryRegister::default(), &request)).unwrap();
    assert!(matches!(answered, RegisterAnswer::Failed(error) if error.kind() == ErrorKind::VersionMismatch));
}

#[test]
fn views_that_contradict_themselves_are_refused() {
    let good = conformance::view(1);
    let mut wrong = vec![good.clone(); 4];
    wrong[0].homes[1].id = HomeId(1);
    wrong[1].members[0].address = "x".repeat(261);
    wrong[2].homes[0].mirrors.push(NodeId(2));
    wrong[3].homes[0].mirrors[0] = NodeId(1);
    for view in wrong {
        let register = MemoryRegister::default();
        let error = Error::from(register.swap(None, &view).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        // A record with it is damaged, whatever its checksum says.
        let bytes = record::encode("a test", &token(1, &[5]), &view).unwrap();
        assert_eq!(record::decode("a test", &bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

fn begun() -> (MemoryRegister, Token) {
    let register = MemoryRegister::default();
    let Swapped::Won(token) = register.swap(None, &conformance::view(1)).unwrap() else { panic!("it is empty") };
    (register, token)
}

fn unknown(swapped: Result<Swapped, SwapError>) -> Attempt {
    match swapped {
        Err(SwapError::Unknown(attempt, error)) => {
            assert_eq!(error.kind(), ErrorKind::Disconnected);
            attempt
        }
        other => panic!("nobody knows: {other:?}"),
    }
}

#[test]
fn an_attempt_whose_answer_is_lost_is_found_in_the_record() {
    let (register, first) = begun();
    register.inject(Fault::Unanswered);
    let attempt = unknown(register.swap(Some(&first), &conformance::view(2)));
    assert_eq!(settle(&register, &attempt, Duration::ZERO).unwrap().0, Outcome::Won);
}

#[test]
fn an_attempt_that_never_arrives_is_made_again() {
    let (register, first) = begun();
    register.inject(Fault::Lost);
    let attempt = unknown(register.swap(Some(&first), &conformance::view(2)));
    assert_eq!(settle(&register, &attempt, Duration::from_millis(30)).unwrap().0, Outcome::Open);
    let again = register.swap_as(Some(&first), &conformance::view(2), attempt.stamp).unwrap();
    assert!(matches!(again, Swapped::Won(token) if token.stamp() == attempt.stamp));
}

#[test]
fn an_attempt_that_arrives_late_changes_nothing_that_came_before_it() {
    let (register, first) = begun();
    register.inject(Fault::Late);
    let attempt = unknown(register.swap(Some(&first), &conformance::view(2)));
    let Swapped::Won(second) = register.swap(Some(&first), &conformance::view(2)).unwrap() else {
        panic!("it is open")
    };
    register.deliver_late();
    assert_eq!(register.read().unwrap().unwrap().1, second);
    assert_eq!(second.tells(&attempt), Outcome::Lost);
    // One that arrives while nothing else did takes place.
    register.inject(Fault::Late);
    let attempt = unknown(register.swap(Some(&second), &conformance::view(3)));
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(|| settle(&register, &attempt, Duration::from_secs(20)).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        register.deliver_late();
        told.join().unwrap()
    });
    assert_eq!((told.0, told.1.unwrap().0.number), (Outcome::Won, 3));
}

#[test]
fn the_first_attempt_of_all_is_told_apart_too() {
    let register = MemoryRegister::default();
    register.inject(Fault::Late);
    let attempt = unknown(register.swap(None, &conformance::view(1)));
    assert_eq!(settle(&register, &attempt, Duration::ZERO).unwrap(), (Outcome::Open, None));
    let Swapped::Won(token) = register.swap(None, &conformance::view(7)).unwrap() else { panic!("it is empty") };
    register.deliver_late();
    assert_eq!(token.tells(&attempt), Outcome::Lost);
}

/// The judge of the suite, judged: times in milliseconds, numbers, and who wrote.
fn is_linearisable(steps: &[(u64, u64, u64, bool)]) -> bool {
    let now = Instant::now();
    let at = |ms| now + Duration::from_millis(ms);
    let step = |(begin, end, number, is_write): &(u64, u64, u64, bool)| conformance::Step {
        begin: at(*begin),
        end: at(*end),
        number: *number,
        stamp: Stamp(u128::from(*number)),
        is_write: *is_write,
    };
    let (steps, first) = (steps.iter().map(step).collect(), token(1, &[1]));
    std::panic::catch_unwind(move || conformance::check_history(steps, &first)).is_ok()
}

#[test]
fn histories_that_no_register_has_are_found() {
    assert!(is_linearisable(&[(0, 10, 2, true), (1, 9, 1, false), (1, 9, 2, false), (11, 12, 2, false)]));
    let wrong: [&[_]; 5] = [
        &[(0, 10, 2, true), (11, 12, 1, false)],
        &[(0, 10, 2, true), (1, 3, 2, false), (4, 5, 1, false)],
        &[(5, 10, 2, true), (1, 3, 2, false)],
        &[(0, 10, 2, true), (0, 10, 2, true)],
        &[(0, 10, 3, true), (11, 12, 2, true)],
    ];
    for steps in wrong {
        assert!(!is_linearisable(steps), "{steps:?}");
    }
}

/// A directory that is removed with it.
struct Dir(std::path::PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cenote-register-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_is_one_process_s_and_outlives_it() {
    let dir = Dir::new("file");
    let register = FileRegister::open(&dir.0).unwrap();
    let Swapped::Won(token) = register.swap(None, &conformance::view(1)).unwrap() else { panic!("it is empty") };
    assert_eq!(FileRegister::open(&dir.0).err().unwrap().kind(), ErrorKind::Busy);
    drop(register);
    // What a crash in the middle of a swap leaves.
    std::fs::write(dir.0.join(".next-view"), b"half of a rec").unwrap();
    let register = FileRegister::open(&dir.0).unwrap();
    assert_eq!(register.read().unwrap(), Some((conformance::view(1), token.clone())));
    assert!(matches!(register.swap(Some(&token), &conformance::view(2)), Ok(Swapped::Won(_))));
}

#[test]
fn a_directory_that_is_gone_is_an_error_and_no_answer() {
    let dir = Dir::new("gone");
    let register = FileRegister::open(&dir.0).unwrap();
    let Swapped::Won(token) = register.swap(None, &conformance::view(1)).unwrap() else { panic!("it is empty") };
    std::fs::remove_dir_all(&dir.0).unwrap();
    let swapped = register.swap(Some(&token), &conformance::view(2));
    assert!(!matches!(swapped, Ok(Swapped::Won(_))), "{swapped:?}");
    assert_eq!(FileRegister::open(&dir.0).err().unwrap().kind(), ErrorKind::NotFound);
}
