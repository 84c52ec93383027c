//! What `cenote ha` prints: what happened, what was concluded, what is done, and why, as sentences.

use std::fmt::Write;

use crate::{Action, Contents, Debt, Event, History, MemberState, MirrorState, Proposal, Seen, View};

/// The text for a person: events, the state of the view, and each action with its reason. Times are before `now_us`.
pub fn explain(history: &History, proposal: &Proposal, now_us: u64) -> String {
    let mut text = String::from("What happened\n");
    let mut events = history.log().peekable();
    if events.peek().is_none() {
        text.push_str("  nothing worth telling\n");
    }
    for event in events {
        let ago = now_us.saturating_sub(event.at_us) as f64 / 1e6;
        let _ = writeln!(text, "  {ago:.1} s ago {}", happened(event));
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
        let _ = writeln!(text, "  {}: {}", done(&decided.action, now_us), decided.why);
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
        };
        let _ = writeln!(text, "  node {}: {state}", member.id.0);
    }
    for home in &view.homes {
        let mirrors: Vec<String> = home.mirrors.iter().map(|node| format!("node {}", node.0)).collect();
        let mirrors = if mirrors.is_empty() { "nobody".to_owned() } else { mirrors.join(", ") };
        let _ =
            writeln!(text, "  {}: term {}, hosted by node {}, mirrored by {mirrors}", home.id, home.term, home.host.0);
    }
}

fn happened(event: &Event) -> String {
    match &event.seen {
        Seen::Register { view, .. } => format!("the register answered with view {}", view.number),
        Seen::Heard(node) => format!("node {} was heard", node.0),
        Seen::Reports { by, .. } => format!("node {} reported", by.0),
        Seen::Refused(node) => format!("the machine of node {} refused a connection to its daemon", node.0),
        Seen::DeviceFailed { node, device } => format!("device {device} of node {} failed", node.0),
        Seen::Returned { node, hello } => {
            format!("node {} said hello from {}; it left in view {}", node.0, hello.address, hello.left_in_view)
        }
        Seen::Mirror { home, node, state } => match state {
            MirrorState::Has(position) => format!("node {} has the journal of {home} up to byte {position}", node.0),
            MirrorState::CaughtUp => format!("node {} has all of the journal of {home}", node.0),
            MirrorState::Unanswered => format!("node {} did not answer as mirror of {home}", node.0),
            MirrorState::Diverged(position) => {
                format!("the journal of {home} on node {} was found to be another from byte {position} on", node.0)
            }
        },
        Seen::ClockOff { node, by_us } => {
            format!("the clock of node {} was seen {:.1} s off", node.0, *by_us as f64 / 1e6)
        }
        Seen::GivenUp(node) => format!("a person said that node {} is gone for good", node.0),
    }
}

fn done(action: &Action, now_us: u64) -> String {
    let left = |until: u64| until.saturating_sub(now_us) as f64 / 1e6;
    match action {
        Action::Wait { until_us: Some(until) } => format!("wait for {:.1} s at most", left(*until)),
        Action::Wait { until_us: None } => "wait".into(),
        Action::Exclude { node } => format!("exclude node {}", node.0),
        Action::TakeOver { home, by, wait_leases_until_us: None } => format!("node {} takes over {home}", by.0),
        Action::TakeOver { home, wait_leases_until_us: Some(until), .. } => {
            format!("this node opens {home}, and acts for it in {:.1} s", left(*until))
        }
        Action::DropMirror { home, node } => format!("go on without node {} as mirror of {home}", node.0),
        Action::AddMirror { home, node } => format!("node {} becomes a mirror of {home}", node.0),
        Action::Readmit { node, contents: Contents::Kept } => format!("readmit node {} with what it has", node.0),
        Action::Readmit { node, contents: Contents::Empty } => format!("readmit node {} as an empty node", node.0),
        Action::Settle { node } => format!("count node {} no longer as a loss", node.0),
        Action::Refuse { node } => format!("refuse what calls itself node {}", node.0),
        Action::Rebuild { what } => rebuilt(what),
        Action::Freeze { suspects, homes } => frozen(suspects, homes),
        Action::Tell => "note".into(),
    }
}

fn rebuilt(what: &Debt) -> String {
    match what {
        Debt::Extents { home, node, .. } => format!("make new copies of what {home} had on node {}", node.0),
        Debt::Journal { home, node } => format!("copy the journal of {home} to node {}", node.0),
        Debt::Device { node, device } => format!("make new copies of what lay on device {device} of node {}", node.0),
    }
}

fn frozen(suspects: &[cenote_model::NodeId], homes: &[crate::HomeId]) -> String {
    let nodes: Vec<String> = suspects.iter().map(|node| format!("node {}", node.0)).collect();
    let homes: Vec<String> = homes.iter().map(ToString::to_string).collect();
    let lost =
        if homes.is_empty() { "bytes that only they have".into() } else { format!("all of {}", homes.join(", ")) };
    format!(
        "FREEZE; going on without {} could lose {lost}. Bring one of them back, or give one up with `cenote ha --give-up`",
        nodes.join(", ")
    )
}
