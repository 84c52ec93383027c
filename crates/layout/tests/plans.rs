//! Plans: reads name only what can be reached and give the bytes, exactly while enough is left; repair is spread.

use std::collections::{HashMap, HashSet};

use cenote_layout::plan::{Form, ReadPlan, Segment, Speed, Stuck, hedge, hedge_after_us, plan_read, plan_rebuild};
use cenote_layout::{Candidate, Code, Domain, Layout, Place, StripeKey, choose, part_lengths, survives, weakest};
use cenote_model::{ContainerId, DeviceId, ErrorKind, NodeId, ObjectId, ObjectKey};
use cenote_workload::Rng;

fn place(node: u16) -> Place {
    Place { node: NodeId(node), device: DeviceId(0) }
}

fn key(stripe: u64) -> StripeKey {
    StripeKey { object: ObjectKey { container: ContainerId(1), object: ObjectId(9) }, stripe }
}

/// An object with the bytes of each part of each segment.
struct World {
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    parts: Vec<Vec<Vec<u8>>>,
    speeds: HashMap<Place, Speed>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut world = Self { bytes: Vec::new(), segments: Vec::new(), parts: Vec::new(), speeds: HashMap::new() };
        let nodes = rng.between(8, 14) as u16;
        let all: Vec<Candidate> = (0..nodes).map(|node| Candidate { place: place(node), weight: 1 }).collect();
        for number in 0..rng.between(1, 4) {
            let text = [
                "plain",
                "mirror=2",
                "mirror=3",
                "stripe=3,unit=4096",
                "4+2,unit=4096",
                "2+1,unit=4096",
                "5+3,unit=4096",
            ];
            let layout: Layout = rng.pick(&text).parse().unwrap();
            // Now and then a short stripe, as at the end of an object or after a flush.
            let whole = if layout.has_units() { layout.stripe_bytes() } else { 9000 };
            let len = if rng.chance(500) { whole } else { rng.size(whole) };
            world.add(&layout, len, choose(key(number), &layout, &all).unwrap(), &mut rng);
        }
        for candidate in all {
            let speed = Speed { latency_us: rng.between(1, 500) as f64, bytes_per_us: rng.between(100, 9000) as f64 };
            if !rng.chance([0, 100, 300, 500][(seed % 4) as usize]) {
                world.speeds.insert(candidate.place, speed);
            }
        }
        world
    }

    fn add(&mut self, layout: &Layout, len: u64, places: Vec<Place>, rng: &mut Rng) {
        let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        let mut parts: Vec<Vec<u8>> = part_lengths(layout, len).iter().map(|len| vec![0; *len as usize]).collect();
        let segment = Segment::new(layout, self.bytes.len() as u64, len, places);
        if let Form::Stripe { data, unit_bytes } = segment.form {
            for (part, chunk) in bytes.chunks(unit_bytes as usize).enumerate() {
                parts[part].copy_from_slice(chunk);
            }
            let (data_parts, parity) = parts.split_at_mut(data);
            let data_parts: Vec<&[u8]> = data_parts.iter().map(Vec::as_slice).collect();
            let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            Code::new(data, parity.len()).unwrap().encode(&data_parts, &mut parity).unwrap();
        } else {
            for part in &mut parts {
                part.copy_from_slice(&bytes);
            }
        }
        for (part, bytes) in parts.iter().enumerate() {
            assert_eq!(segment.part_len(part), bytes.len() as u64);
        }
        self.bytes.extend(bytes);
        self.segments.push(segment);
        self.parts.push(parts);
    }

    fn speed(&self, place: Place) -> Option<Speed> {
        self.speeds.get(&place).copied()
    }

    /// Carries a plan out and returns the bytes of the range.
    fn carry_out(&self, plan: &ReadPlan, range: std::ops::Range<u64>) -> Vec<u8> {
        let mut read: HashMap<(usize, usize), (u64, Vec<u8>)> = HashMap::new();
        for one in &plan.reads {
            assert!(self.speeds.contains_key(&one.place), "{one:?} cannot be reached");
            assert_eq!(self.segments[one.segment].places[one.part], one.place);
            let bytes = &self.parts[one.segment][one.part][one.part_offset as usize..][..one.len as usize];
            let twice = read.insert((one.segment, one.part), (one.part_offset, bytes.to_vec()));
            assert!(twice.is_none(), "{one:?} is read twice");
        }
        for decode in &plan.decodes {
            let bytes = self.decode(decode, &read);
            let merged = read.entry((decode.segment, decode.part)).or_insert((decode.part_offset, Vec::new()));
            assert!(merged.1.is_empty(), "a part that is read and computed");
            merged.1 = bytes;
        }
        let mut out = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            for at in segment.range().start.max(range.start)..segment.range().end.min(range.end) {
                let within = at - segment.offset;
                out.push(match segment.form {
                    Form::Copies => {
                        let (_, (first, bytes)) = read.iter().find(|((of, _), _)| *of == number).expect("a copy");
                        bytes[(within - first) as usize]
                    }
                    Form::Stripe { unit_bytes, .. } => {
                        let (first, bytes) = &read[&(number, (within / unit_bytes) as usize)];
                        bytes[(within % unit_bytes - first) as usize]
                    }
                });
            }
        }
        out
    }

    fn decode(&self, decode: &cenote_layout::plan::Decode, read: &HashMap<(usize, usize), (u64, Vec<u8>)>) -> Vec<u8> {
        let segment = &self.segments[decode.segment];
        let Form::Stripe { data, .. } = segment.form else { panic!("copies need no decoding") };
        let (begin, end) = (decode.part_offset, decode.part_offset + decode.len);
        let source = |part: usize| {
            if part < data && segment.part_len(part) <= begin {
                return Some(&[][..]);
            }
            decode.sources.contains(&part).then(|| {
                let (first, bytes) = &read[&(decode.segment, part)];
                let end = end.min(segment.part_len(part));
                &bytes[(begin - first) as usize..(end - first) as usize]
            })
        };
        let present: Vec<Option<&[u8]>> = (0..segment.places.len()).map(source).collect();
        let mut out = vec![0; decode.len as usize];
        let code = Code::new(data, segment.places.len() - data).unwrap();
        code.rebuild(&present, &mut [(decode.part, &mut out)]).unwrap();
        out
    }

    /// Whether this byte can be had: it is where it can be reached, or enough other parts have what lies beside it.
    fn is_readable(&self, at: u64) -> bool {
        let segment = self.segments.iter().find(|segment| segment.range().contains(&at)).unwrap();
        let reachable = |part: usize| self.speeds.contains_key(&segment.places[part]);
        match segment.form {
            Form::Copies => (0..segment.places.len()).any(reachable),
            Form::Stripe { data, unit_bytes } => {
                let part = ((at - segment.offset) / unit_bytes) as usize;
                let beside =
                    |other: usize| other < data && segment.part_len(other) <= (at - segment.offset) % unit_bytes;
                let known = (0..segment.places.len()).filter(|part| reachable(*part) || beside(*part)).count();
                reachable(part) || known >= data
            }
        }
    }
}

#[test]
fn reads_give_the_bytes_exactly_while_enough_parts_are_left() {
    let (mut degraded, mut refused) = (0, 0);
    for seed in 0..6000 {
        let world = World::new(seed);
        let mut rng = Rng::new(seed ^ 0xdead);
        let begin = rng.below(world.bytes.len() as u64);
        let range = begin..rng.between(begin, world.bytes.len() as u64);
        let speeds = |place| world.speed(place);
        match plan_read(&world.segments, range.clone(), &speeds) {
            Ok(plan) => {
                let expected = &world.bytes[range.start as usize..range.end as usize];
                assert!(world.carry_out(&plan, range.clone()) == expected, "seed {seed}: {plan:?}");
                degraded += u32::from(!plan.decodes.is_empty());
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Disconnected, "seed {seed}");
                assert!(range.clone().any(|at| !world.is_readable(at)), "seed {seed}: {error}");
                refused += 1;
            }
        }
        if range.clone().step_by(97).chain(range.clone().last()).any(|at| !world.is_readable(at)) {
            assert!(plan_read(&world.segments, range, &speeds).is_err(), "seed {seed}: bytes of nowhere");
        }
    }
    assert!(degraded > 300 && refused > 300, "{degraded} degraded, {refused} refused");
}

#[test]
fn the_fastest_copy_is_read_and_the_fastest_parts_stand_in() {
    let mirror = Segment::new(&"mirror=3".parse().unwrap(), 0, 100, vec![place(1), place(2), place(3)]);
    let speeds =
        |place: Place| Some(Speed { latency_us: [0.0, 9.0, 2.0, 5.0][usize::from(place.node.0)], bytes_per_us: 1e3 });
    let plan = plan_read(&[mirror], 10..20, &speeds).unwrap();
    assert_eq!(
        (plan.reads.len(), plan.reads[0].place, plan.reads[0].part_offset, plan.reads[0].len),
        (1, place(2), 10, 10)
    );

    let coded = Segment::new(&"2+2,unit=4096".parse().unwrap(), 0, 8192, (0..4).map(place).collect());
    let latency = [None, Some(50.0), Some(7.0), Some(3.0)];
    let speeds =
        |place: Place| latency[usize::from(place.node.0)].map(|latency_us| Speed { latency_us, bytes_per_us: 1e9 });
    let plan = plan_read(std::slice::from_ref(&coded), 100..200, &speeds).unwrap();
    assert_eq!(plan.decodes[0].sources, [3, 2], "the slow data part is left out");
    // Once the slow part is read anyway it costs nothing more.
    let plan = plan_read(&[coded], 100..4300, &speeds).unwrap();
    assert_eq!(plan.decodes[0].sources, [1, 3]);
    assert_eq!(plan.reads.iter().map(|read| read.part).collect::<HashSet<_>>(), HashSet::from([1, 3]));
}

#[test]
fn a_late_read_is_asked_of_others_once_it_is_late() {
    let mut hedged = 0;
    for seed in 0..3000 {
        let world = World::new(seed);
        let speeds = |place| world.speed(place);
        let range = 0..world.bytes.len() as u64;
        let Ok(plan) = plan_read(&world.segments, range.clone(), &speeds) else { continue };
        let late = Rng::new(seed).index(plan.reads.len());
        let read = plan.reads[late];
        let after = hedge_after_us(&read);
        assert!(hedge(&plan, late, after * 0.99, &world.segments, &speeds).is_empty(), "seed {seed}: too early");
        let more = hedge(&plan, late, after * 1.01, &world.segments, &speeds);
        // What a plan without the late place would do can be done with the reads that there are now.
        let without = |place| (place != read.place).then(|| world.speed(place)).flatten();
        let within = world.segments[read.segment].range();
        let possible = plan_read(&world.segments, within, &without).is_ok();
        assert_eq!(!more.is_empty(), possible && hedge_is_useful(&plan, late, &world), "seed {seed}: {more:?}");
        assert!(more.iter().all(|one| one.place != read.place && world.speeds.contains_key(&one.place)), "seed {seed}");
        hedged += u32::from(!more.is_empty());
    }
    assert!(hedged > 500, "{hedged}");
}

/// Parts under way may suffice already.
fn hedge_is_useful(plan: &ReadPlan, late: usize, world: &World) -> bool {
    let read = plan.reads[late];
    let segment = &world.segments[read.segment];
    let Form::Stripe { data, .. } = segment.form else { return true };
    let range = read.part_offset..read.part_offset + read.len;
    let covers = |other: &&cenote_layout::plan::Read| {
        other.segment == read.segment
            && other.part != read.part
            && other.part_offset <= range.start
            && other.part_offset + other.len >= range.end.min(segment.part_len(other.part))
    };
    let zeros = (0..data).filter(|part| segment.part_len(*part) <= range.start).count();
    plan.reads.iter().filter(covers).count() + zeros < data
}

#[test]
fn survival_is_what_any_choice_of_losses_leaves() {
    for seed in 0..1500 {
        let mut rng = Rng::new(seed);
        let (data, all) = (rng.between(2, 4) as usize, rng.between(5, 7) as usize);
        // Repair in a hurry may put two parts on one node: counted, not assumed away.
        let places: Vec<Place> =
            (0..all).map(|part| Place { node: NodeId(rng.below(6) as u16), device: DeviceId(part as u16) }).collect();
        let live: Vec<bool> = (0..all).map(|_| rng.chance(800)).collect();
        let form = if seed % 3 == 0 { Form::Copies } else { Form::Stripe { data, unit_bytes: 10 } };
        let segment = Segment { offset: 0, len: 10 * data as u64, form, places: places.clone() };
        let needed = segment.sufficient();
        let is_live = |place: Place| live[usize::from(place.device.0)];
        let survival = survives(std::slice::from_ref(&segment), Domain::Node, is_live);
        let left_without = |nodes: u32| {
            places.iter().filter(|place| is_live(**place) && nodes >> place.node.0 & 1 == 0).count() >= needed
        };
        let worst =
            (0..=6).take_while(|losses| (0..64_u32).filter(|set| set.count_ones() == *losses).all(left_without));
        let expected = worst.last().map(|losses| losses as usize);
        assert_eq!(survival[0].losses, expected, "seed {seed}: {segment:?} {live:?}");
        assert_eq!(weakest(&survival), Some(&survival[0]));
    }
    assert_eq!(weakest(&[]), None);
}

fn stripes(layout: &Layout, count: u64, all: &[Candidate]) -> Vec<(StripeKey, Layout, Segment)> {
    let bytes = layout.stripe_bytes();
    let stripe = |number: u64| {
        let places = choose(key(number), layout, all).unwrap();
        (key(number), *layout, Segment::new(layout, number * bytes, bytes, places))
    };
    (0..count).map(stripe).collect()
}

#[test]
fn a_rebuild_reads_from_all_survivors_alike_and_writes_to_all_alike() {
    let all: Vec<Candidate> = (0..24).map(|node| Candidate { place: place(node), weight: 1 }).collect();
    for text in ["4+2", "mirror=3", "8+3"] {
        let layout: Layout = text.parse().unwrap();
        let segments = stripes(&layout, 4000, &all);
        let dead = place(7);
        let live: Vec<Candidate> = all.iter().copied().filter(|one| one.place != dead).collect();
        let plan = plan_rebuild(&segments, |place| place != dead, &live);
        assert!(plan.stuck.is_empty());
        let (mut read, mut written) = (HashMap::new(), HashMap::new());
        for task in &plan.tasks {
            let segment = &segments[task.segment].2;
            assert_eq!(task.targets.len(), 1);
            assert_eq!(segment.places[task.targets[0].0], dead);
            assert!(!segment.places.contains(&task.targets[0].1), "{task:?}");
            assert_eq!(task.sources.len(), layout.data_parts());
            assert!(task.sources.iter().all(|(part, place)| segment.places[*part] == *place && *place != dead));
            for (_, place) in &task.sources {
                *read.entry(*place).or_insert(0_u32) += 1;
            }
            *written.entry(task.targets[0].1).or_insert(0_u32) += 1;
        }
        let lost = segments.iter().filter(|(_, _, segment)| segment.places.contains(&dead)).count();
        assert_eq!(plan.tasks.len(), lost, "{text}");
        // Reads are dealt out, targets drawn: these scatter as draws do.
        let mean = |counts: &HashMap<Place, u32>| f64::from(counts.values().sum::<u32>()) / 23.0;
        for (counts, most) in [(&read, 1.1 * mean(&read)), (&written, mean(&written) + 5.0 * mean(&written).sqrt())] {
            let peak = f64::from(*counts.values().max().unwrap());
            assert!(counts.len() == 23 && peak < most, "{text}: {peak} with a mean of {}", mean(counts));
        }
    }
}

#[test]
fn what_survives_least_is_rebuilt_first_and_what_is_lost_is_said() {
    let all: Vec<Candidate> = (0..10).map(|node| Candidate { place: place(node), weight: 1 }).collect();
    let segments = stripes(&"4+2".parse().unwrap(), 500, &all);
    let dead = [place(1), place(2), place(3)];
    let is_live = |place| !dead.contains(&place);
    let live: Vec<Candidate> = all.iter().copied().filter(|one| is_live(one.place)).collect();
    let plan = plan_rebuild(&segments, is_live, &live);
    let losses: Vec<usize> = plan.tasks.iter().map(|task| task.losses).collect();
    assert!(losses.is_sorted() && losses.first() == Some(&0) && losses.last() == Some(&1), "{losses:?}");
    let mut seen = HashSet::new();
    for stuck in &plan.stuck {
        let Stuck::Lost { segment, left, needed } = stuck else { panic!("{stuck:?}") };
        assert_eq!((*left, *needed), (3, 4));
        assert!(seen.insert(*segment));
    }
    for (number, (_, _, segment)) in segments.iter().enumerate() {
        let lost = segment.places.iter().filter(|place| !is_live(**place)).count();
        assert_eq!(seen.contains(&number), lost == 3, "{number}");
        assert_eq!(plan.tasks.iter().any(|task| task.segment == number), (1..3).contains(&lost), "{number}");
    }
    // With fewer nodes than parts nothing can be made good, and the plan says how many there should be.
    let few: Vec<Candidate> = all[4..9].to_vec();
    let plan = plan_rebuild(&segments, |place| few.iter().any(|one| one.place == place), &few);
    assert!(plan.tasks.is_empty());
    let said = |stuck: &Stuck| matches!(stuck, Stuck::NoPlace { error, .. } if error.cause().contains("needs 6 nodes"));
    assert!(plan.stuck.iter().any(said), "{:?}", plan.stuck);
}
