//! Densify (coalescing): merges small neighbouring extents into one before they are copied to a tier with larger units.
//!
//! Each write of a program has space of its own, of at least one allocation unit: a log written in lines of some bytes
//! would take a unit of 512 bytes for each in memory, and one of 4 KiB on the tier to which it is copied. So before a
//! cut begins, neighbours written since the last cut are written once more, as one piece. This is a write like any
//! other, by a session that exists only for it: readers, the journal, undo and recovery need no special case, except
//! that the object's epoch stays. The replaced extents are given up when the cut is marked.

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{ContainerId, Extent, ObjectKey, Result, Sums, Update};

use crate::SessionInfo;
use crate::container::Fresh;
use crate::engine::core::Core;
use crate::map::{DeviceIndex, Ext};
use crate::objects::Presence;
use crate::session::OWN_NONCE;
use crate::sums::{UNIT, sum_of};

/// Candidates are shorter than this, and not a multiple of the unit of file devices.
const SMALL_BYTES: u32 = 16 << 10;
const FILE_UNIT_BYTES: u32 = 4096;
/// Longest merged extent.
const DENSE_BYTES_MAX: u64 = 256 << 10;
/// Most extents of a container inspected before a cut: no other request is served meanwhile.
const LOOKED_MAX: usize = 1 << 17;
/// If there are more ranges than this, aligned blocks up to this size are skipped.
const RANGES_MANY: usize = 1024;
const BLOCK_BYTES: u64 = 64 << 10;
/// Most neighbours to the left that are older than the last cut: usually the end of a log, which is one extent.
const LEFT_MAX: usize = 4;
/// Most writes in one request.
const WRITES_MAX: usize = 256;

/// Neighbours that become one extent.
struct Group {
    key: ObjectKey,
    offset: u64,
    len: u64,
    dev: DeviceIndex,
}

/// The neighbours found so far.
struct Row {
    offset: u64,
    len: u64,
    dev: DeviceIndex,
    extents: usize,
}

/// Merges small neighbours among the extents that the next cut of these containers will copy. Leaves them as they are
/// where that fails.
pub fn densify(core: &mut Core, members: &[ContainerId]) {
    if core.state.space.shared.is_everywhere() {
        return; // bytes that a snapshot shares would exist twice
    }
    for member in members {
        let groups = small_neighbours(core, *member);
        if !groups.is_empty() && write_dense(core, *member, &groups).is_err() {
            return; // no space, or the journal does not take it
        }
    }
}

fn write_dense(core: &mut Core, container: ContainerId, groups: &[Group]) -> Result<()> {
    let session = core.session_open(SessionInfo { nonce: OWN_NONCE, write: true, ..SessionInfo::default() })?;
    let done = groups.chunks(WRITES_MAX).try_for_each(|groups| {
        let mut updates = Vec::with_capacity(groups.len());
        for group in groups {
            let slot = core.state.space.get_mut(group.dev);
            let padded = slot.padded(group.len);
            let Some(device) = slot.device.clone() else { continue };
            let runs = slot.take(padded, padded);
            let [(at, len)] = runs[..] else {
                for (at, len) in runs {
                    core.state.space.get_mut(group.dev).unreserve(at, len);
                }
                continue;
            };
            core.grant((session, container), 0, group.dev, &[(at, len)])?;
            if let Some(extent) = gather_dense(core, group, &device, at) {
                updates.push(Update::Write { key: group.key, offset: group.offset, extent });
            }
        }
        if updates.is_empty() {
            return Ok(());
        }
        core.apply_own(session, updates)
    });
    core.session_close(session);
    done
}

fn small_neighbours(core: &Core, member: ContainerId) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut left = LOOKED_MAX;
    for (slot, from, to) in written(core, member) {
        let (key, mut row) = (core.state.key_of(slot), None::<Row>);
        for (at, ext) in core.state.objects.get(slot).map.overlapping(first_small(core, slot, from), to) {
            left = left.saturating_sub(1);
            if left == 0 {
                return groups;
            }
            let is_small = is_small(core, ext);
            if is_small && row.as_mut().is_some_and(|row| row.takes(at, ext)) {
                continue;
            }
            groups.extend(row.take().and_then(|row| row.group(key)));
            row = is_small.then(|| Row { offset: at, len: u64::from(ext.len), dev: ext.dev, extents: 1 });
        }
        groups.extend(row.and_then(|row| row.group(key)));
    }
    groups.dedup_by(|next, before| before.key == next.key && before.offset + before.len > next.offset);
    groups
}

/// Returns object slots and ranges written since the last cut, each byte once, in order.
fn written(core: &Core, member: ContainerId) -> Vec<(u32, u64, u64)> {
    let Some(container) = core.state.containers.get(member) else { return Vec::new() };
    // Scattered blocks of whole units have nothing to merge.
    let is_long = container.unsaved.fresh.len() > RANGES_MANY;
    let unit = u64::from(FILE_UNIT_BYTES);
    let is_wanted = |fresh: &&Fresh| {
        let is_block = fresh.len <= BLOCK_BYTES && fresh.len.is_multiple_of(unit) && fresh.offset.is_multiple_of(unit);
        let object = core.state.objects.get(fresh.slot);
        !(is_long && is_block) && object.generation == fresh.generation && object.presence == Presence::Live
    };
    let mut ranges: Vec<_> = container
        .unsaved
        .fresh
        .iter()
        .take(LOOKED_MAX)
        .filter(is_wanted)
        .map(|fresh| (fresh.slot, fresh.offset, fresh.offset + fresh.len))
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let meets = next.0 == before.0 && next.1 <= before.2;
        if meets {
            before.2 = before.2.max(next.2);
        }
        meets
    });
    ranges
}

/// Returns the begin of the small neighbours before `offset`.
fn first_small(core: &Core, slot: u32, offset: u64) -> u64 {
    let map = &core.state.objects.get(slot).map;
    let mut from = offset;
    for _ in 0..LEFT_MAX {
        let Some(last) = from.checked_sub(1) else { return from };
        match map.overlapping(last, from).next() {
            Some((at, ext)) if is_small(core, ext) => from = at,
            _ => return from,
        }
    }
    from
}

/// Returns true for an extent in memory that wastes part of its units. Whole runs only: a part of a run has no checksum
/// of its own.
fn is_small(core: &Core, ext: &Ext) -> bool {
    let is_whole = ext.skip == 0 && ext.len == ext.run_len && !ext.is_packed();
    let device = core.state.space.get(ext.dev);
    ext.len < SMALL_BYTES
        && !ext.len.is_multiple_of(FILE_UNIT_BYTES)
        && is_whole
        && device.is_volatile()
        && device.device.is_some()
        && !core.state.space.shared.is_shared(ext.dev, ext.place().unit_at(0))
}

/// Writes the bytes of a group to one place. `None` if they do not match their checksums: the scrub reports that.
fn gather_dense(core: &mut Core, group: &Group, device: &Arc<dyn Device>, at: u64) -> Option<Extent> {
    let slot = core.state.find_object(group.key)?;
    let mut bytes = vec![0; usize::try_from(group.len).ok()?];
    for (offset, ext) in core.state.objects.get(slot).map.overlapping(group.offset, group.offset + group.len) {
        let from = usize::try_from(offset.checked_sub(group.offset)?).ok()?;
        let part = bytes.get_mut(from..from + ext.len as usize)?;
        device.read_at(ext.run_offset, part).ok()?;
        if sum_of(part) != *ext.sums().first()? {
            return None;
        }
    }
    let sums: Vec<u32> = bytes.chunks(UNIT as usize).map(sum_of).collect();
    device.write_at(at, &bytes).ok()?;
    // The replaced extents were verified, so verify the new one too.
    device.read_at(at, &mut bytes).ok()?;
    if !bytes.chunks(UNIT as usize).map(sum_of).eq(sums.iter().copied()) {
        return None;
    }
    Some(Extent::whole(core.state.space.get(group.dev).id, at, u32::try_from(group.len).ok()?, Sums::from_slice(&sums)))
}

impl Row {
    /// Adds an extent, if it follows directly and there is room.
    fn takes(&mut self, at: u64, ext: &Ext) -> bool {
        let len = self.len + u64::from(ext.len);
        let takes = self.dev == ext.dev && self.offset + self.len == at && len <= DENSE_BYTES_MAX;
        if takes {
            (self.len, self.extents) = (len, self.extents + 1);
        }
        takes
    }
    fn group(self, key: ObjectKey) -> Option<Group> {
        (self.extents > 1).then_some(Group { key, offset: self.offset, len: self.len, dev: self.dev })
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::{Birth, Codec, DeviceId, Packed};

    use smallvec::SmallVec;

    use super::*;
    use crate::engine::filled::filled_before_a_file;

    #[test]
    fn small_is_a_whole_plain_run_of_its_own_in_memory() {
        let mut engine = filled_before_a_file(&Arc::<MemClock>::default(), 1);
        let of = |len: u32| {
            Ext::from_model(&Extent::whole(DeviceId(1), 1 << 20, len, Sums::from_slice(&[7])), 0, 0, Birth(1))
        };
        let packed = Packed::new(Codec::Lz4, 0, 12, 100, &[60]).map(Arc::new);
        let with_packed = |mut ext: Ext| {
            ext.set_run(&[7], packed.clone(), SmallVec::new());
            ext
        };
        assert!(is_small(&engine.core, &of(100)) && is_small(&engine.core, &of(SMALL_BYTES - 1)));
        for (why, ext) in [
            ("it is long", of(SMALL_BYTES + 1)),
            ("it is whole units of a file", of(FILE_UNIT_BYTES)),
            ("it begins inside of its run", Ext { skip: 1, len: 99, ..of(100) }),
            ("it ends inside of its run", Ext { len: 99, ..of(100) }),
            ("it is compressed", with_packed(of(100))),
            ("it is on a file", Ext { dev: 1, ..of(100) }),
        ] {
            assert!(!is_small(&engine.core, &ext), "{why}");
        }
        engine.core.state.space.shared.touch_again(0, 1 << 20);
        assert!(!is_small(&engine.core, &of(100)), "others are the same bytes");
        engine.core.state.space.shared.release(0, 1 << 20);
        engine.core.state.space.get_mut(0).device = None;
        assert!(!is_small(&engine.core, &of(100)), "its device is not open");
    }
}
