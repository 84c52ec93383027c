//! `explain`: where each range of an object is, why, and what happens next.

use std::ffi::OsStr;

use cenote::Explanation;
use serde_json::json;

use super::list::object_document;
use super::{Access, Context};
use crate::failure::Done;
use crate::target;
use cenote::model::size::{count, human};

pub fn explain(context: &mut Context<'_>, name: &OsStr) -> Done {
    let store = context.open(Access::Read)?;
    let key = target::object(&store, name)?.key();
    let found = store.explain(key)?;
    if context.out.json {
        return context.out.document(&document(name, key, &found));
    }
    let stat = &found.stat;
    let out = &mut *context.out;
    out.line(format!(
        "object {}: {}, {} stored in {} extents that take {}, blocks of {}",
        name.display(),
        human(stat.size),
        human(stat.mapped_bytes),
        count(stat.extents),
        human(stat.taken_bytes),
        human(1 << stat.block_shift)
    ))?;
    for note in &found.notes {
        out.line(format!("  {note}"))?;
    }
    out.line("")?;
    let mut rows = Vec::with_capacity(found.ranges.len());
    let mut at = 0;
    for range in &found.ranges {
        if range.offset > at {
            rows.push(hole(at, range.offset));
        }
        let end = range.offset + u64::from(range.extent.len);
        rows.push(vec![
            range.offset.to_string(),
            human(u64::from(range.extent.len)),
            range.device.clone(),
            range.extent.device_offset().to_string(),
            range.why.clone(),
        ]);
        at = end;
    }
    if (found.ranges.len() as u64) == stat.extents && stat.size > at {
        rows.push(hole(at, stat.size));
    }
    out.table(&[">offset", ">bytes", "tier", ">at", "why"], &rows)?;
    if (found.ranges.len() as u64) < stat.extents {
        out.line(format!("and {} more extents", count(stat.extents - found.ranges.len() as u64)))?;
    }
    Ok(())
}

fn hole(from: u64, to: u64) -> Vec<String> {
    vec![from.to_string(), human(to - from), "-".into(), "-".into(), "a hole: never written, reads as zeros".into()]
}

fn document(name: &OsStr, key: cenote::ObjectKey, found: &Explanation) -> serde_json::Value {
    let ranges: Vec<_> = found
        .ranges
        .iter()
        .map(|range| {
            json!({
                "offset": range.offset,
                "len": range.extent.len,
                "tier": range.device,
                "device_offset": range.extent.device_offset(),
                "run_offset": range.extent.run_offset,
                "run_len": range.extent.run_len,
                "why": range.why,
            })
        })
        .collect();
    json!({
        "name": name.to_string_lossy(),
        "stat": object_document(key.object, &found.stat),
        "ranges": ranges,
        "notes": found.notes,
    })
}
