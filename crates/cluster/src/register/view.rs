//! A view as bytes, and what makes a view sound.

use std::collections::BTreeSet;

use cenote_codec::{Decoder, Encode as _, Subject};
use cenote_ha::{ClusterId, Home, HomeId, Identity, Member, MemberState, View};
use cenote_model::{Error, ErrorKind, NodeId, Result};

/// Longest address of a member, in bytes: a host's name of 253 with its port fits.
const ADDRESS_BYTES_MAX: usize = 260;
/// Fewest bytes of a member and of a home: bound what a count can make the decoder allocate.
const MEMBER_BYTES_MIN: usize = 2 + 4 + 16 + 1 + 8;
const HOME_BYTES_MIN: usize = 2 + 2 + 2 + 8 + 8 + 1 + 4 + 1;

const LIVE: u8 = 0;
const EXCLUDED: u8 = 1;
const EXCLUDED_OWED: u8 = 2;
const GIVEN_UP: u8 = 3;
/// Beside the state of a member that is to leave for good.
const LEAVING: u8 = 0x80;

/// Fails with `InvalidInput` if the view is none that a register takes.
pub(super) fn check(view: &View, subject: &str) -> Result<()> {
    let Some(why) = fault(view) else { return Ok(()) };
    Err(Error::new(ErrorKind::InvalidInput, format!("view {} for {subject}", view.number))
        .because(why)
        .try_next("this is a bug in Cenote: report it with the output of `cenote --json doctor`"))
}

/// What contradicts itself in the view.
///
/// Who hosts what is not looked at: a home whose last copy was on a node that was given up still names it as its host.
fn fault(view: &View) -> Option<&'static str> {
    let (mut nodes, mut homes) = (BTreeSet::new(), BTreeSet::new());
    if view.number == 0 {
        return Some("views are numbered from 1");
    }
    if !view.members.iter().all(|member| nodes.insert(member.id)) {
        return Some("a node is in it twice");
    }
    if !view.homes.iter().all(|home| homes.insert(home.id)) {
        return Some("a home is in it twice");
    }
    if view.members.iter().any(|member| member.address.len() > ADDRESS_BYTES_MAX) {
        return Some("the address of a member is longer than 260 bytes");
    }
    let is_unclear = |home: &Home| home.copies().collect::<BTreeSet<_>>().len() != 1 + home.mirrors.len();
    view.homes.iter().any(is_unclear).then_some("a node is mirror of a home twice, or its host too")
}

pub(super) fn encode(view: &View, out: &mut Vec<u8>) {
    out.put_u128(view.cluster.0);
    out.put_u64(view.number);
    out.put_u64(view.survives as u64);
    out.put_u32(view.members.len() as u32);
    for member in &view.members {
        encode_member(member, out);
    }
    out.put_u32(view.homes.len() as u32);
    for home in &view.homes {
        encode_home(home, out);
    }
}

fn encode_member(member: &Member, out: &mut Vec<u8>) {
    let (state, since_view) = match member.state {
        MemberState::Live { since_view } => (LIVE, since_view),
        MemberState::Excluded { is_owed: false, since_view } => (EXCLUDED, since_view),
        MemberState::Excluded { is_owed: true, since_view } => (EXCLUDED_OWED, since_view),
        MemberState::GivenUp { since_view } => (GIVEN_UP, since_view),
    };
    out.put_u16(member.id.0);
    out.put_bytes(member.address.as_bytes());
    out.put_u128(member.identity.0);
    out.put_u8(state | if member.is_leaving { LEAVING } else { 0 });
    out.put_u64(since_view);
}

fn encode_home(home: &Home, out: &mut Vec<u8>) {
    out.put_u16(home.id.0);
    out.put_u16(home.host.0);
    out.put_u16(home.wanted_host.0);
    out.put_u64(home.term);
    out.put_u64(home.mirrors_wanted as u64);
    out.put_u8(home.is_shared.into());
    out.put_u32(home.mirrors.len() as u32);
    for mirror in &home.mirrors {
        out.put_u16(mirror.0);
    }
    out.put_u8(home.moving.is_some().into());
    if let Some((from, to)) = home.moving {
        out.put_u16(from.0);
        out.put_u16(to.0);
    }
}

/// Takes a sound view from the front of bytes.
pub(super) fn decode<S: Subject>(from: &mut Decoder<'_, S>) -> Result<View, S::Error> {
    let (cluster, number, survives) = (ClusterId(from.u128()?), from.u64()?, size(from)?);
    let count = from.count(MEMBER_BYTES_MIN)?;
    let members = (0..count).map(|_| decode_member(from)).collect::<Result<_, _>>()?;
    let count = from.count(HOME_BYTES_MIN)?;
    let homes = (0..count).map(|_| decode_home(from)).collect::<Result<_, _>>()?;
    let view = View { cluster, number, survives, members, homes };
    fault(&view).map_or(Ok(view), |why| Err(from.malformed(why)))
}

fn decode_member<S: Subject>(from: &mut Decoder<'_, S>) -> Result<Member, S::Error> {
    let (id, address, identity) = (NodeId(from.u16()?), from.text()?, Identity(from.u128()?));
    let (byte, since_view) = (from.u8()?, from.u64()?);
    let (state, is_leaving) = (byte & !LEAVING, byte & LEAVING != 0);
    let state = match state {
        LIVE => MemberState::Live { since_view },
        EXCLUDED | EXCLUDED_OWED => MemberState::Excluded { is_owed: state == EXCLUDED_OWED, since_view },
        GIVEN_UP => MemberState::GivenUp { since_view },
        _ => return Err(from.malformed("a member in an unknown state")),
    };
    Ok(Member { id, address, identity, state, is_leaving })
}

fn decode_home<S: Subject>(from: &mut Decoder<'_, S>) -> Result<Home, S::Error> {
    let (id, host, wanted_host, term) = (HomeId(from.u16()?), NodeId(from.u16()?), NodeId(from.u16()?), from.u64()?);
    let mirrors_wanted = size(from)?;
    let is_shared = from.flag()?;
    let count = from.count(2)?;
    let mirrors = (0..count).map(|_| from.u16().map(NodeId)).collect::<Result<_, _>>()?;
    let moving = if from.flag()? { Some((NodeId(from.u16()?), NodeId(from.u16()?))) } else { None };
    Ok(Home { id, host, wanted_host, mirrors, moving, term, mirrors_wanted, is_shared })
}

fn size<S: Subject>(from: &mut Decoder<'_, S>) -> Result<usize, S::Error> {
    usize::try_from(from.u64()?).map_err(|_| from.malformed("a number that this machine cannot hold"))
}
