//! Semantic checks of a schema that was parsed.

use std::collections::BTreeMap;

use cenote_model::Durability;

use super::{Fault, LifecycleAction, Named, Schema};
use crate::DeviceView;
use crate::view::{bytes_words, order};

fn fault(place: (u32, u32), what: String) -> Fault {
    Fault { line: place.0, column: place.1, what }
}

/// Fails if rules refer to each other in a cycle, or to a rule that
/// does not exist.
pub(super) fn cycles(schema: &Schema) -> Result<(), Fault> {
    let next = |name: &str| schema.rules.iter().find(|rule| &*rule.name == name);
    for rule in &schema.rules {
        let mut path = vec![&*rule.name];
        let mut at = rule;
        while let Some(otherwise) = &at.otherwise {
            let Some(found) = next(&otherwise.name) else {
                return Err(fault(otherwise.place, format!("there is no rule `{}`", otherwise.name)));
            };
            path.push(&found.name);
            if path[..path.len() - 1].contains(&&*found.name) {
                return Err(fault(otherwise.place, format!("the rules go round in a circle: {}", path.join(" → "))));
            }
            at = found;
        }
    }
    Ok(())
}

/// The faults of a schema for these tiers.
pub(super) fn against(schema: &Schema, devices: &[DeviceView]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let tiers = order(devices);
    let known = || tiers.iter().map(|tier| &*tier.name).collect::<Vec<_>>().join(", ");
    let find = |named: &Named, faults: &mut Vec<Fault>| {
        let found = tiers.iter().position(|tier| *tier.name == *named.name);
        if found.is_none() {
            faults.push(fault(named.place, format!("there is no tier `{}`; there are {}", named.name, known())));
        }
        found
    };
    let mut promised: BTreeMap<usize, u64> = BTreeMap::new();
    for rule in &schema.rules {
        let found: Vec<usize> = rule.tiers.iter().filter_map(|named| find(named, &mut faults)).collect();
        for (at, named) in found.iter().zip(&rule.tiers) {
            if matches!(rule.mode, Some(Durability::Sync | Durability::Bypass)) && !tiers[*at].kind.is_persistent() {
                let what =
                    format!("rule `{}` wants data persistent at once, and `{}` is volatile", rule.name, named.name);
                faults.push(fault(named.place, what));
            }
        }
        if let Some(to) = &rule.demote_to
            && let Some(to_at) = find(to, &mut faults)
            && let Some(highest) = found.iter().min()
            && to_at <= *highest
        {
            let what = format!(
                "rule `{}` demotes from `{}` to `{}`, which is no slower",
                rule.name, tiers[*highest].name, to.name
            );
            faults.push(fault(to.place, what));
        }
        if let Some((place, share)) = rule.budget {
            let Some(first) = found.first() else {
                faults.push(fault(place, format!("rule `{}` has a budget and no tier", rule.name)));
                continue;
            };
            let tier = tiers[*first];
            let sum = promised.entry(*first).or_default();
            *sum = sum.saturating_add(share.bytes_of(tier));
            if *sum > tier.capacity_bytes {
                let what = format!(
                    "budgets of {} on `{}`, which has {}",
                    bytes_words(*sum),
                    tier.name,
                    bytes_words(tier.capacity_bytes)
                );
                faults.push(fault(place, what));
            }
        }
    }
    for rule in &schema.lifecycle {
        match &rule.action {
            LifecycleAction::Demote(to) | LifecycleAction::Archive(Some(to)) | LifecycleAction::Release(Some(to)) => {
                if let Some(at) = find(to, &mut faults)
                    && !tiers[at].kind.is_persistent()
                {
                    faults.push(fault(
                        to.place,
                        format!("rule `{}` archives to `{}`, which is volatile", rule.name, to.name),
                    ));
                }
            }
            LifecycleAction::Archive(None)
            | LifecycleAction::Release(None)
            | LifecycleAction::DeleteCopy
            | LifecycleAction::Delete => {}
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::devices;

    const GOOD: &str = r#"
version = 1
fallback = "max-bandwidth"

[[rule]]
name = "hot"
label = "run-*"
object = "*.idx"
size = "< 1GiB"
hours = "06:00-22:00"
tier = ["memory", "nvme"]
pin = true
budget = "25%"
prefetch = 32

[[rule]]
name = "checkpoints"
label = "ckpt*"
tier = "nvme"
mode = "sync"
demote-after = "10m"
demote-to = "ssd"
else = "hot"

[[lifecycle]]
name = "old"
label = "ckpt*"
age = "> 30d"
action = "archive"
"#;

    #[test]
    fn a_good_schema_reads_and_stands() {
        let schema = Schema::parse(GOOD).unwrap();
        assert_eq!(schema.rules.len(), 2);
        assert_eq!(schema.check(&devices()), []);
        let of = super::super::Subject {
            label: "ckpt7",
            name: None,
            bytes: 1,
            age_ms: 0,
            idle_ms: None,
            heat: None,
            now_ms: 0,
            now_unix_ms: 0,
        };
        assert_eq!(&*schema.rule_for(&of).unwrap().name, "checkpoints");
        assert_eq!(schema.mode_for(&of), Some(Durability::Sync));
        assert_eq!(schema.prefetch_for(&of), None);
    }

    #[test]
    fn the_example_in_the_documentation_reads_and_stands() {
        let page = include_str!("../../../../docs/policies.md");
        let example = page.split("```toml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let schema = Schema::parse(example).unwrap();
        assert_eq!((schema.rules.len(), schema.lifecycle.len()), (2, 1));
        assert_eq!(schema.check(&devices()), []);
    }

    #[test]
    fn faults_have_their_line_and_column() {
        for (change, line, column, word) in [
            (("tier = \"nvme\"", "tire = \"nvme\""), 19, 1, "tire"),
            (("\"10m\"", "\"10 apples\""), 21, 16, "apples"),
            (("else = \"hot\"", "else = \"cold\""), 23, 8, "no rule `cold`"),
            (("pin = true", "else = \"checkpoints\""), 23, 8, "circle: hot → checkpoints → hot"),
            (("version = 1", "version = 9"), 2, 11, "version 9"),
            (("\"max-bandwidth\"", "\"guess\""), 3, 12, "no policy `guess`"),
            (("\"checkpoints\"", "\"hot\""), 17, 8, "two rules"),
            (("\"archive\"", "\"burn\""), 29, 10, "burn"),
            (("\"25%\"", "\"a lot\""), 13, 10, "unit"),
            (("prefetch = 32", "prefetch = \"much\""), 14, 12, "prefetch"),
            (("\"06:00-22:00\"", "\"noon\""), 10, 9, "noon"),
            (("pin = true", "pin = true\ndemote-after = \"1s\""), 5, 1, "pinned"),
        ] {
            let text = GOOD.replacen(change.0, change.1, 1);
            assert_ne!(text, GOOD);
            let found = Schema::parse(&text).expect_err(change.1);
            assert!(found.what.contains(word), "{}: {found}", change.1);
            assert_eq!((found.line, found.column), (line, column), "{}: {found}", change.1);
        }
    }

    #[test]
    fn impossible_policies_are_named_for_the_tiers_that_there_are() {
        for (change, line, word) in [
            (
                ("[\"memory\", \"nvme\"]", "[\"memory\", \"tape\"]"),
                11,
                "no tier `tape`; there are memory, nvme, ssd, s3",
            ),
            (("\"25%\"", "\"64MiB\""), 13, "64 MiB on `memory`, which has 32 MiB"),
            (("\"25%\"", "\"101%\""), 13, "on `memory`"),
            (("demote-to = \"ssd\"", "demote-to = \"memory\""), 22, "no slower"),
            (("tier = \"nvme\"", "tier = \"memory\""), 19, "volatile"),
            (("action = \"archive\"", "action = \"demote\"\nto = \"memory\""), 30, "volatile"),
        ] {
            let schema = Schema::parse(&GOOD.replacen(change.0, change.1, 1)).unwrap();
            let faults = schema.check(&devices());
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].what.contains(word) && faults[0].line == line, "{}", faults[0]);
        }
    }
}
