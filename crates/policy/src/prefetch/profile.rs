//! The order of a program's reads: learned in one run, used in the next.

use std::collections::HashMap;

use cenote_model::{ContainerId, ObjectId, ObjectKey};

/// Upper bound of an encoded profile's bytes.
pub const PROFILE_BYTES_MAX: usize = 64 << 10;
/// The version written; each later version also reads it.
const VERSION: u8 = 1;
/// Upper bound of the steps in a profile.
const STEPS_MAX: usize = 8192;
/// Upper bound of the objects in a profile.
const OBJECTS_MAX: usize = 1024;

/// Reads of one object at a constant stride.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    object: u32,
    offset: u64,
    stride: i64,
    count: u32,
    bytes: u32,
}

impl Step {
    fn at(&self, nth: u32) -> Option<u64> {
        let offset = i128::from(self.offset) + i128::from(self.stride) * i128::from(nth);
        (nth < self.count).then(|| u64::try_from(offset).ok()).flatten()
    }
}

/// A position in the profile: the step, and the index of its next read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    step: u32,
    nth: u32,
}

/// A learned sequence of reads: steps in order, and links where the sequence continued at another step than the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessProfile {
    objects: Vec<ObjectKey>,
    steps: Vec<Step>,
    /// Links from a step to its successor.
    links: HashMap<u32, u32>,
}

/// Follows a profile while reads come, and extends it with new reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Follower {
    profile: AccessProfile,
    numbers: HashMap<ObjectKey, u32>,
    begins: HashMap<(u32, u64), u32>,
    /// The expected next read; `None` if it is unknown.
    cursor: Option<Cursor>,
    /// Number of consecutive reads that came as expected.
    pub hits: u32,
    is_recording: bool,
}

impl Follower {
    pub fn new(profile: AccessProfile) -> Self {
        let numbers = profile.objects.iter().enumerate().map(|(i, key)| (*key, i as u32)).collect();
        let mut begins = HashMap::new();
        for (i, step) in profile.steps.iter().enumerate() {
            begins.entry((step.object, step.offset)).or_insert(i as u32);
        }
        Self { profile, numbers, begins, ..Self::default() }
    }
    pub fn profile(&self) -> &AccessProfile {
        &self.profile
    }

    /// Takes the next read.
    pub fn see(&mut self, object: ObjectKey, offset: u64, bytes: u32) {
        let Some(number) = self.number(object) else {
            (self.cursor, self.hits, self.is_recording) = (None, 0, false);
            return;
        };
        if let Some(cursor) = self.cursor.and_then(|cursor| self.settle(cursor)) {
            let step = self.profile.steps[cursor.step as usize];
            if step.object == number && step.at(cursor.nth) == Some(offset) {
                self.hits = self.hits.saturating_add(1);
                self.cursor = Some(Cursor { nth: cursor.nth + 1, ..cursor });
                self.is_recording = false;
                return;
            }
        }
        self.hits = 0;
        let from = if self.is_recording { self.profile.steps.len().checked_sub(1) } else { self.at_end_of() };
        if let Some(step) = self.begins.get(&(number, offset)).copied() {
            // A known sequence: it continues as before.
            if let Some(from) = from {
                self.profile.links.insert(from as u32, step);
            }
            self.cursor = Some(Cursor { step, nth: 1 });
            self.is_recording = false;
            return;
        }
        self.cursor = None;
        self.record(Step { object: number, offset, stride: 0, count: 1, bytes });
    }

    /// The step whose last read was the last read of all.
    fn at_end_of(&self) -> Option<usize> {
        let cursor = self.cursor?;
        let step = self.profile.steps.get(cursor.step as usize)?;
        (cursor.nth >= step.count).then_some(cursor.step as usize)
    }

    fn record(&mut self, read: Step) {
        if self.is_recording
            && let Some(last) = self.profile.steps.last_mut()
            && last.object == read.object
            && last.bytes == read.bytes
        {
            let before = last.at(last.count - 1).unwrap_or(last.offset);
            let stride = read.offset.wrapping_sub(before) as i64;
            if last.count == 1 || last.stride == stride {
                (last.stride, last.count) = (stride, last.count.saturating_add(1));
                return;
            }
        }
        if self.profile.steps.len() >= STEPS_MAX {
            self.is_recording = false;
            return;
        }
        self.begins.insert((read.object, read.offset), self.profile.steps.len() as u32);
        self.profile.steps.push(read);
        self.is_recording = true;
    }

    fn number(&mut self, object: ObjectKey) -> Option<u32> {
        if let Some(number) = self.numbers.get(&object) {
            return Some(*number);
        }
        if self.profile.objects.len() >= OBJECTS_MAX {
            return None;
        }
        let number = self.profile.objects.len() as u32;
        self.profile.objects.push(object);
        self.numbers.insert(object, number);
        Some(number)
    }

    /// Moves a cursor past the end of its step to the successor step.
    fn settle(&self, cursor: Cursor) -> Option<Cursor> {
        let step = self.profile.steps.get(cursor.step as usize)?;
        if cursor.nth < step.count {
            return Some(cursor);
        }
        let next = self.profile.links.get(&cursor.step).copied().unwrap_or(cursor.step + 1);
        ((next as usize) < self.profile.steps.len()).then_some(Cursor { step: next, nth: 0 })
    }

    /// The following reads, at most `depth`.
    pub fn ahead(&self, depth: usize) -> impl Iterator<Item = (ObjectKey, u64, u32)> + '_ {
        let mut cursor = self.cursor;
        (0..depth).map_while(move |_| {
            let here = self.settle(cursor?)?;
            let step = self.profile.steps[here.step as usize];
            cursor = Some(Cursor { nth: here.nth + 1, ..here });
            Some((self.profile.objects[step.object as usize], step.at(here.nth)?, step.bytes))
        })
    }
}

impl AccessProfile {
    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }
    /// Returns true if nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
    /// Encodes the profile in at most [`PROFILE_BYTES_MAX`] bytes; drops the latest steps if it would be longer.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let mut known = 0;
        let mut steps = Vec::new();
        let mut objects = Vec::new();
        let room = PROFILE_BYTES_MAX - 32;
        let mut links: Vec<(u32, u32)> = self.links.iter().map(|(from, to)| (*from, *to)).collect();
        links.sort_unstable();
        let link_bytes = (links.len() * 6).min(room / 4);
        links.truncate(link_bytes / 6);
        let mut taken = 0_u64;
        for step in &self.steps {
            let (objects_before, steps_before) = (objects.len(), steps.len());
            let known_before = known;
            while known <= step.object as usize {
                let key = self.objects[known];
                put(&mut objects, key.container.0);
                objects.extend(key.object.0.to_le_bytes());
                known += 1;
            }
            put(&mut steps, u64::from(step.object));
            put(&mut steps, step.offset);
            put(&mut steps, zigzag(step.stride));
            put(&mut steps, u64::from(step.count));
            put(&mut steps, u64::from(step.bytes));
            if objects.len() + steps.len() + link_bytes > room {
                objects.truncate(objects_before);
                steps.truncate(steps_before);
                known = known_before;
                break;
            }
            taken += 1;
        }
        links.retain(|(from, to)| u64::from(*from) < taken && u64::from(*to) < taken);
        put(&mut bytes, known as u64);
        bytes.extend(objects);
        put(&mut bytes, taken);
        bytes.extend(steps);
        put(&mut bytes, links.len() as u64);
        for (from, to) in links {
            put(&mut bytes, u64::from(from));
            put(&mut bytes, u64::from(to));
        }
        bytes
    }
    /// Decodes the result of [`AccessProfile::encode`]; for any other bytes, an error says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > PROFILE_BYTES_MAX {
            return Err(format!("an access profile of {} bytes; at most {PROFILE_BYTES_MAX} are allowed", bytes.len()));
        }
        let mut from = bytes;
        let version = *from.split_off_first().ok_or("an access profile without bytes")?;
        if version != VERSION {
            return Err(format!("an access profile of version {version}; known is {VERSION}"));
        }
        let mut profile = Self::default();
        for _ in 0..get_up_to(&mut from, OBJECTS_MAX as u64)? {
            let container = ContainerId(get(&mut from)?);
            let id = from.split_off(..16).ok_or("an access profile that ends within an object's id")?;
            let mut le = [0; 16];
            le.copy_from_slice(id);
            profile.objects.push(ObjectKey { container, object: ObjectId(u128::from_le_bytes(le)) });
        }
        for _ in 0..get_up_to(&mut from, STEPS_MAX as u64)? {
            let object = get(&mut from)?;
            if object >= profile.objects.len() as u64 {
                return Err("an access profile that names an object which it has not".into());
            }
            let (offset, stride) = (get(&mut from)?, unzigzag(get(&mut from)?));
            let count = get_up_to(&mut from, u64::from(u32::MAX))? as u32;
            let bytes = get_up_to(&mut from, u64::from(u32::MAX))? as u32;
            if count == 0 {
                return Err("an access profile with a step without reads".into());
            }
            profile.steps.push(Step { object: object as u32, offset, stride, count, bytes });
        }
        let steps = profile.steps.len() as u64;
        for _ in 0..get_up_to(&mut from, steps)? {
            let (step, next) = (get(&mut from)?, get(&mut from)?);
            if step >= steps || next >= steps {
                return Err("an access profile with a link to nowhere".into());
            }
            profile.links.insert(step as u32, next as u32);
        }
        if from.is_empty() { Ok(profile) } else { Err(format!("an access profile with {} bytes too many", from.len())) }
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
fn get(from: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *from.split_off_first().ok_or("an access profile that ends within a number")?;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("an access profile with a number of more than 64 bits".into())
}
fn get_up_to(from: &mut &[u8], most: u64) -> Result<u64, String> {
    let value = get(from)?;
    if value <= most { Ok(value) } else { Err(format!("an access profile with {value} where at most {most} can be")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: u128) -> ObjectKey {
        ObjectKey { container: ContainerId(3), object: ObjectId(id << 64 | 7) }
    }

    #[test]
    fn what_one_run_read_the_next_foresees() {
        let pass: Vec<(ObjectKey, u64)> = (0..50_u64)
            .flat_map(|i| {
                let jump = i * 7919 % 50 * 65_536;
                [(object(u128::from(i % 5)), jump), (object(9), i * 4096), (object(9), i * 4096 + 1_000_000)]
            })
            .collect();
        let mut first = Follower::default();
        for (key, offset) in &pass {
            first.see(*key, *offset, 4096);
        }
        let bytes = first.profile().encode();
        assert!(bytes.len() <= PROFILE_BYTES_MAX);
        let profile = AccessProfile::decode(&bytes).unwrap();
        assert_eq!(&profile, first.profile());
        let mut second = Follower::new(profile);
        let mut right = 0;
        for _ in 0..2 {
            for (key, offset) in &pass {
                right += usize::from(second.ahead(1).next().is_some_and(|next| (next.0, next.1) == (*key, *offset)));
                second.see(*key, *offset, 4096);
            }
        }
        assert!(right >= 2 * pass.len() - 2, "{right} of {}", 2 * pass.len());
        assert_eq!(second.ahead(1).count(), 1, "the end leads to the begin again");
    }

    #[test]
    fn never_more_than_64_kib() {
        let mut follower = Follower::default();
        for i in 0..20_000_u64 {
            let at = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1;
            follower.see(object(u128::from(i % 2000)), at, 4096);
        }
        let bytes = follower.profile().encode();
        assert!(bytes.len() <= PROFILE_BYTES_MAX && bytes.len() > PROFILE_BYTES_MAX / 2, "{}", bytes.len());
        assert!(!AccessProfile::decode(&bytes).unwrap().is_empty());
    }

    #[test]
    fn hostile_bytes_are_refused_or_harmless() {
        let mut follower = Follower::default();
        (0..64_u64).for_each(|i| follower.see(object(u128::from(i % 3)), i * i * 100, 10));
        let good = follower.profile().encode();
        let mut state = 42_u64;
        for cut in 0..good.len() {
            assert!(AccessProfile::decode(&good[..cut]).is_err(), "cut at {cut}");
            for _ in 0..20 {
                let mut bad = good.clone();
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bad[cut] ^= (state >> 56) as u8;
                if let Ok(profile) = AccessProfile::decode(&bad) {
                    let mut follower = Follower::new(profile);
                    (0..64_u64).for_each(|i| {
                        follower.see(object(u128::from(i % 3)), i * i * 100, 10);
                        assert!(follower.ahead(1000).count() <= 1000);
                    });
                }
            }
        }
        let mut huge = vec![VERSION];
        put(&mut huge, u64::MAX);
        assert!(AccessProfile::decode(&huge).is_err());
        assert!(AccessProfile::decode(&[VERSION + 1]).unwrap_err().contains("version"));
        assert!(AccessProfile::decode(&vec![0xff; PROFILE_BYTES_MAX + 1]).is_err());
    }
}
