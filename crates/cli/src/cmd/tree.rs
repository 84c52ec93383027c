//! `tree`: content of an HDF5 file of the store, and the place of its raw data.

use std::path::Path;

use cenote::model::size::{count, human};
use cenote_hdf5::space::Extent;
use cenote_hdf5::tree::{self, DatasetFacts, Kind, Node};
use serde_json::{Value, json};

use super::{Access, Context};
use crate::failure::Done;
use crate::out::escaped;

pub fn tree(context: &mut Context<'_>, file: &Path, depth: Option<usize>) -> Done {
    // Files are found by their stubs; a renamed stub updates the container's label, which is a write.
    let store = context.open(Access::Write)?;
    let mut nodes = Vec::new();
    tree::walk(&store, file, depth.unwrap_or(usize::MAX), &mut |node| {
        nodes.push(node);
        Ok(())
    })?;
    if context.out.json {
        return context.out.document(&Value::Array(nodes.iter().map(document).collect()));
    }
    for node in &nodes {
        context.out.line(line(node))?;
    }
    Ok(())
}

fn line(node: &Node) -> String {
    let name = if node.depth == 0 { "/" } else { node.path.rsplit('/').next().unwrap_or_default() };
    let mut text = vec![format!("{}{}", "  ".repeat(node.depth), escaped(name.as_bytes()))];
    match &node.kind {
        Kind::Group(links) => {
            if node.depth > 0 {
                text.push("/".to_owned());
            }
            text.push(format!("  {}", plural(*links, "link")));
        }
        Kind::Dataset(facts) => text.push(dataset(facts)),
        Kind::Datatype(dtype) => text.push(format!("  datatype {}", escaped(dtype.as_bytes()))),
        Kind::Map => text.push("  map".to_owned()),
        Kind::Same(first) => text.push(format!("  = {}", escaped(first.as_bytes()))),
        Kind::Soft(to) => text.push(format!("  -> {}", escaped(to.as_bytes()))),
        Kind::External(file, path) => {
            text.push(format!("  -> {}:{}", escaped(file.as_bytes()), escaped(path.as_bytes())));
        }
        Kind::User(class) => text.push(format!("  user-defined link of class {class}")),
    }
    if node.attributes > 0 {
        text.push(format!(", {}", plural(node.attributes, "attribute")));
    }
    if !node.comment.is_empty() {
        text.push(format!("  # {}", escaped(node.comment.as_bytes())));
    }
    text.concat()
}

fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

fn shape(extent: &Extent) -> String {
    let one = |(now, max): (&u64, &u64)| match *max {
        u64::MAX => format!("{now} of any"),
        max if max == *now => now.to_string(),
        max => format!("{now} of {max}"),
    };
    match extent {
        Extent::Null => "empty".to_owned(),
        Extent::Scalar => "scalar".to_owned(),
        Extent::Simple { dims, max } => dims.iter().zip(max).map(one).collect::<Vec<_>>().join(" x "),
    }
}

fn dataset(facts: &DatasetFacts) -> String {
    let mut text = vec![format!("  {}, {}, {}", shape(&facts.extent), escaped(facts.dtype.as_bytes()), facts.layout)];
    if let Some((chunks, bytes)) = facts.chunks {
        let sides: Vec<String> = facts.chunk.iter().map(u64::to_string).collect();
        text.push(format!(" by {}: {} of {}", sides.join(" x "), plural(chunks, "chunk"), human(bytes)));
    }
    if !facts.filters.is_empty() {
        text.push(format!(" ({})", escaped(facts.filters.join(", ").as_bytes())));
    }
    let tiers: Vec<String> =
        facts.tiers.iter().map(|(tier, bytes)| format!("{} on {}", human(*bytes), escaped(tier.as_bytes()))).collect();
    let tiers = if tiers.is_empty() { "nothing stored".to_owned() } else { tiers.join(", ") };
    text.push(format!("; {tiers}{}", if facts.is_part { " and more" } else { "" }));
    text.concat()
}

fn document(node: &Node) -> Value {
    let mut all = json!({ "path": node.path, "attributes": node.attributes, "comment": node.comment });
    let more = match &node.kind {
        Kind::Group(links) => json!({ "kind": "group", "links": links }),
        Kind::Datatype(dtype) => json!({ "kind": "datatype", "dtype": dtype }),
        Kind::Map => json!({ "kind": "map" }),
        Kind::Same(first) => json!({ "kind": "hard link", "same_as": first }),
        Kind::Soft(to) => json!({ "kind": "soft link", "to": to }),
        Kind::External(file, path) => json!({ "kind": "external link", "file": file, "to": path }),
        Kind::User(class) => json!({ "kind": "user-defined link", "class": class }),
        Kind::Dataset(facts) => {
            let max = facts.extent.max_dims().iter().map(|max| if *max == u64::MAX { Value::Null } else { json!(max) });
            json!({
                "kind": "dataset", "dtype": facts.dtype, "is_null": facts.extent == Extent::Null,
                "shape": facts.extent.dims(), "max_shape": max.collect::<Vec<_>>(), "layout": facts.layout,
                "chunk_shape": facts.chunk, "chunks": facts.chunks.map(|(n, _)| n),
                "chunk_bytes": facts.chunks.map(|(_, bytes)| bytes), "filters": facts.filters,
                "tiers": facts.tiers, "is_part": facts.is_part,
            })
        }
    };
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}
