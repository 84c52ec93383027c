//! `verify`, `flush`, `checkpoint`: safety of stored data.

use std::ffi::OsStr;

use cenote::{Container, ContainerInfo, ErrorKind, Finding, Result, Store, VerifyReport};
use serde_json::json;

use super::{Access, Context};
use crate::copy::Progress;
use crate::failure::{Done, Failure};
use crate::target;
use cenote::model::size::{count, human};

pub fn verify(context: &mut Context<'_>, container: Option<&OsStr>) -> Done {
    let store = context.open(Access::Read)?;
    let infos = match container {
        Some(name) => vec![target::container(&store, name)?.info()?],
        None => store.containers("")?,
    };
    // Container by container, each with its snapshots, so that there is progress to show.
    let mut parts = Vec::new();
    for info in infos {
        match with_snapshots(&store, &info) {
            // Another process deleted it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && container.is_none() => {}
            found => parts.extend(found?),
        }
    }
    let all_bytes = parts.iter().map(|(_, info)| info.stored_bytes).sum();
    let progress = Progress::bytes(context.progress(), "verifying", Some(all_bytes));
    let mut report = VerifyReport::default();
    let mut labels = std::collections::HashMap::new();
    for (part, info) in &parts {
        let found = match part.verify() {
            Err(error) if error.kind() == ErrorKind::NotFound && container.is_none() => continue,
            found => found?,
        };
        labels.insert(info.id, info.label.as_str());
        report.objects += found.objects;
        report.bytes += found.bytes;
        report.findings.extend(found.findings);
        for contradiction in found.contradictions {
            if !report.contradictions.contains(&contradiction) {
                report.contradictions.push(contradiction);
            }
        }
        progress.add(info.stored_bytes);
    }
    progress.done();
    let name = |finding: &Finding| {
        let label = labels.get(&finding.key.container).copied().unwrap_or_default();
        format!("{label}/{}", finding.key.object)
    };
    if context.out.json {
        let findings: Vec<_> = report.findings.iter().map(|finding| document(finding, &name(finding))).collect();
        let all = json!({ "objects": report.objects, "bytes": report.bytes, "findings": findings,
                          "contradictions": report.contradictions });
        context.out.document(&all)?;
    } else {
        let rows = report.findings.iter().map(|finding| row(finding, name(finding))).collect::<Vec<_>>();
        if !rows.is_empty() {
            context.out.table(&["object", ">offset", ">bytes", "tier", "what is wrong"], &rows)?;
        }
        for contradiction in &report.contradictions {
            context.out.line(format!("memory contradicts itself: {contradiction}"))?;
        }
        let (objects, bytes) = (count(report.objects), human(report.bytes));
        let verdict = match (report.findings.len(), report.contradictions.len()) {
            (0, 0) => "all is well".to_owned(),
            (0, many) => {
                format!("{many} contradictions in memory; stop the store and open it again, it is made anew then")
            }
            (1, _) => "1 damaged range".to_owned(),
            (many, _) => format!("{many} damaged ranges"),
        };
        context.out.line(format!("{objects} objects, {bytes} read and checked: {verdict}"))?;
    }
    if report.findings.is_empty() && report.contradictions.is_empty() { Ok(()) } else { Err(Failure::Damage) }
}

/// Returns a container and its snapshots.
fn with_snapshots(store: &Store, info: &ContainerInfo) -> Result<Vec<(Container, ContainerInfo)>> {
    let container = store.container(&info.label)?;
    let mut found = Vec::new();
    for snapshot in container.snapshots()? {
        match container.open_snapshot(&snapshot.name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {} // replaced or deleted meanwhile
            opened => {
                let opened = opened?;
                let info = opened.info()?;
                found.push((opened, info));
            }
        }
    }
    found.insert(0, (container, info.clone()));
    Ok(found)
}

fn row(finding: &Finding, name: String) -> Vec<String> {
    vec![name, finding.offset.to_string(), finding.len.to_string(), finding.device.clone(), finding.what.clone()]
}

fn document(finding: &Finding, name: &str) -> serde_json::Value {
    json!({
        "object": name,
        "offset": finding.offset,
        "len": finding.len,
        "tier": finding.device,
        "what": finding.what,
    })
}

pub fn flush(context: &mut Context<'_>, container: Option<&OsStr>) -> Done {
    let store = context.open(Access::Write)?;
    match container {
        Some(name) => target::container(&store, name)?.flush()?,
        None => store.flush()?,
    }
    Ok(())
}

/// Waits until the loss of some nodes is survived.
pub fn protect(context: &mut Context<'_>, args: &ProtectArgs) -> Done {
    let store = context.open(Access::Write)?;
    Ok(store.protect(args.losses, std::time::Duration::from_secs(args.timeout))?)
}

/// Return when everything acknowledged so far survives the loss of nodes of the cluster
#[derive(clap::Args, Debug)]
pub struct ProtectArgs {
    /// How many nodes may be lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    losses: u32,
    /// Seconds to wait for mirrors that are being made
    #[arg(long, value_name = "S", default_value_t = 60)]
    timeout: u64,
}

pub fn checkpoint(context: &mut Context<'_>) -> Done {
    Ok(context.open(Access::Write)?.checkpoint()?)
}
