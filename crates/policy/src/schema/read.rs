//! Parses TOML into a schema, with the place of each fault.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use cenote_model::{Durability, size};
use serde::Deserialize;
use toml::Spanned;

use super::text::{Bound, Glob, duration_ms};
use super::{Budget, Fault, Lifecycle, LifecycleAction, Pattern, Prefetch, Rule, Schema, When};

/// The version of the schema language that this parser reads.
const VERSION: i64 = 1;
/// Upper bound of a schema's rules: each decision checks them in turn.
const RULES_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileToml {
    version: Spanned<i64>,
    fallback: Option<Spanned<String>>,
    #[serde(default)]
    rule: Vec<Spanned<RuleToml>>,
    #[serde(default)]
    lifecycle: Vec<Spanned<LifecycleToml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleToml {
    name: Spanned<String>,
    label: Option<String>,
    object: Option<String>,
    size: Option<Spanned<String>>,
    age: Option<Spanned<String>>,
    pattern: Option<Spanned<String>>,
    hours: Option<Spanned<String>>,
    tier: Option<Spanned<OneOrMany>>,
    #[serde(default)]
    pin: bool,
    mode: Option<Spanned<String>>,
    prefetch: Option<Spanned<PrefetchToml>>,
    demote_after: Option<Spanned<String>>,
    demote_to: Option<Spanned<String>>,
    budget: Option<Spanned<String>>,
    #[serde(rename = "else")]
    otherwise: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LifecycleToml {
    name: Spanned<String>,
    label: Option<String>,
    object: Option<String>,
    size: Option<Spanned<String>>,
    age: Option<Spanned<String>>,
    idle: Option<Spanned<String>>,
    action: Spanned<String>,
    to: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PrefetchToml {
    Depth(u32),
    Word(String),
}

/// Parses a schema's text. Every fault has its line and column.
pub(super) fn read(text: &str) -> Result<Schema, Fault> {
    let file: FileToml = toml::from_str(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        Fault::at(text, &at, error.message().to_owned())
    })?;
    if *file.version.get_ref() != VERSION {
        let what = format!("version {} of the schema; this reads version {VERSION}", file.version.get_ref());
        return Err(Fault::at(text, &file.version.span(), what));
    }
    if file.rule.len() + file.lifecycle.len() > RULES_MAX {
        let what = format!("{} rules; at most {RULES_MAX} are allowed", file.rule.len() + file.lifecycle.len());
        return Err(Fault::at(text, &(0..0), what));
    }
    let fallback = match file.fallback {
        Some(name) if crate::by_name(name.get_ref()).is_none() || name.get_ref() == "user" => {
            return Err(Fault::at(text, &name.span(), format!("there is no policy `{}`", name.get_ref())));
        }
        Some(name) => name.into_inner(),
        None => "fast-first".to_owned(),
    };
    let mut names: BTreeMap<String, Range<usize>> = BTreeMap::new();
    let mut once = |name: &Spanned<String>| {
        if name.get_ref().is_empty() {
            return Err(Fault::at(text, &name.span(), "a rule needs a name".into()));
        }
        match names.insert(name.get_ref().clone(), name.span()) {
            None => Ok(()),
            Some(_) => Err(Fault::at(text, &name.span(), format!("there are two rules named `{}`", name.get_ref()))),
        }
    };
    for name in file.rule.iter().map(|r| &r.get_ref().name).chain(file.lifecycle.iter().map(|r| &r.get_ref().name)) {
        once(name)?;
    }
    let rules = file.rule.into_iter().map(|rule| read_rule(text, rule)).collect::<Result<_, _>>()?;
    let lifecycle = file.lifecycle.into_iter().map(|rule| read_lifecycle(text, rule)).collect::<Result<_, _>>()?;
    Ok(Schema { fallback, rules, lifecycle })
}

/// Parses a text; a fault names its place.
fn parsed<T>(
    text: &str,
    from: Option<Spanned<String>>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Fault> {
    from.map(|from| parse(from.get_ref()).map_err(|what| Fault::at(text, &from.span(), what))).transpose()
}

fn named(text: &str, from: Option<Spanned<String>>) -> Option<super::Named> {
    from.map(|name| super::Named { place: Fault::place(text, &name.span()), name: name.into_inner() })
}

type Text = Option<Spanned<String>>;

/// Parses the conditions of both kinds of rules: names, size, age and idle time.
fn when(
    text: &str,
    label: Option<&str>,
    object: Option<&str>,
    (size, age, idle): (Text, Text, Text),
) -> Result<When, Fault> {
    Ok(When {
        label: label.map(Glob::new),
        object: object.map(Glob::new),
        size: parsed(text, size, Bound::of_size)?,
        age: parsed(text, age, Bound::of_age)?,
        idle: parsed(text, idle, Bound::of_age)?,
        pattern: None,
        hours: None,
    })
}

fn read_rule(text: &str, from: Spanned<RuleToml>) -> Result<Rule, Fault> {
    let span = from.span();
    let rule = from.into_inner();
    let tiers = rule.tier.map(|tier| {
        let place = Fault::place(text, &tier.span());
        let names = match tier.into_inner() {
            OneOrMany::One(name) => vec![name],
            OneOrMany::Many(names) => names,
        };
        names.into_iter().map(|name| super::Named { place, name }).collect::<Vec<_>>()
    });
    let prefetch = match rule.prefetch {
        None => None,
        Some(given) => Some(match given.get_ref() {
            PrefetchToml::Depth(0) => Prefetch::Off,
            PrefetchToml::Depth(depth) if *depth <= 1024 => Prefetch::Depth(*depth),
            PrefetchToml::Word(word) if word == "off" => Prefetch::Off,
            PrefetchToml::Word(word) if word == "auto" => Prefetch::Auto,
            PrefetchToml::Depth(_) | PrefetchToml::Word(_) => {
                return Err(Fault::at(
                    text,
                    &given.span(),
                    "prefetch is \"off\", \"auto\" or a depth up to 1024".into(),
                ));
            }
        }),
    };
    let demote_to = named(text, rule.demote_to);
    let demote_after_ms = parsed(text, rule.demote_after, duration_ms)?;
    if let (Some(to), None) = (&demote_to, demote_after_ms) {
        return Err(Fault { line: to.place.0, column: to.place.1, what: "demote-to without demote-after".into() });
    }
    if rule.pin && demote_after_ms.is_some() {
        return Err(Fault::at(
            text,
            &span,
            "what is pinned cannot be demoted: pin and demote-after exclude each other".into(),
        ));
    }
    Ok(Rule {
        place: Fault::place(text, &rule.name.span()),
        name: Arc::from(rule.name.into_inner()),
        when: When {
            pattern: parsed(text, rule.pattern, Pattern::parse)?,
            hours: parsed(text, rule.hours, str::parse)?,
            ..when(text, rule.label.as_deref(), rule.object.as_deref(), (rule.size, rule.age, None))?
        },
        tiers: tiers.unwrap_or_default(),
        pin: rule.pin,
        mode: parsed(text, rule.mode, mode)?,
        prefetch,
        demote_after_ms,
        demote_to,
        budget: match rule.budget {
            None => None,
            Some(given) => {
                let place = Fault::place(text, &given.span());
                let share = share(given.get_ref()).map_err(|what| Fault::at(text, &given.span(), what))?;
                Some((place, share))
            }
        },
        otherwise: named(text, rule.otherwise),
    })
}

fn read_lifecycle(text: &str, from: Spanned<LifecycleToml>) -> Result<Lifecycle, Fault> {
    let rule = from.into_inner();
    let to = named(text, rule.to);
    let when = when(text, rule.label.as_deref(), rule.object.as_deref(), (rule.size, rule.age, rule.idle))?;
    let word = rule.action.get_ref().as_str();
    let action = match (word, to) {
        ("demote", Some(to)) => LifecycleAction::Demote(to),
        ("archive", to) => LifecycleAction::Archive(to),
        ("delete-copy", None) => LifecycleAction::DeleteCopy,
        ("release", to) => LifecycleAction::Release(to),
        ("delete", None) if when.age.is_none_or(|age| age.holds(0)) => {
            let what = "delete needs an age, as in age = \"> 30d\": what is just being written would go, too";
            return Err(Fault::at(text, &rule.action.span(), what.into()));
        }
        ("delete", None) => LifecycleAction::Delete,
        ("demote", None) => return Err(Fault::at(text, &rule.action.span(), "demote needs `to`, a tier".into())),
        ("delete-copy" | "delete", Some(_)) => {
            return Err(Fault::at(text, &rule.action.span(), format!("{word} takes no `to`")));
        }
        _ => {
            let what = format!("action `{word}` is not one of demote, archive, release, delete-copy, delete");
            return Err(Fault::at(text, &rule.action.span(), what));
        }
    };
    Ok(Lifecycle {
        place: Fault::place(text, &rule.name.span()),
        name: Arc::from(rule.name.into_inner()),
        when,
        action,
    })
}

fn mode(word: &str) -> Result<Durability, String> {
    match word {
        "sync" => Ok(Durability::Sync),
        "async" => Ok(Durability::Async),
        "scratch" => Ok(Durability::Scratch),
        "bypass" => Ok(Durability::Bypass),
        _ => Err(format!("mode `{word}` is not one of sync, async, scratch, bypass")),
    }
}

fn share(text: &str) -> Result<Budget, String> {
    match text.strip_suffix('%') {
        None => size::parse(text).map(Budget::Bytes),
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if percent >= 0.0 && percent.is_finite() => Ok(Budget::Permille((percent * 10.0) as u64)),
            _ => Err(format!("`{text}` is not a share such as 25%")),
        },
    }
}
