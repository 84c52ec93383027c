//! The recommendations as rules of the policy `user` (`cenote_policy::schema`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cenote_model::{Error, ErrorKind, Result};
use cenote_policy::{DeviceView, schema::Schema};
use cenote_tally::FileUse;

use crate::reason::pattern;
use crate::{Advice, Recommendation, Subject};

/// Upper bound of the files with rules: two rules for each, and a schema has at most 256.
const FILES_MOST: usize = 120;
/// Number of files from which one rule stands for all whose names differ only in numbers.
const LIKE_LEAST: usize = 3;

/// A policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Its text.
    pub text: String,
    /// Files, or groups of files, that have rules.
    pub files: usize,
    /// Files with a recommended tier but without a rule, since there would be too many.
    pub left_out: usize,
}

/// The content of one rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Saying {
    pattern: String,
    tiers: Vec<String>,
    is_scratch: bool,
    prefetch: &'static str,
    comment: String,
}

/// The policy file for some advice: rules by name for the files that belong on a tier. It is checked against these
/// tiers as a store would.
pub fn policy_text(advice: &Advice, tiers: &[DeviceView]) -> Result<Rules> {
    let wanted: Vec<(&FileUse, &Recommendation)> = advice
        .items
        .iter()
        .filter(|item| item.tier.is_some())
        .filter_map(|item| match &item.subject {
            Subject::File(file) => Some((&**file, item)),
            Subject::Memory(_) => None,
        })
        .collect();
    let mut alike: BTreeMap<String, Vec<(&FileUse, &Recommendation)>> = BTreeMap::new();
    for one in &wanted {
        alike.entry(without_numbers(&one.0.path)).or_default().push(*one);
    }
    let mut sayings: Vec<(f64, Saying)> = Vec::new();
    for (pattern, files) in alike {
        let said: Vec<(f64, Saying)> =
            files.iter().map(|(file, item)| (item.gain_s(), saying(&file.path, file, item, tiers))).collect();
        let is_scratch = said[0].1.is_scratch;
        if files.len() >= LIKE_LEAST && said.iter().all(|(_, other)| other.is_scratch == is_scratch) {
            let gain: f64 = said.iter().map(|(gain, _)| gain).sum();
            let comment = format!("{} files, {gain:.3} s less", files.len());
            sayings.push((gain, Saying { pattern, comment, ..usual(&said).clone() }));
        } else {
            sayings.extend(said);
        }
    }
    sayings.sort_by(|a, b| b.0.total_cmp(&a.0));
    let left_out = sayings.len().saturating_sub(FILES_MOST);
    sayings.truncate(FILES_MOST);
    // The first matching rule decides: rules for one file come before rules for many.
    sayings.sort_by_key(|(_, saying)| (saying.pattern.contains(['*', '?']), std::cmp::Reverse(saying.pattern.len())));
    let text = written(&sayings);
    check(&text, tiers)?;
    Ok(Rules { text, files: sayings.len(), left_out })
}

/// The most frequent content. A file that finds no space on the first tier goes to the next.
fn usual(said: &[(f64, Saying)]) -> &Saying {
    let alike = |one: &Saying| said.iter().filter(|(_, other)| other.tiers == one.tiers).count();
    let most = said.iter().map(|(_, saying)| saying).max_by_key(|saying| alike(saying));
    most.unwrap_or(&said[0].1)
}

/// The path with `*` in place of the numbers in its last component.
fn without_numbers(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut out = format!("{dir}/");
    let mut in_number = false;
    for c in name.chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !in_number {
            out.push('*');
        }
        in_number = c.is_ascii_digit();
    }
    // `h5` is an extension, not a number.
    match (name.rsplit_once('.'), out.rsplit_once('.')) {
        (Some((_, ending)), Some((stem, _))) => format!("{stem}.{ending}"),
        _ => out,
    }
}

fn saying(path: &str, file: &FileUse, item: &Recommendation, tiers: &[DeviceView]) -> Saying {
    // Its own tier first, then the others by the file's time on them.
    let mut order: Vec<(f64, usize)> =
        item.options_s.iter().enumerate().filter_map(|(at, seconds)| Some(((*seconds)?, at))).collect();
    order.sort_by(|a, b| (Some(a.1) != item.tier).cmp(&(Some(b.1) != item.tier)).then(a.0.total_cmp(&b.0)));
    Saying {
        pattern: path.to_owned(),
        tiers: order.iter().map(|(_, at)| tiers[*at].name.to_string()).collect(),
        is_scratch: file.is_temporary(),
        prefetch: if file.reads.accesses > 0 && pattern(&file.reads) == "random" { "off" } else { "auto" },
        comment: format!("{:.3} s less: {}", item.gain_s(), item.reason),
    }
}

fn written(sayings: &[(f64, Saying)]) -> String {
    let mut text = String::from(
        "# Written by `cenote advise`: where the files of a program that it watched belong.\n\
         # Rules are for containers made from those files (of HDF5 files the label ends with the path), and for objects of that name.\n\
         version = 1\nfallback = \"foresight\"\n",
    );
    for (number, (_, saying)) in sayings.iter().enumerate() {
        let pattern = quoted(&format!("*{}", saying.pattern));
        let name = quoted(&format!("{}: {}", number + 1, saying.pattern));
        let by_object = quoted(&format!("{}: {} as an object", number + 1, saying.pattern));
        let tiers = saying.tiers.iter().map(|tier| quoted(tier)).collect::<Vec<_>>().join(", ");
        let mode = if saying.is_scratch { "mode = \"scratch\"\n" } else { "" };
        let comment = saying.comment.replace(|c: char| c.is_control(), " ");
        for (title, what) in [(name, "label"), (by_object, "object")] {
            let about = if what == "label" { format!("# {comment}\n") } else { String::new() };
            let _ = write!(
                text,
                "\n{about}[[rule]]\nname = {title}\n{what} = {pattern}\ntier = [{tiers}]\n{mode}prefetch = \"{}\"\n",
                saying.prefetch
            );
        }
    }
    text
}

/// Quotes a text for TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Checks the text as a store would.
fn check(text: &str, tiers: &[DeviceView]) -> Result<()> {
    let faults = match Schema::parse(text) {
        Ok(schema) => schema.check(tiers),
        Err(fault) => vec![fault],
    };
    match faults.first() {
        None => Ok(()),
        Some(fault) => Err(Error::new(ErrorKind::Internal, "the policy that was written")
            .because(fault.to_string())
            .try_next("this is an error in `cenote advise`: please report it with its --json output")),
    }
}
