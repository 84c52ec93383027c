//! The engine dies at every I/O of an opening after a power loss, with or without another power loss: the next
//! opening must reach the same store as an undisturbed one.

use cenote_device::mem::Keep;
use cenote_store::{Engine, SessionInfo};
use cenote_testkit::oracle::Observed;
use cenote_testkit::rng::Rng;
use cenote_testkit::sim::{Prepared, prepare};
use cenote_testkit::survey::survey;

/// What happens after the first opening died.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Only its process died.
    Death,
    /// The power failed too, and unsynced bytes were lost.
    Power(Keep),
    /// Its process died, and the power fails during the next opening, at the I/O of this number.
    DeathAndPower(u64),
}

fn seeds() -> Vec<u64> {
    match std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..24).collect(),
    }
}

fn open(prepared: &Prepared) -> Option<Engine> {
    let opened = Engine::open_tuned(prepared.world.seams(), prepared.tuning);
    if prepared.world.faults.is_dead() {
        return None;
    }
    Some(opened.unwrap_or_else(|error| panic!("{error:?}")).0)
}

fn look(engine: &mut Engine) -> Observed {
    let who = SessionInfo { nonce: 5, pid: 1, started: 1, uid: 0, write: false, ..SessionInfo::default() };
    let session = engine.session_open(who).unwrap();
    survey(engine, session, 100).unwrap().observed
}

/// Dies at the I/O numbered `at` of the opening. `None` if there is no such I/O.
fn opened_after(seed: u64, keep: Keep, at: u64, then: Then) -> Option<Observed> {
    let prepared = prepare(seed, 90, false).unwrap();
    let world = &prepared.world;
    world.power_loss(keep);
    world.faults.die_at(world.faults.count() + at, Rng::new(seed ^ at));
    if open(&prepared).is_some() {
        return None;
    }
    world.faults.heal();
    match then {
        Then::Death => world.kill(),
        Then::Power(keep) => world.power_loss(keep),
        Then::DeathAndPower(second) => {
            world.kill();
            world.faults.die_at(world.faults.count() + second, Rng::new(at));
            if open(&prepared).is_none() {
                world.faults.heal();
                world.power_loss(Keep::Random(at));
            } else {
                world.kill();
            }
            world.faults.heal();
        }
    }
    Some(look(&mut open(&prepared).unwrap()))
}

#[test]
fn a_crash_at_any_point_of_an_opening_after_power_loss_changes_nothing() {
    let mut cases = 0;
    for seed in seeds() {
        let keep = match seed % 3 {
            0 => Keep::Nothing,
            1 => Keep::Everything,
            _ => Keep::Random(seed),
        };
        let prepared = prepare(seed, 90, false).unwrap();
        prepared.world.power_loss(keep);
        let expected = look(&mut open(&prepared).unwrap());
        prepared.oracle.clone().after_power_loss(&expected).unwrap_or_else(|why| panic!("CENOTE_SEED={seed}: {why}"));
        let mut thens = vec![Then::Death, Then::Power(Keep::Nothing), Then::Power(Keep::Random(!seed))];
        if seed < 3 || seeds().len() == 1 {
            thens.extend((0..40).step_by(3).map(|second| Then::DeathAndPower(second + seed % 3)));
        }
        for then in thens {
            for at in 0.. {
                let Some(found) = opened_after(seed, keep, at, then) else { break };
                assert!(found == expected, "CENOTE_SEED={seed}: I/O {at} of the opening, {then:?}: another store");
                cases += 1;
            }
        }
    }
    assert!(cases > 50, "only {cases} cases");
}
