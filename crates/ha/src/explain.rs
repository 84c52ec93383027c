//! What `cenote ha` prints: what happened, what was concluded, what is done, and why, as sentences.

use std::fmt::Write;

use cenote_model::NodeId;

use crate::{Action, Contents, Debt, Event, History, MemberState, MirrorState, Proposal, Reason, Seen, View};

/// The text for a person: events, the state of the view, and each action with its reason. Times are before `now_us`.
pub fn explain(history: &History, proposal: &Proposal, now_us: u64) -> String {
    let mut text = String::from("What happened\n");
    let events = story(history);
    if events.is_empty() {
        text.push_str("  nothing worth telling\n");
    }
    for (at_us, what) in events {
        let ago = now_us.saturating_sub(at_us) as f64 / 1e6;
        let _ = writeln!(text, "  {ago:.1} s ago {what}");
    }
    text.push_str("What is known\n");
    match history.view() {
        Some(view) => known(view, &mut text),
        None => text.push_str("  the register has not answered yet\n"),
    }
    text.push_str("What is done, and why\n");
    if proposal.decided.is_empty() {
        text.push_str("  nothing has to be done\n");
    }
    for decided in &proposal.decided {
        let _ = writeln!(text, "  {}: {}", decided.action.text(now_us), decided.why);
    }
    if let Some(view) = &proposal.view {
        let before = view.number - 1;
        let _ = writeln!(text, "  this is proposed as view {}, if the register still has view {before}", view.number);
    }
    text
}

fn known(view: &View, text: &mut String) {
    let live = view.live().count();
    let all = view.members.len();
    let _ = writeln!(
        text,
        "  view {}: {live} of {all} nodes take part; the weakest layout survives the loss of {}",
        view.number, view.survives
    );
    for member in &view.members {
        let state = match member.state {
            MemberState::Live { .. } => continue,
            MemberState::Excluded { is_owed: true, .. } => "excluded; what lay there has too few copies",
            MemberState::Excluded { is_owed: false, .. } => "excluded; nothing is missing because of it",
            MemberState::GivenUp { .. } => "given up; it never takes part again",
        };
        let _ = writeln!(text, "  node {}: {state}", member.id.0);
    }
    for home in &view.homes {
        if view.is_lost(home) {
            let _ = writeln!(text, "  {}: lost with node {}, which was given up", home.id, home.host.0);
            continue;
        }
        let mirrors: Vec<String> = home.mirrors.iter().map(|node| format!("node {}", node.0)).collect();
        let mirrors = if mirrors.is_empty() { "nobody".to_owned() } else { mirrors.join(", ") };
        let _ =
            writeln!(text, "  {}: term {}, hosted by node {}, mirrored by {mirrors}", home.id, home.term, home.host.0);
    }
}

/// What happened, oldest first: when, and the sentence.
pub fn story(history: &History) -> Vec<(u64, String)> {
    let mut before = None;
    let tell = |event: &Event| {
        let what = match &event.seen {
            Seen::Register { view, .. } => changed(before.replace(std::sync::Arc::clone(view)).as_deref(), view),
            _ => happened(event),
        };
        (event.at_us, what)
    };
    history.log().map(tell).collect()
}

/// What a view changes.
fn changed(before: Option<&View>, view: &View) -> String {
    let Some(before) = before else { return format!("the register answered with view {}", view.number) };
    let mut changes = Vec::new();
    for member in &view.members {
        let was_live = before.is_live(member.id);
        match member.state {
            MemberState::Live { .. } if !was_live => changes.push(format!("node {} takes part", member.id.0)),
            MemberState::Excluded { .. } if was_live => changes.push(format!("node {} is excluded", member.id.0)),
            MemberState::Excluded { is_owed: false, .. } if before.owed().any(|(node, _)| node == member.id) => {
                changes.push(format!("nothing is missing because of node {} any more", member.id.0));
            }
            MemberState::GivenUp { .. } if !before.is_given_up(member.id) => {
                changes.push(format!("a person gave node {} up", member.id.0));
            }
            _ => {}
        }
        let was_leaving = before.member(member.id).is_some_and(|was| was.is_leaving);
        match (was_leaving, member.is_leaving) {
            (false, true) => changes.push(format!("node {} is to leave", member.id.0)),
            (true, false) => changes.push(format!("node {} is to stay", member.id.0)),
            _ => {}
        }
    }
    let left = before.members.iter().filter(|member| view.member(member.id).is_none());
    changes.extend(left.map(|member| format!("node {} has left", member.id.0)));
    for home in &view.homes {
        let Some(was) = before.home(home.id) else { continue };
        if view.is_lost(home) && !before.is_lost(was) {
            changes.push(format!("{} is lost with node {}", home.id, home.host.0));
        }
        if was.wanted_host != home.wanted_host {
            changes.push(format!("node {} is to host {}", home.wanted_host.0, home.id));
        }
        if was.host != home.host {
            changes.push(format!("node {} hosts {} in term {}", home.host.0, home.id, home.term));
        }
        let new = home.mirrors.iter().filter(|node| !was.mirrors.contains(node));
        changes.extend(new.map(|node| format!("node {} mirrors {}", node.0, home.id)));
        let gone = was.mirrors.iter().filter(|node| !home.copies().any(|copy| copy == **node));
        changes.extend(gone.map(|node| format!("node {} mirrors {} no longer", node.0, home.id)));
    }
    format!("view {} is in force: {}", view.number, changes.join(", "))
}

fn happened(event: &Event) -> String {
    match &event.seen {
        Seen::Register { view, .. } => format!("the register answered with view {}", view.number),
        Seen::Board { board, view, .. } => format!("the board of node {} answered with view {view}", board.0),
        Seen::Heard(node) => format!("node {} was heard", node.0),
        Seen::Reports { by, .. } => format!("node {} reported", by.0),
        Seen::Refused(node) => format!("the machine of node {} refused a connection to its daemon", node.0),
        Seen::DeviceFailed { node, device } => format!("device {device} of node {} failed", node.0),
        Seen::Returned { node, hello } => {
            format!("node {} said hello from {}; it left in view {}", node.0, hello.address, hello.left_in_view)
        }
        Seen::Mirror { home, node, state } => match state {
            MirrorState::Has(position) => format!("node {} has the journal of {home} up to byte {position}", node.0),
            MirrorState::CaughtUp { .. } => format!("node {} has all of the journal of {home}", node.0),
            MirrorState::Unanswered => format!("node {} did not answer as mirror of {home}", node.0),
            MirrorState::Diverged(position) => {
                format!("the journal of {home} on node {} was found to be another from byte {position} on", node.0)
            }
        },
        Seen::ClockOff { node, by_us } => {
            format!("the clock of node {} was seen {:.1} s off", node.0, *by_us as f64 / 1e6)
        }
    }
}

impl Action {
    /// The action as a sentence; times are counted from `now_us`.
    pub fn text(&self, now_us: u64) -> String {
        let left = |until: u64| until.saturating_sub(now_us) as f64 / 1e6;
        match self {
            Self::Wait { until_us: Some(until) } => format!("wait for {:.1} s at most", left(*until)),
            Self::Wait { until_us: None } => "wait".into(),
            Self::Exclude { node } => format!("exclude node {}", node.0),
            Self::TakeOver { home, by, wait_leases_until_us: None } => format!("node {} takes over {home}", by.0),
            Self::TakeOver { home, wait_leases_until_us: Some(until), .. } => {
                format!("this node opens {home}, and acts for it in {:.1} s", left(*until))
            }
            Self::DropMirror { home, node } => format!("go on without node {} as mirror of {home}", node.0),
            Self::AddMirror { home, node } => format!("node {} becomes a mirror of {home}", node.0),
            Self::Readmit { node, contents: Contents::Kept } => format!("readmit node {} with what it has", node.0),
            Self::Readmit { node, contents: Contents::Empty } => format!("readmit node {} as an empty node", node.0),
            Self::Settle { node } => format!("count node {} no longer as a loss", node.0),
            Self::Refuse { node } => format!("refuse what calls itself node {}", node.0),
            Self::Rebuild { what } => rebuilt(what),
            Self::Freeze { suspects, homes } => frozen(suspects, homes),
            Self::Tell => "note".into(),
        }
    }
    /// Its kind, as a word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Wait { .. } => "wait",
            Self::Exclude { .. } => "exclude",
            Self::TakeOver { .. } => "take-over",
            Self::DropMirror { .. } => "drop-mirror",
            Self::AddMirror { .. } => "add-mirror",
            Self::Readmit { .. } => "readmit",
            Self::Settle { .. } => "settle",
            Self::Refuse { .. } => "refuse",
            Self::Rebuild { .. } => "rebuild",
            Self::Freeze { .. } => "freeze",
            Self::Tell => "tell",
        }
    }
    /// Returns true if it brings copies back, or gives a home another host.
    pub fn repairs(&self) -> bool {
        matches!(self, Self::Rebuild { .. } | Self::AddMirror { .. } | Self::TakeOver { .. })
    }
}

impl Reason {
    /// The node that it puts in doubt.
    pub fn doubts(&self) -> Option<NodeId> {
        match self {
            Self::Silent { node, .. }
            | Self::OtherFirst { node }
            | Self::Refused { node, .. }
            | Self::RefusedTooLong { node, .. }
            | Self::Goodbye { node, .. }
            | Self::Reported { node, .. }
            | Self::LostDevices { node, .. } => Some(*node),
            _ => None,
        }
    }
}

fn rebuilt(what: &Debt) -> String {
    match what {
        Debt::Extents { home, node, .. } => format!("make new copies of what {home} had on node {}", node.0),
        Debt::Journal { home, node } => format!("copy the journal of {home} to node {}", node.0),
        Debt::Device { node, device } => format!("make new copies of what lay on device {device} of node {}", node.0),
    }
}

fn frozen(suspects: &[NodeId], homes: &[crate::HomeId]) -> String {
    let nodes: Vec<String> = suspects.iter().map(|node| format!("node {}", node.0)).collect();
    let homes: Vec<String> = homes.iter().map(ToString::to_string).collect();
    let lost =
        if homes.is_empty() { "bytes that only they have".into() } else { format!("all of {}", homes.join(", ")) };
    let first = if nodes.len() == 1 { "it has" } else { "one of them has" };
    format!("FREEZE; going on without {} could lose {lost}, so {first} to come back first", nodes.join(", "))
}
