//! One answer from those of several engines of a store. This file must not know which engines were asked, nor why.

use cenote_model::{
    Arrangement, ContainerInfo, Counts, DeviceId, DeviceInfo, FlowWhy, PolicyState, Request, Response, StoreStats,
    Telemetry, Timed, VerifyReport,
};
use cenote_store::{CONTAINERS_MAX, FOLLOWERS_MAX, LIMIT_MAX, LISTED_MAX};

/// How the answers to a request become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// All must succeed; the landlord's answer counts, with what the others add to it.
    Sum,
    /// Containers in the order of labels, so many at most.
    Containers(u32),
    /// The most used objects, so many at most.
    Telemetry(u32),
}

impl Merge {
    /// That of a request to all engines.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::ContainerList { limit, .. } => Self::Containers(*limit),
            Request::Telemetry { hot } => Self::Telemetry(*hot),
            _ => Self::Sum,
        }
    }
    /// The answer from all of them, the landlord's first. The first failure is the whole's.
    pub fn merge(self, all: Vec<Response>) -> Response {
        if let Some(at) = all.iter().position(|response| matches!(response, Response::Failed(_))) {
            return all.into_iter().nth(at).unwrap_or(Response::Done);
        }
        let mut all = all.into_iter();
        let Some(mut sum) = all.next() else { return Response::Done };
        all.for_each(|response| add(&mut sum, response));
        match (self, &mut sum) {
            (Self::Containers(limit), Response::Containers(list)) => {
                list.sort_by(|a, b| a.label.cmp(&b.label));
                list.truncate(limit.min(LIMIT_MAX) as usize);
            }
            (Self::Telemetry(hot), Response::Telemetry(told)) => finish_telemetry(told, hot),
            _ => {}
        }
        sum
    }
}

fn add(sum: &mut Response, other: Response) {
    match (sum, other) {
        (Response::Containers(list), Response::Containers(more)) => list.extend::<Vec<ContainerInfo>>(more),
        (Response::Devices(devices), Response::Devices(more)) => add_devices(devices, more),
        (Response::Stats(stats), Response::Stats(more)) => add_stats(stats, &more),
        (Response::Moved(bytes), Response::Moved(more)) => *bytes += more,
        (Response::Progress(list), Response::Progress(more)) => list.extend(more),
        (Response::Verified(report), Response::Verified(more)) => add_verified(report, more),
        (Response::Arranged(done), Response::Arranged(more)) => add_arranged(done, *more),
        (Response::Policy(state), Response::Policy(more)) => add_policy(state, *more),
        (Response::Telemetry(told), Response::Telemetry(more)) => add_telemetry(told, *more),
        _ => {}
    }
}

/// The devices and their use, from those of all engines.
pub(crate) fn devices(all: Vec<Vec<DeviceInfo>>) -> Vec<DeviceInfo> {
    let mut all = all.into_iter();
    let mut sum = all.next().unwrap_or_default();
    all.for_each(|more| add_devices(&mut sum, more));
    sum
}

/// The telemetry of a store, from those of all engines.
pub(crate) fn telemetry(all: Vec<Telemetry>, hot: u32) -> Telemetry {
    let several = all.len() > 1;
    let mut all = all.into_iter();
    let mut sum = all.next().unwrap_or_default();
    all.for_each(|more| add_telemetry(&mut sum, more));
    if several {
        finish_telemetry(&mut sum, hot);
    }
    sum
}

fn add_devices(devices: &mut [DeviceInfo], more: Vec<DeviceInfo>) {
    for other in more {
        let Some(device) = devices.iter_mut().find(|device| device.id == other.id) else { continue };
        device.used_bytes += other.used_bytes;
        device.reserved_bytes += other.reserved_bytes;
        device.leased_bytes += other.leased_bytes;
        device.evictable_bytes += other.evictable_bytes;
        device.packed_bytes += other.packed_bytes;
        device.unpacked_bytes += other.unpacked_bytes;
        device.state = if device.state as u8 >= other.state as u8 { device.state } else { other.state };
        if device.note.is_empty() {
            device.note = other.note;
        }
    }
}

fn add_stats(stats: &mut StoreStats, more: &StoreStats) {
    stats.epoch += more.epoch;
    stats.containers += more.containers;
    stats.objects += more.objects;
    stats.indices += more.indices;
    stats.records += more.records;
    stats.extents += more.extents;
    stats.journal_bytes += more.journal_bytes;
    stats.moved_bytes += more.moved_bytes;
    stats.sessions = stats.sessions.max(more.sessions); // the same ones
    stats.scrub_findings += more.scrub_findings;
    stats.metadata_bytes += more.metadata_bytes;
    stats.values_here_bytes += more.values_here_bytes;
    stats.values_budget_bytes += more.values_budget_bytes;
    stats.values_away_bytes += more.values_away_bytes;
}

fn add_verified(report: &mut VerifyReport, more: VerifyReport) {
    report.objects += more.objects;
    report.bytes += more.bytes;
    report.findings.extend(more.findings);
    report.contradictions.extend(more.contradictions);
}

fn add_arranged(done: &mut Arrangement, more: Arrangement) {
    done.moves.extend(more.moves);
    done.moves.truncate(LISTED_MAX);
    done.ranges += more.ranges;
    done.bytes += more.bytes;
    done.moved_bytes += more.moved_bytes;
    done.cost_ns += more.cost_ns;
    done.staying_bytes += more.staying_bytes;
    if done.staying_why.is_empty() {
        done.staying_why = more.staying_why;
    }
    done.already_bytes += more.already_bytes;
    done.pinned_bytes += more.pinned_bytes;
    done.objects += more.objects;
}

fn add_policy(state: &mut PolicyState, more: PolicyState) {
    state.followers.extend(more.followers);
    state.followers.truncate(FOLLOWERS_MAX);
    for other in more.rules {
        let Some(rule) = state.rules.iter_mut().find(|rule| rule.name == other.name && rule.line == other.line) else {
            continue;
        };
        rule.ranges += other.ranges;
        rule.bytes += other.bytes;
        rule.deleted += other.deleted;
        if rule.last_error.is_empty() {
            rule.last_error = other.last_error;
        }
    }
    for other in more.plugins {
        let plugin = state.plugins.iter_mut().find(|plugin| plugin.name == other.name);
        if let Some(plugin) = plugin.filter(|plugin| plugin.failure.is_empty()) {
            plugin.failure = other.failure;
        }
    }
    if state.deletes_held.is_empty() {
        state.deletes_held = more.deletes_held;
    }
}

/// What clients count in their files is in the answer of every engine: the first one's stays.
fn add_telemetry(told: &mut Telemetry, more: Telemetry) {
    add_stats(&mut told.stats, &more.stats);
    add_devices(&mut told.devices, more.devices);
    for flow in more.flows.into_iter().filter(|flow| flow.why != FlowWhy::Read) {
        match told.flows.iter_mut().find(|it| (it.from, it.to, it.why) == (flow.from, flow.to, flow.why)) {
            Some(known) => {
                known.bytes += flow.bytes;
                known.operations += flow.operations;
            }
            None => told.flows.push(flow),
        }
    }
    told.hot.extend(more.hot);
    for row in more.heat {
        match told.heat.iter_mut().find(|known| known.tier == row.tier) {
            Some(known) => {
                known.bytes.iter_mut().zip(row.bytes).for_each(|(sum, bytes)| *sum += bytes);
                known.objects.iter_mut().zip(row.objects).for_each(|(sum, objects)| *sum += objects);
            }
            None => told.heat.push(row),
        }
    }
    for client in more.clients {
        match told.clients.iter_mut().find(|known| known.session == client.session) {
            Some(known) => {
                known.written_bytes += client.written_bytes;
                known.writes += client.writes;
                known.requests += client.requests;
                known.leased_bytes += client.leased_bytes;
            }
            None => told.clients.push(client),
        }
    }
    for user in more.users {
        match told.users.iter_mut().find(|known| known.uid == user.uid) {
            Some(known) => add_taken(&mut known.taken, user.taken),
            None => told.users.push(user),
        }
    }
    told.containers.extend(more.containers);
    for latency in more.latencies.into_iter().filter(|latency| !matches!(latency.what, Timed::Get | Timed::Put)) {
        match told.latencies.iter_mut().find(|known| (known.what, known.tier) == (latency.what, latency.tier)) {
            Some(known) => known.histogram.add(&latency.histogram),
            None => told.latencies.push(latency),
        }
    }
    add_counts(&mut told.counts, &more.counts);
}

fn add_taken(taken: &mut Vec<(DeviceId, u64)>, more: Vec<(DeviceId, u64)>) {
    for (tier, bytes) in more {
        match taken.iter_mut().find(|known| known.0 == tier) {
            Some(known) => known.1 += bytes,
            None => taken.push((tier, bytes)),
        }
    }
}

fn add_counts(counts: &mut Counts, more: &Counts) {
    counts.requests += more.requests;
    counts.stalls += more.stalls;
    counts.refusals += more.refusals;
    counts.prefetched_bytes += more.prefetched_bytes;
    counts.prefetch_used_bytes += more.prefetch_used_bytes;
    counts.prefetch_wasted_bytes += more.prefetch_wasted_bytes;
    counts.moves_failed += more.moves_failed;
}

/// Orders what several engines told, and cuts it to the length that one would have told.
fn finish_telemetry(told: &mut Telemetry, hot: u32) {
    told.hot.sort_by_key(|object| std::cmp::Reverse(object.score));
    told.hot.truncate(hot as usize);
    told.users.sort_by_key(|user| user.uid);
    told.containers.sort_by_key(|container| std::cmp::Reverse(container.stored_bytes));
    told.containers.truncate(CONTAINERS_MAX);
    let all: u64 = told.containers.iter().map(|container| container.stored_bytes).sum();
    for container in &mut told.containers {
        let share = u128::from(container.stored_bytes) * 1000 / u128::from(all.max(1));
        container.share_permille = share as u16;
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ContainerSpec, Error, ErrorKind};

    use super::*;

    fn listed(labels: &[&str]) -> Response {
        let info = |(id, label): (usize, &&str)| ContainerInfo {
            id: ContainerId(id as u64),
            label: (*label).to_owned(),
            spec: ContainerSpec::default(),
            objects: 0,
            indices: 0,
            records: 0,
            stored_bytes: 0,
        };
        Response::Containers(labels.iter().enumerate().map(info).collect())
    }

    #[test]
    fn lists_are_in_one_order_and_cut_at_the_limit() {
        let merged = Merge::Containers(3).merge(vec![listed(&["a", "d", "e"]), listed(&["b"]), listed(&["c", "f"])]);
        let Response::Containers(list) = merged else { panic!() };
        assert_eq!(list.iter().map(|info| info.label.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn numbers_are_sums_and_one_failure_is_enough() {
        let stats = |objects| Response::Stats(StoreStats { objects, sessions: 2, ..StoreStats::default() });
        let sum = Merge::Sum.merge(vec![stats(3), stats(4)]);
        assert!(matches!(sum, Response::Stats(StoreStats { objects: 7, sessions: 2, .. })));
        let failed = || Response::Failed(Error::new(ErrorKind::Io, "one"));
        assert_eq!(Merge::Sum.merge(vec![stats(3), failed()]), failed());
    }
}
